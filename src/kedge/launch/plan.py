# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a launch: what is started where, with which words and variables, and why. Values only.

Every process that a launcher starts is `kedge rank OPTIONS -- exec …`: it learns on its node which rank it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from kedge.base.frozen import frozen, replace
from kedge.cluster.launchers.own import QRSH
from kedge.cluster.launchers.program import LaunchProgram, StartRequest, flatten
from kedge.launch.contracts import Contract
from kedge.launch.order import RankOrder
from kedge.launch.shape import LaunchShape

CONTAINED = "contained"  # the image's own mpirun, in one container on one node


@frozen
class StartedProcess:
    """One process that the launch itself starts: the launcher, or a node's own start."""

    argv: tuple[str, ...]
    node: int = -1  # the one that it is for; -1: all


@frozen
class LaunchPlan:
    """All that a launch does."""

    launcher: str
    program: LaunchProgram
    shape: LaunchShape
    contract: Contract
    order: RankOrder
    request: StartRequest
    command: tuple[str, ...]  # in the container, of every rank, before the contract's own words
    container: tuple[str, ...]  # exec, its options and the image
    kedge: tuple[str, ...]  # how kedge is started on the nodes
    token: str = ""  # before lines that a rank says to the launch, and not to the user; on no command line
    changes: tuple[tuple[str, str | None], ...] = ()  # variables for the launcher; None: unset
    node_shell: tuple[str, ...] = ()  # the program by which a launcher reaches nodes, and the variable with their list
    reasons: tuple[str, ...] = ()
    mpi_type: str = ""
    mode: str = ""  # hybrid, bind, pmi, contained; empty: no MPI takes part
    has_mpi: bool = False  # the image has one that the world check can ask
    library: str = ""  # its path in the container; empty: the probe looks for it
    warning: str = ""  # what the user must know even if all goes well

    def list_processes(self, command: Sequence[str] | None = None) -> list[StartedProcess]:
        """What to start for this command, else for the launch's own."""
        words = [*self.container, *(self.command if command is None else command)]
        if self.mode == CONTAINED:
            inner = flatten(self.program.list_words(self.request))
            words = [*self.container, *inner, *(self.command if command is None else command)]
            return [StartedProcess((*self.kedge, *words))]
        if self.program.is_own:
            return [self._start_node(index, words) for index in range(self.shape.node_count)]
        starter = flatten(self.program.list_words(self.request))
        said = [self.order.encode(), "--", *words]
        if ":" in words:  # srun, mpirun and mpiexec begin another program there
            said = _pack(said)
        return [StartedProcess((*starter, *self.kedge, "rank", *said))]

    def _start_node(self, index: int, words: Sequence[str]) -> StartedProcess:
        request = replace(self.request, hosts=((self.shape.nodes[index].name, self.shape.tasks[index]),))
        starter = flatten(self.program.list_words(request))
        said = [replace(self.order, node=index).encode(), "--", *words]
        if self.program is QRSH:  # it hands the words to a shell
            said = _pack(said)
        return StartedProcess((*starter, *self.kedge, "rank", *said), index)


def _pack(words: Sequence[str]) -> list[str]:
    """The words as one that means nothing to shells and launchers; `kedge rank` reads it."""
    return ["--packed", base64.urlsafe_b64encode(json.dumps(words).encode()).decode()]
