# SPDX-License-Identifier: BSD-3-Clause
"""Which launcher is chosen, by scheduler, site, MPI of the image and of the host; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kedge.base.frozen import replace
from kedge.cluster.allocation import AllocatedNode, Allocation
from kedge.cluster.mpi import CONTAINED, HYBRID, PMI_ONLY, MpiFacts, MpiHost, MpiImage
from kedge.cluster.site import Site
from kedge.errors import LaunchRefused
from kedge.launch.choose_launcher import LauncherChoice, LauncherFacts, choose_launcher
from kedge.launch.contracts import Contract
from kedge.launch.request import LaunchRequest
from tests.builders.rows import each_row

OPEN = MpiFacts("Open MPI", "4.1.4", pmi=("pmix",), launcher="/usr/bin/mpirun")
MPICH = MpiFacts("MPICH", "4.0.2", pmi=("pmi2", "pmi1"), launcher="/usr/bin/mpiexec.hydra")
PLUGINS = ("none", "pmi2", "pmix")


def choose(
    scheduler: str = "slurm",
    *,
    nodes: int = 2,
    mpi: MpiFacts | None = None,
    host: MpiFacts | None = None,
    programs: str = "srun qrsh mpirun",
    site: Site | None = None,
    **request: Any,
) -> LauncherChoice:
    asked = LaunchRequest("app.sif", ("./app",), tasks=4, **request)
    allocation = Allocation(scheduler, tuple(AllocatedNode(f"n{index}", 2) for index in range(nodes)))
    found = MpiHost(host, plugins=PLUGINS if scheduler == "slurm" else None, has_slurm=scheduler == "slurm")
    image = MpiImage("app.sif", (mpi,) if mpi else (), is_searched=True)
    chosen = site or Site("here", "here", scheduler)
    return choose_launcher(
        LauncherFacts(asked, allocation, chosen, image, lambda: found, lambda name: name in programs.split())
    )


@each_row(("mpi", "wanted"), [(OPEN, "pmix"), (MPICH, "pmi2")])
def test_srun_offers_the_pmi_that_the_image_speaks_whatever_the_profile_says(mpi: MpiFacts, wanted: str) -> None:
    for said in ("pmix", "pmi2", ""):
        choice = choose(mpi=mpi, host=OPEN, site=Site("here", "here", "slurm", mpi_type=said))
        assert (choice.launcher, choice.mode, choice.mpi_type) == ("srun", PMI_ONLY, wanted)
        assert choice.pmi == mpi.pmi


@each_row(("mpi", "said"), [(MPICH, "pmix"), (MPICH, "none"), (OPEN, "pmi2"), (OPEN, "none")])
def test_a_pmi_that_makes_singletons_is_refused(mpi: MpiFacts, said: str) -> None:
    with pytest.raises(LaunchRefused, match=f"srun --mpi={said} does not connect ranks of {mpi.title}"):
        choose(mpi=mpi, mpi_type=said)
    assert choose(mpi=mpi, mpi_type=said, has_check=False).mpi_type == said


@each_row(("scheduler", "nodes", "launcher"), [
    ("slurm", 1, "srun"), ("slurm", 2, "srun"), ("gridengine", 2, "qrsh"), ("gridengine", 1, "local"),
    ("pbs", 2, "mpirun"), ("pbs", 1, "local"), ("local", 1, "local"),
])  # fmt: skip
def test_without_mpi_the_scheduler_starts_the_tasks_where_it_can(scheduler: str, nodes: int, launcher: str) -> None:
    own = Site("here", "here", scheduler, launcher="srun" if scheduler == "slurm" else "mpirun")  # as generic profiles
    choice = choose(scheduler, nodes=nodes, host=OPEN, contract=Contract.RANKS)
    assert choice.launcher == launcher
    assert choose(scheduler, nodes=nodes, host=OPEN, site=own, contract=Contract.RANKS).launcher == launcher
    assert not choice.pmi


@each_row(("scheduler", "nodes"), [("gridengine", 2), ("pbs", 2), ("local", 1)])
def test_elsewhere_the_hosts_mpi_of_the_same_family_starts_ranks(scheduler: str, nodes: int) -> None:
    choice = choose(scheduler, nodes=nodes, mpi=OPEN, host=OPEN)
    assert (choice.launcher, choice.path, choice.mode) == ("mpirun", "/usr/bin/mpirun", HYBRID)
    choice = choose(scheduler, nodes=nodes, mpi=MPICH, host=MPICH)
    assert (choice.launcher, choice.path) == ("mpiexec", "/usr/bin/mpiexec.hydra")


def test_what_cannot_start_ranks_is_refused() -> None:
    with pytest.raises(LaunchRefused, match=r"no launcher here starts ranks of MPICH 4\.0\.2"):
        choose("gridengine", mpi=MPICH, host=OPEN)
    with pytest.raises(LaunchRefused, match="cannot start ranks of MPICH"):
        choose("local", nodes=1, mpi=MPICH, host=OPEN, launcher="mpirun")
    with pytest.raises(LaunchRefused, match="this is no Slurm job but one of Grid Engine"):
        choose("gridengine", mpi=MPICH, host=MPICH, mpi_mode=PMI_ONLY)
    with pytest.raises(LaunchRefused, match="no program starts tasks on the 2 nodes"):
        choose("pbs", programs="", contract=Contract.RANKS)


@each_row("launcher", ["local", "qrsh"])
def test_kedges_own_start_does_not_connect_ranks_of_mpi(launcher: str) -> None:
    with pytest.raises(LaunchRefused, match="does not connect ranks of MPI"):
        choose("gridengine", mpi=OPEN, host=OPEN, launcher=launcher)
    assert choose("gridengine", mpi=OPEN, host=OPEN, launcher=launcher, contract=Contract.RANKS).launcher == launcher


def test_the_launcher_of_a_site_or_image_where_it_is() -> None:
    site = Site("tacc", "tacc", "slurm", launcher="ibrun")
    assert choose(site=site, programs="srun ibrun", contract=Contract.RANKS).launcher == "ibrun"
    assert choose(site=site, programs="srun", contract=Contract.RANKS).launcher == "srun"
    assert choose(site=replace(site, launcher="none"), programs="srun", contract=Contract.RANKS).launcher == "srun"
    choice = choose("local", nodes=1, mpi=MPICH, host=OPEN)
    assert (choice.launcher, choice.mode, choice.path) == ("mpiexec", CONTAINED, "/usr/bin/mpiexec.hydra")


@each_row(("nodes", "launcher"), [(1, "local"), (2, "mpirun")])
def test_tasks_of_one_host_need_no_mpirun_even_if_the_profile_names_it(nodes: int, launcher: str) -> None:
    site = Site("here", "here", "local", launcher="mpirun")
    assert choose("local", nodes=nodes, host=OPEN, site=site, contract=Contract.RANKS).launcher == launcher
