# SPDX-License-Identifier: BSD-3-Clause
"""Jobs from the one file on a real Slurm and a real Grid Engine, with two hosts each that unpack it by themselves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kedge.tools.bundle import find_head
from tests.builders.bundles import make_bundle
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.test_launch_slurm import SHOW
from tests.cluster.two_hosts import PROFILE as GRIDENGINE_PROFILE
from tests.cluster.two_hosts import TWO
from tests.wording import assert_says

pytestmark = [pytest.mark.root, pytest.mark.slow]

PROFILES = {"slurm_hosts": 'title = "two hosts"\nscheduler = "slurm"\n', "gridengine": GRIDENGINE_PROFILE}
_SUPERH = (42).to_bytes(2, "little")  # in the header of ELF files


def put_bundle(me: JobUser, path: Path) -> JobUser:
    """The user with a bundle at a path, and no other kedge; what it unpacks goes where the user's nodes have it."""
    shutil.copy(make_bundle(), path)
    os.chown(path, me.user.uid, me.user.uid)
    return replace(me, user=replace(me.user, program=(str(path),)))


ON_BOTH = pytest.mark.parametrize("me", PROFILES, indirect=True, scope="module")
ON_SLURM = pytest.mark.parametrize("me", ["slurm_hosts"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def me(request: pytest.FixtureRequest) -> Iterator[JobUser]:
    cluster: SlurmCluster | GridEngineCell = request.getfixturevalue(request.param)
    with leaving_nothing(cluster) as user:
        user.write("config/kedge/sites/cell.toml", PROFILES[request.param])
        assert cluster.hosts is not None
        node = str(cluster.hosts.local_disk / user.folder.name)  # every host has its own
        user = user.with_environment(KEDGE_SITE="cell", XDG_CONFIG_HOME=str(user.folder / "config"), KEDGE_NODEDIR=node)
        user = put_bundle(user, user.folder / "kedge")
        user.read("pull", "tools.sif", "host:sh,hostname,sleep")
        yield user


@ON_BOTH
def test_bundle_ranks_on_both_nodes(me: JobUser) -> None:
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", SHOW)
    me.wait(id)
    logs = me.read("logs", id)
    assert me.status(id)["state"] == "done", logs
    lines = sorted(line for line in logs.splitlines() if "/4" in line)
    assert [line.partition(" node ")[0] for line in lines] == [
        *("0/4 local 0/2", "1/4 local 1/2", "2/4 local 0/2", "3/4 local 1/2")
    ], logs
    hosts = [line.split()[-2] for line in lines]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]


@ON_SLURM
def test_bundle_job_that_fails_is_explained(me: JobUser) -> None:
    id = me.submit("tools.sif", "sh", "-c", "echo no such data >&2; exit 7")
    me.wait(id)
    task = me.status(id)
    assert (task["state"], task["exit_code"]) == ("failed", 7)
    assert "no such data" in me.read("logs", id)


FUNCTIONS = """
import kedge, socket
with kedge.Executor(site="cell") as executor:
    print(sum(executor.map(pow, [2, 3], [10, 2])), executor.submit(socket.gethostname).result(timeout=90))
"""


@ON_SLURM
def test_bundle_runs_functions_as_jobs(me: JobUser) -> None:
    me.write("functions.py", FUNCTIONS)
    total, host = me.read("python", "functions.py").split()
    assert (total, host != "head") == ("1033", True)


@ON_SLURM
def test_bundle_shims_work_in_jobs(me: JobUser) -> None:
    me.read("shim", "install", "--dir", str(me.folder / "bin"))
    shown = me.run_shell(
        f"PATH={me.folder}/bin:$PATH; apptainer exec {me.folder}/tools.sif sh -c 'echo $APPTAINER_NAME'"
    )
    assert shown.splitlines()[-1] == "tools.sif"


@ON_SLURM
def test_bundle_on_the_login_node_alone_says_so(me: JobUser, request: pytest.FixtureRequest) -> None:
    cluster = request.getfixturevalue(request.node.callspec.params["me"])
    assert cluster.hosts is not None
    hidden = cluster.hosts.local_disk / f"kedge-{me.folder.name}"
    cluster.hosts.run("head", "cp", str(me.folder / "kedge"), str(hidden))
    alone = replace(me, user=replace(me.user, program=(str(hidden),)))
    id = alone.submit("--ranks", *TWO, "tools.sif", "sh", "-c", SHOW)
    alone.wait(id)
    shown = alone.run("status", id).stdout
    assert_says(shown, "diagnose/node-no-job-submitted", hidden)
    assert f"cp {hidden} DIRECTORY" in shown


@ON_SLURM
def test_bundle_for_another_cpu_says_so(me: JobUser) -> None:
    """Login nodes and GPU nodes differ on some clusters; no test host runs, or emulates, programs for SuperH."""
    head = bytearray(find_head(os.uname().machine).read_bytes())
    head[18:20] = _SUPERH
    path = me.write("kedge-other", "")
    path.write_bytes(head)
    id = me.submit("-", "bash", "-c", f"{path} exec tools.sif true")
    me.wait(id)
    assert_says(me.run("status", id).stdout, "diagnose/bundle-another-cpu", path)
