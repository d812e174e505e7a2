# SPDX-License-Identifier: BSD-3-Clause
"""What a user wants launched, in the words that jobs have, too. Zero and empty: the user did not say."""

from __future__ import annotations

from kedge.base.frozen import frozen
from kedge.launch.contracts import Contract

AUTO = "auto"
_USES_MPI = (Contract.NONE, Contract.HOROVOD)


@frozen
class LaunchRequest:
    """One launch."""

    image: str
    command: tuple[str, ...]  # empty: the image's default command
    options: tuple[str, ...] = ()  # of the container, as `kedge exec` takes them
    nodes: int = 0
    tasks: int = 0
    tasks_per_node: int = 0
    launcher: str = AUTO
    launcher_options: tuple[str, ...] = ()
    mpi_type: str = AUTO  # which PMI srun offers
    contract: Contract = Contract.NONE
    uses_mpi: bool | None = None  # None: where the image has one, and the contract is about MPI
    processes: int = 0  # that torchrun starts on each node
    least_nodes: int = 0  # elastic
    restarts: int = 0
    has_check: bool = True
    check_seconds: float = 60.0
    is_labelled: bool = False  # show the rank before every line
    is_runscript: bool = False  # the command is for the image's run script
    mpi_mode: str = AUTO  # hybrid, bind, pmi or contained

    @property
    def is_about_mpi(self) -> bool:
        """Whether tasks are ranks of the image's MPI, if it has one."""
        return self.contract in _USES_MPI and self.uses_mpi is not False
