# SPDX-License-Identifier: BSD-3-Clause
"""`kedge site` against real schedulers: a profile that is written there is what the scheduler says, and jobs fit it."""

from __future__ import annotations

import json

from kedge.errors import RequestRefused, all_errors
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import make_job_user
from tests.cluster.slurm_cluster import ACCOUNT, SlurmCluster
from tests.wording import assert_reads, assert_says

REFUSED = next(kind.exit_code for kind in all_errors() if kind is RequestRefused)


def test_site_init_on_slurm(slurm: SlurmCluster) -> None:
    me = make_job_user(slurm)
    user = me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"))  # the profile is not for those who come after
    assert json.loads(user.run("--json", "site", "detect").stdout)["site"] == "generic-slurm"
    made = user.run("site", "init", "tiny", "--force")
    assert made.returncode == 0, made.stderr
    site = json.loads(user.run("--json", "site", "show", "tiny").stdout)
    queues = {each["name"]: each for each in site["queues"]}
    assert queues["gpu"]["is_default"]
    assert (queues["gpu"]["gpus_per_node"], queues["gpu"]["nodes"], queues["gpu"]["max_time"]) == (4, 2, 8 * 3600)
    assert (queues["dev"]["max_time"], queues["dev"]["max_nodes"]) == (1200, 1)
    checked = user.run("site", "check", "tiny")
    assert checked.returncode == 0
    assert_reads(checked.stdout, "site/profile-tiny-matches-scheduler")
    refused = user.run("site", "check", "tiny", "--gpus", "8", "--time", "1h")
    assert refused.returncode == REFUSED
    assert "--nodes 2 --gpus 4 --queue gpu" in refused.stderr


def test_site_init_reads_accounts(slurm_accounting: SlurmCluster) -> None:
    site = json.loads(slurm_accounting.user().run("--json", "site", "init", "--output", "-").stdout)["site"]
    assert site["account"] == ACCOUNT


def test_site_check_says_where_a_profile_is_out_of_date(slurm: SlurmCluster) -> None:
    done = slurm.user().run("site", "check", "zih-alpha")
    assert done.returncode == 1
    assert_says(done.stdout, "site/alpha-profile-not-scheduler")


def test_site_init_on_gridengine(gridengine: GridEngineCell) -> None:
    me = make_job_user(gridengine)
    user = me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"))
    assert json.loads(user.run("--json", "site", "detect").stdout)["site"] == "generic-gridengine"
    assert user.run("site", "init", "cell", "--force").returncode == 0
    site = json.loads(user.run("--json", "site", "show", "cell").stdout)
    (queue,) = site["queues"]
    assert (queue["name"], queue["nodes"], queue["cpus_per_node"], queue["gpus_per_node"]) == ("all.q", 2, 8, 4)
    assert ["mpi_environment", "ppn{tasks}"] in site["options"]
    assert user.run("site", "check", "cell").returncode == 0
