# SPDX-License-Identifier: BSD-3-Clause
"""The token of a launch on real clusters: no command line of srun, mpirun, qrsh, their daemons or ranks shows it.

The hosts of the tests have one kernel, so that one spy sees the processes of all (tests/hostile has it on one host).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.builders.spies import Spy, watched_command_lines
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.test_launch_gridengine import PROFILE, TWO

SECRET = f"hf_{secrets.token_hex(16)}"


@pytest.fixture
def slurm_user(slurm_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_hosts) as user:
        user.take_tools()
        yield user


@pytest.fixture
def gridengine_user(gridengine: GridEngineCell) -> Iterator[JobUser]:
    with leaving_nothing(gridengine) as user:
        user.write("config/kedge/sites/cell.toml", PROFILE)
        user = user.with_environment(KEDGE_SITE="cell", XDG_CONFIG_HOME=str(user.folder / "config"))
        user.take_tools()
        yield user


def launch(me: JobUser, spy: Spy, *options: str) -> str:
    """What a job prints whose script launches ranks on both nodes; the secret is in a file, as it should be."""
    me.write("secret", SECRET)
    marks = " ".join(f"{name}={value}" for name, value in spy.variables.items())
    words = f"launch --ranks {' '.join(options)} tools.sif sh -c 'sleep 1; echo rank $RANK has $HF_TOKEN'"
    script = f"export {marks} HF_TOKEN=$(cat secret); exec {' '.join(me.user.program)} {words}"
    return me.run_job(*TWO, "-", "sh", "-c", script)


def expect_hidden(spy: Spy, shown: str) -> None:
    assert shown.count(f" has {SECRET}") == 4, shown
    assert spy.find("rank"), "the spy saw no rank"
    assert spy.tokens, "no token was to be found, not even by root"
    for word in (*spy.tokens, SECRET):
        assert not spy.find(word), f"everybody saw {word!r}"
        assert isinstance(word, str) or word.decode() not in shown


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "mpiexec"])
def test_slurm_hides_the_token(slurm_user: JobUser, launcher: str) -> None:
    with watched_command_lines() as spy:
        shown = launch(slurm_user, spy, "--launcher", launcher)
    expect_hidden(spy, shown)


@pytest.mark.parametrize("launcher", ["qrsh", "mpirun"])
def test_gridengine_hides_the_token(gridengine_user: JobUser, launcher: str) -> None:
    with watched_command_lines() as spy:
        shown = launch(gridengine_user, spy, "--launcher", launcher)
    expect_hidden(spy, shown)
