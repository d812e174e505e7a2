# SPDX-License-Identifier: BSD-3-Clause
"""Clusters and servers for the tutorials' readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.builders.containers import each_role
from tests.cluster.conftest import gridengine_abci, slurm, slurm_tacc  # noqa: F401 (fixtures)
from tests.cluster.gridengine_cell import GridEngineCell, GridEngineOptions
from tests.cluster.slurm_cluster import TACC, SlurmCluster, SlurmOptions
from tests.live.openpbs import LOGIN, OpenPbs
from tests.requirements import open_way, require_program, require_root
from tests.tutorials.internet import Internet, open_internet
from tests.tutorials.mount_points import mount_point
from tests.tutorials.site_images import HostLayers, SiteImages, pack_host_layers
from tests.tutorials.stand_ins import MODULES

PARTITIONS = (
    *("alpha", "alpha-interactive", "sequana_gpu", "sequana_gpu_dev", "sequana_cpu_dev", "cpu_dev", "interactive"),
    "rtx",
)


@pytest.fixture(scope="session")
def slurm_lessons() -> Iterator[SlurmCluster]:
    """Nodes as large as the tutorials' requests, with their partitions."""
    require_root()
    options = SlurmOptions(gpus=8, gpu_type="h100", cpus=16, memory=600_000, partitions=PARTITIONS, virtual_hosts=True)
    with SlurmCluster(options) as cluster:
        yield cluster


def _reach_internet(cluster: SlurmCluster) -> Iterator[Internet]:
    assert cluster.hosts is not None
    with open_internet(cluster.folder / "internet", cluster.hosts) as internet:
        yield internet


@pytest.fixture(scope="session")
def slurm_internet(slurm_lessons: SlurmCluster) -> Iterator[Internet]:
    """The servers of the tutorials, reached from that cluster."""
    yield from _reach_internet(slurm_lessons)


@pytest.fixture(scope="session")
def big_disks(slurm_lessons: SlurmCluster) -> Iterator[None]:
    """/scratch, /beegfs and /data on every host, for everybody; what the machine has not is gone afterwards."""
    assert slurm_lessons.hosts is not None
    with ExitStack() as stack:
        for name in ("scratch", "beegfs", "data"):
            stack.enter_context(mount_point(Path("/", name)))
            shared = slurm_lessons.folder / name
            shared.mkdir()
            shared.chmod(0o1777)
            for host in ("head", *slurm_lessons.nodes):
                slurm_lessons.hosts.run(host, "mount", "--bind", str(shared), f"/{name}")
        yield


@pytest.fixture(scope="session")
def host_layers() -> Iterator[HostLayers]:
    """What the images of the site pages are made of."""
    for runner in each_role("user"):
        yield pack_host_layers(runner)


@pytest.fixture(scope="session")
def slurm_images(slurm_internet: Internet, host_layers: HostLayers) -> SiteImages:
    """The images of the site pages, on those servers."""
    return SiteImages(host_layers, slurm_internet)


@pytest.fixture(scope="session")
def frontera() -> Iterator[SlurmCluster]:
    """Plays TACC's Frontera: it refuses what TACC refuses."""
    require_root()
    options = SlurmOptions(cpus=16, memory=100_000, lua=TACC, partitions=("rtx", "rtx-dev"), virtual_hosts=True)
    with SlurmCluster(options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def frontera_internet(frontera: SlurmCluster) -> Iterator[Internet]:
    """The servers of the tutorials, reached from that cluster."""
    yield from _reach_internet(frontera)


@pytest.fixture(scope="session")
def abci_lessons() -> Iterator[GridEngineCell]:
    """Plays ABCI 2.0; as there, sh is bash."""
    require_root()
    with GridEngineCell(GridEngineOptions(abci=True)) as cell:
        for host in cell.nodes:
            cell.hosts.run(host, "mount", "--bind", "/usr/bin/bash", str(Path("/usr/bin/sh").resolve()))
        yield cell


@pytest.fixture(scope="session")
def abci_internet(abci_lessons: GridEngineCell) -> Iterator[Internet]:
    """The servers of the tutorials, reached from that cell."""
    with open_internet(abci_lessons.folder / "internet", abci_lessons.hosts) as internet:
        yield internet


@pytest.fixture(scope="session")
def abci_modules(abci_lessons: GridEngineCell) -> str:
    """What defines `module` there: every host of that cell has it, and a real Open MPI behind one of the modules."""
    folder = abci_lessons.folder / "openmpi"
    folder.mkdir()
    (folder / "mpirun").symlink_to(require_program("mpirun.openmpi"))
    modules = MODULES.format(shims=abci_lessons.user().home / "shims", openmpi=folder)
    script = abci_lessons.folder / "modules.sh"
    script.write_text(modules)
    for host in abci_lessons.nodes:
        abci_lessons.hosts.run(host, "mount", "-t", "tmpfs", "tmpfs", "/etc/profile.d")
        abci_lessons.hosts.run(host, "cp", str(script), "/etc/profile.d/modules.sh")
    return modules


@pytest.fixture(scope="session")
def pbs_internet(pbs: OpenPbs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """The servers of the tutorials, reached from an OpenPBS."""
    folder = tmp_path_factory.mktemp("pbs-internet")
    open_way(folder)
    with open_internet(folder, pbs, LOGIN) as internet:
        yield internet
