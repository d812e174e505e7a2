# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge rank` is told on its command line. Every rank pays for what this file imports."""

from __future__ import annotations

from kedge.base.frozen import NOTHING, JsonValue, as_dict, frozen
from kedge.launch.contracts import Contract, Rendezvous, Terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


@frozen
class RankOrder(JsonValue):
    """What `kedge rank` is told: one word of JSON on its command line, so that no launcher has to hand it on.

    All users of a node can read it: it holds no secret.
    """

    contract: str
    layout: tuple[int, ...]  # the ranks of each node
    address: str
    port: int
    id: str
    hosts: tuple[str, ...] = ()  # the nodes
    processes: tuple[int, ...] = ()  # per node, that a program like torchrun starts
    starter: tuple[str, ...] = ("torchrun",)  # the words of that program
    cpus: tuple[int, ...] = ()  # per rank, on each node; 0: unknown
    pmi: tuple[str, ...] = ()  # kinds of PMI that the image's MPI knows; empty: it needs none, or that is unknown
    is_checked: bool = True  # a rank whose MPI finds none of them does not start
    mpi: str = ""  # the image's MPI, for messages
    mpi_type: str = ""  # which PMI srun was asked for, likewise
    least_nodes: int = 0
    restarts: int = 0
    interface: str = ""  # of the first node, for NCCL and Gloo; other nodes find out theirs
    fallback: str = ""  # an address of the first node, for nodes that do not know its name
    node: int = -1  # kedge's own start: the node whose ranks one process starts
    runs_probe: bool = False  # the first word of the command stands for the probe
    command_at: int = 0  # where the command begins among the words behind this

    def encode(self) -> str:
        """Encode the order as one word, with the version that wrote it: on a node there may be another kedge."""
        import json  # late: who starts ranks has it loaded

        from kedge.base.release import VERSION  # late: ranks need it for an error alone

        return json.dumps({"kedge": VERSION, **as_dict(self)}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> RankOrder:
        """From that word; raises LaunchRefused where it is none, or one of another version of kedge."""
        read: Any = None
        try:
            read = _read_json(text)
            values: dict[str, Any] = {
                name: tuple(each) if isinstance(each, list) else each for name, each in read.items()
            }
            values.pop("kedge", None)  # for `unread_order`
            order = cls(**values)
            if order._is_sound():
                return order
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        from kedge.launch.unread_order import explain_order  # late: only for an error

        raise explain_order(read, cls)

    def _is_sound(self) -> bool:
        """Whether all values are what their names promise; raises ValueError for an unknown contract."""
        Contract(self.contract)
        fits = all(is_kind(getattr(self, name), kind) for name, kind in RankOrder.__annotations__.items())
        return fits and self.node < len(self.layout)

    def terms_on(self, node: int, environ: Mapping[str, str] = NOTHING) -> Terms:
        """What a contract needs to know on a node; `environ` is what the user set already."""
        return Terms(
            Rendezvous(self.address, self.port, self.id),
            cpus=_at(self.cpus, node, 0),
            processes=_at(self.processes, node, 1),
            starter=self.starter,
            least_nodes=self.least_nodes,
            restarts=self.restarts,
            hosts=tuple(host for host, count in zip(self.hosts, self.layout, strict=False) for _ in range(count)),
            interface=self.interface,
            environ=environ,
        )


def is_kind(value: object, kind: str) -> bool:
    """Whether a value of an order is of the kind that its annotation names."""
    if kind.startswith("tuple"):
        items = int if "int" in kind else str
        return isinstance(value, tuple) and all(type(item) is items for item in value)
    return type(value).__name__ == kind


def _read_json(text: str) -> Any:
    """What `json.loads` gives; raises ValueError. Its parser is in C, and the module around it compiles patterns."""
    try:
        from _json import make_scanner  # private: it may be another one some day

        scan = make_scanner(_Json)  # type: ignore[arg-type]  # any object with these attributes
    except (ImportError, AttributeError, TypeError):
        import json  # late: as said

        return json.loads(text)
    try:
        value, end = scan(text, 0)
    except (StopIteration, SystemError):  # the latter where json.decoder is not loaded: it has the parser's error
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


class _Json:
    """What the parser asks for."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int


def _at(values: Sequence[int], index: int, default: int) -> int:
    return values[index] if 0 <= index < len(values) else default
