# SPDX-License-Identifier: BSD-3-Clause
"""Records of runs and what jobs used, on real schedulers: with sacct, with qacct, and of ranks on two nodes."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, leaving_nothing, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster

BUSY = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done"


def read_record(user: JobUser, id: str) -> dict[str, Any]:
    (place,) = user.folder.glob(f"*{id}.out.record.json")
    record = json.loads(place.read_text())
    assert isinstance(record, dict)
    return record


def measure(user: JobUser, id: str) -> dict[str, Any]:
    return next(each for each in user.tell("jobs", "--efficiency") if each["id"] == id)


def test_slurm_job_is_recorded_and_measured_by_two_sources(slurm_accounting: SlurmCluster) -> None:
    with leaving_nothing(slurm_accounting) as user:
        id = user.submit("-t", "1h", "-c", "2", "--name", "busy", user.take_tools(), "sh", "-c", BUSY)
        user.wait(id)
        record = read_record(user, id)
        assert (record["exit"]["status"], record["job"]["scheduler"], record["job"]["id"]) == (0, "slurm", id)
        assert record["image"]["fingerprint"].startswith("sha256:")
        slurm_accounting.wait_until_forgotten(id)
        wait_until("accounts know it", lambda: measure(user, id)["sources"] == ["record", "accounts"])
        found = measure(user, id)
        assert (found["cpus"], found["time_limit"]) == (2, 3600)
        assert 0 < found["cpu_load"] < 100
        assert found["enough"][:2] == ["--time", "5m"]
        assert user.read("rerun", id) == "done\n"


def test_slurm_job_without_a_container_is_measured_by_accounts(slurm_accounting: SlurmCluster) -> None:
    with leaving_nothing(slurm_accounting) as user:
        id = user.submit_shell(BUSY, "-t", "1h")
        user.wait(id)
        wait_until("accounts know it", lambda: measure(user, id)["sources"] == ["accounts"])
        assert "no record" in user.run("rerun", id).stderr


def test_slurm_launch_leaves_one_record_for_all_ranks(slurm_hosts: SlurmCluster) -> None:
    with leaving_nothing(slurm_hosts) as user:
        id = user.submit("--ranks", "-N", "2", "--tasks-per-node", "2", "-t", "5m", user.take_tools(), "hostname")
        user.wait(id)
        record = read_record(user, id)
        assert (record["verb"], record["exit"]["status"]) == ("launch", 0)
        assert (record["launch"]["launcher"], record["launch"]["ranks"]) == ("srun", 4)
        assert record["launch"]["nodes"] == ["gpu01", "gpu02"]


def test_gridengine_job_is_recorded_and_measured(gridengine: GridEngineCell) -> None:
    user = make_job_user(gridengine, KEDGE_SITE="generic-gridengine")
    id = user.submit("-t", "1h", "--name", "busy", user.take_tools(), "sh", "-c", BUSY)
    user.wait(id)
    assert (read_record(user, id)["job"]["scheduler"], read_record(user, id)["exit"]["status"]) == ("gridengine", 0)
    wait_until("accounts know it", lambda: measure(user, id)["sources"] == ["record", "accounts"])
    assert measure(user, id)["enough"][:2] == ["--time", "5m"]
