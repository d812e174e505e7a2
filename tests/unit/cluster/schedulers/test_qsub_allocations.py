# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of jobs of Grid Engine, by variables and files of real ones; of PBS, played; and of this machine."""

from __future__ import annotations

import pytest

from kedge.cluster.allocation import Allocation, ThisHost
from kedge.cluster.schedulers.current_job import find_allocation
from kedge.errors import LaunchRefused
from tests.builders.recorded_jobs import GRID_ENGINE, PE_FILES, read_record


def read(name: str, host: str = "", **changes: str) -> Allocation:
    environ = read_record(GRID_ENGINE[name]) | changes
    return find_allocation(environ, lambda _: PE_FILES[name], ThisHost(host or environ["HOSTNAME"], 8, 2))


def show(found: Allocation) -> list[tuple[str, int, int, int | None]]:
    return [(node.name, node.tasks, node.cpus, node.gpus) for node in found.nodes]


def test_grid_engine_allocations() -> None:
    assert show(read("plain")) == [("ge02", 1, 1, 2)]
    assert show(read("smp")) == [("ge01", 3, 3, 2)]
    assert show(read("ppn2")) == [("ge02", 2, 2, 2), ("ge01", 2, 2, 2)]
    assert show(read("mpi")) == [("ge02", 3, 3, 2), ("ge01", 2, 2, None)], "another share of the host, unlike ours"
    assert read("ppn2").host_file.endswith("/pe_hostfile")
    assert read("ppn2", host="ge01.site.example").here == "ge01"
    assert read("ppn2", host="head").here == ""
    found = read("array")
    assert (found.job_id, found.array_index) == ("5", "2")
    assert read("plain").array_index == ""
    assert read("qrsh").step_id == "qrsh"
    assert read("ppn2").step_id == ""

    def fail(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    environ = read_record(GRID_ENGINE["ppn2"])
    with pytest.raises(LaunchRefused, match="pe_hostfile") as caught:
        find_allocation(environ, fail, ThisHost("ge03"))
    assert "first node" in str(caught.value.hint)


PBS = {"PBS_JOBID": "123.server", "PBS_NODEFILE": "/var/spool/pbs/aux/123.server", "PBS_ENVIRONMENT": "PBS_BATCH"}


def read_pbs(lines: str, host: str = "n1", **changes: str) -> Allocation:
    return find_allocation(PBS | changes, lambda _: lines, ThisHost(host, 64, 4))


def test_pbs_allocations_and_this_machine() -> None:
    """select=2:ncpus=8:mpiprocs=4:ngpus=4"""
    found = read_pbs("n1.site\n" * 4 + "n2.site\n" * 4, NCPUS="8", OMP_NUM_THREADS="8")
    assert show(found) == [("n1.site", 4, 8, 4), ("n2.site", 4, 8, 4)]
    assert (found.here, found.job_id, found.host_file) == ("n1.site", "123.server", PBS["PBS_NODEFILE"])
    assert show(read_pbs("n1\nn1\nn2\n", NCPUS="8")) == [("n1", 2, 8, 4), ("n2", 1, 0, None)]
    assert show(read_pbs("n1\nn2\n", host="head", NCPUS="x")) == [("n1", 1, 0, None), ("n2", 1, 0, None)]
    found = read_pbs("n1\n", PBS_JOBID="123[4].server", PBS_ARRAY_INDEX="4")
    assert found.array_index == "4"
    found = find_allocation({}, str, ThisHost("laptop", 8, 2))
    assert show(found) == [("laptop", 2, 8, 2)]
    assert (found.scheduler, found.here, found.job_id) == ("local", "laptop", "")
    assert show(find_allocation({}, str, ThisHost("laptop", 8, 0))) == [("laptop", 1, 8, 0)]
