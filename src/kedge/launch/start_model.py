# SPDX-License-Identifier: BSD-3-Clause
"""How long the ranks of a job take to start from a shared file system: a model, and what it says about staging.

The costs of a start are measured by bench/scale, the servers are assumptions; docs/scaling.md has both, with sources,
and compares the model with virtual nodes. Times are until the last rank runs the user's program.
"""

from __future__ import annotations

from kedge.base.frozen import frozen


@frozen
class FileServer:
    """A shared file system, as all its clients together see it."""

    name: str
    operations: float  # names looked up, files opened and closed, reads: a second
    bandwidth: float  # bytes a second
    latency: float  # seconds until one answer, when nobody else asks


@frozen
class StartCost:
    """What one way to start asks of the shared file system and of a node."""

    name: str
    first: int  # operations of the first rank on a node
    later: int  # operations of each further rank there
    node_bytes: int  # what a node reads once, the image not counted
    seconds: float  # of a core, for each rank
    staged_bytes: int = 0  # what the job copies to each node first
    first_seconds: float = 0.0  # of a core, for the first rank on a node on top of that: unpacking the bundle
    reads_image: float = 1.0  # the part of the image that a node reads before the first line


@frozen
class JobSize:
    """How many start at once, and from which image."""

    nodes: int
    ranks: int  # on each node
    image_bytes: int = 0  # 0: each node has it already
    cores: int = 64  # of a node


# docs/scaling.md has how they were measured
INSTALLED = StartCost("installed with its own Python", first=262, later=60, node_bytes=6_300_000, seconds=0.03)
BUNDLE = StartCost("bundle", first=228, later=4, node_bytes=27_900_000, seconds=0.03, first_seconds=1.8)
STAGED = StartCost("bundle, staged", 9, 2, node_bytes=65_500, seconds=0.03, staged_bytes=27_800_000, first_seconds=1.8)

NFS = FileServer("NFS server", 20_000, 1e9, 0.0005)
PARALLEL = FileServer("parallel file system", 100_000, 100e9, 0.0005)
_PARALLEL_KINDS = ("lustre", "gpfs", "beegfs", "wekafs", "panfs", "ceph")
_NFS_KINDS = ("nfs", "nfs4", "cifs", "smb3")

_LINK = 1.2e9  # bytes a second that a node sends and receives: 10 Gbit/s
_FAN_OUT = 8  # nodes that each node of a broadcast sends to: sbcast has no more
_BROADCAST_SECONDS = 1.0  # before the first byte
WORTH = 5.0  # seconds: staging that saves less is not worth the copy


def count_operations(cost: StartCost, size: JobSize) -> int:
    """What the server answers for the whole job."""
    return size.nodes * (cost.first + (size.ranks - 1) * cost.later)


def count_bytes(cost: StartCost, size: JobSize) -> int:
    """What the server sends for the whole job."""
    staged = cost.staged_bytes  # one node reads it, and the nodes hand it on
    return staged + size.nodes * round(cost.node_bytes + cost.reads_image * size.image_bytes)


def estimate_broadcast(length: int, nodes: int) -> float:
    """Seconds to copy a file from one node to all: each hands on what it has while the rest still arrives."""
    if nodes == 1 or not length:
        return 0.0
    copies = min(_FAN_OUT, nodes - 1)
    return _BROADCAST_SECONDS + length * copies / _LINK


def estimate_start(cost: StartCost, server: FileServer, size: JobSize) -> float:
    """Seconds until the last rank runs the program: copies, operations, bytes, and the starts themselves."""
    answering = max(
        count_operations(cost, size) / server.operations,
        (cost.first + (cost.later if size.ranks > 1 else 0)) * server.latency,
    )
    per_node = cost.node_bytes + cost.reads_image * size.image_bytes
    reading = max(count_bytes(cost, size) / server.bandwidth, per_node / _LINK)
    computing = cost.first_seconds + cost.seconds * -(-size.ranks // size.cores)
    return estimate_broadcast(cost.staged_bytes, size.nodes) + answering + reading + computing


def find_server(kind: str) -> FileServer | None:
    """The assumption for a kind of file system, as the mount table names it; None: it is not known to be shared."""
    if kind in _PARALLEL_KINDS:
        return PARALLEL
    return NFS if kind in _NFS_KINDS else None


def estimate_saving(length: int, server: FileServer, nodes: int, later_operations: int = 0) -> float:
    """Seconds that copying a file to all nodes saves over each node reading it, and each rank asking for it."""
    if nodes == 1:
        return 0.0
    reading = max(nodes * length / server.bandwidth, length / _LINK) + later_operations / server.operations
    return reading - (estimate_broadcast(length, nodes) + length / server.bandwidth)
