# SPDX-License-Identifier: BSD-3-Clause
"""For nodes without room to unpack an image: the file that squashfuse mounts instead.

A file is mounted as it is. A reference becomes a SIF in the cache first, as a pull makes it.
"""

from __future__ import annotations

from pathlib import Path

from kedge.base.reference import Reference, Transport
from kedge.errors import FileProblem, KedgeError, NoSpace
from kedge.image.cached_image import CachedFormat, provide_cached
from kedge.image.node.node_cache_writer import NodeCache
from kedge.image.workplace import Workplace
from kedge.image.write_image import write_sif


def find_mountable(text: str, workplace: Workplace, problem: NoSpace | FileProblem, *, policy: str) -> Path:
    """The file to mount, with a warning that says why; raises a `problem` that is not about room on the node."""
    reference = Reference.parse(text)
    if not _is_of_node(problem, workplace) or not _can_be_file(reference, workplace):
        raise problem
    path = Path(reference.path) if reference.transport is Transport.FILE else _make_file(reference, workplace, policy)
    workplace.progress.warn(f"cannot unpack {reference.redacted}: {problem}. squashfuse mounts it instead")
    return path


def _is_of_node(problem: KedgeError, workplace: Workplace) -> bool:
    """Whether the node's directory is full, read-only or missing, not the cache's or the image's."""
    try:
        place = NodeCache(workplace.settings).place
    except FileProblem:
        return True
    return Path(str(problem.context.get("path", ""))).is_relative_to(place)


def _can_be_file(reference: Reference, workplace: Workplace) -> bool:
    """Whether a reference is a file, or a cache can hold one."""
    return reference.transport is Transport.FILE or not workplace.settings.disable_cache


def _make_file(reference: Reference, workplace: Workplace, policy: str) -> Path:
    """The SIF in the cache that the reference is converted or downloaded to."""
    with workplace.open_store() as store:
        return provide_cached(reference, workplace, store, CachedFormat("sif", write_sif), policy=policy)
