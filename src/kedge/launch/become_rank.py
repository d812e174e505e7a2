# SPDX-License-Identifier: BSD-3-Clause
"""What a process does on its node before it becomes the container's program: it learns its rank and sets variables.

The PMI that the image's MPI speaks must be there: else every rank believes that it is alone, and says nothing.
"""

from __future__ import annotations

import os

from kedge.base.frozen import frozen, replace
from kedge.cluster.ranks import Rank, find_launcher, find_rank
from kedge.compat.mpi.pmi import find_served, is_served
from kedge.launch.contracts import Contract, rank_command, rank_variables
from kedge.launch.order import RankOrder
from kedge.launch.variables import find_leaking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

_REQUEST = "KEDGEENV_"  # sets a variable in the container, before all that the image says
_SERVERS = ("PMIX_SERVER_TMPDIR", "PMIX_SYSTEM_TMPDIR")  # where PMIx has its sockets and shared files
_MOUNTED = ("/tmp", "/var/tmp", "/dev", "/proc", "/sys")  # in every container


@frozen
class RankStart:
    """What to do now."""

    rank: Rank
    words: tuple[str, ...]  # behind `kedge`: exec, its options, the image and the command
    changes: tuple[tuple[str, str | None], ...]  # variables; None: unset

    def apply(self, environ: MutableMapping[str, str]) -> None:
        """Change the variables."""
        for name, value in self.changes:
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value


def prepare_rank(order: RankOrder, words: Sequence[str], environ: Mapping[str, str]) -> RankStart:
    """The rank of this process and what it runs; raises LaunchRefused where its launcher did not do its part."""
    rank = find_rank(environ, order.layout)
    if rank is None:
        from kedge.errors import LaunchRefused  # late: only for an error

        raise LaunchRefused(
            "no launcher started this process as a rank: it has none of their variables",
            hint="the launcher may have dropped them; try another one: kedge launch --launcher NAME",
        )
    _require_pmi(order, rank, environ)
    contract = Contract(order.contract)
    terms = _find_network(order, rank).terms_on(rank.node_rank, environ)
    variables = rank_variables(contract, rank, terms)
    command = words[order.command_at :]
    if order.runs_probe:
        command = [_hold_probe(), *command[1:]]
    elif command:
        command = rank_command(contract, rank, terms, command)
    container = [*words[:1], *_bind_servers(order, environ), *words[1 : order.command_at]]
    changes = [*variables.items(), *((name, None) for name in find_leaking(environ))]
    changes += [(_REQUEST + name, _escape(value)) for name, value in variables.items() if value is not None]
    return RankStart(rank, (*container, *command), tuple(changes))


def _find_network(order: RankOrder, rank: Rank) -> RankOrder:
    """The order with how this node reaches the first one."""
    if rank.node_count == 1:
        return replace(order, interface="")
    from kedge.launch.node_network import find_network  # late: a rank of one node starts in half the time

    network = find_network(order, rank)
    return replace(order, address=network.address, interface=network.interface)


def _hold_probe() -> str:
    """The path of this node's probe, which stays open: it also runs where the directory of kedge is mounted noexec."""
    from kedge.launch.probe.words import find_probe  # late: only for the check before the program
    from kedge.system.memory_program import hold_program

    machine = os.uname().machine
    probe = find_probe(machine)
    if not probe:
        from kedge.errors import LaunchRefused  # late: only for an error

        raise LaunchRefused(
            f"kedge has no probe for {machine}, the CPU of {os.uname().nodename}", hint="add --no-check"
        )
    return hold_program(probe)


def _require_pmi(order: RankOrder, rank: Rank, environ: Mapping[str, str]) -> None:
    if not order.is_checked or not order.pmi or rank.size == 1 or is_served(order.pmi, environ):
        return
    served, launcher = find_served(environ), find_launcher(environ)
    offered = f"offers {' and '.join(served)}" if served else "offers no PMI"
    said = f" (--mpi={order.mpi_type})" if order.mpi_type and launcher == "srun" else ""
    wanted = " or ".join(order.pmi)
    from kedge.errors import LaunchRefused  # late: only for an error

    raise LaunchRefused(
        f"{order.mpi or 'the MPI of the image'} needs {wanted}, and {launcher}{said} {offered}:"
        f" each of the {rank.size} ranks would run alone as rank 0 of 1",
        hint=f"let kedge choose: leave out --launcher and --mpi-type; or give --mpi-type {order.pmi[0]}",
    )


def _bind_servers(order: RankOrder, environ: Mapping[str, str]) -> list[str]:
    """Options that bring the directories of the launcher's PMIx server into the container."""
    if not order.pmi:
        return []
    folders = {environ[name].rstrip("/") for name in _SERVERS if environ.get(name, "").startswith("/")}
    hidden = sorted(path for path in folders if not path.startswith(_MOUNTED) and os.path.isdir(path))  # noqa: PTH112
    return [word for path in hidden for word in ("--bind", path)]


def _escape(value: str) -> str:
    """A value that is still itself after the container's shell has read it."""
    return "".join("\\" + letter if letter in "\\$`" else letter for letter in value)
