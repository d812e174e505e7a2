# SPDX-License-Identifier: BSD-3-Clause
"""The token of a launch on real clusters: no command line of srun, mpirun, qrsh, their daemons or ranks shows it.

The hosts of the tests have one kernel, so that one spy sees the processes of all (tests/hostile has it on one host).
"""

from __future__ import annotations

import secrets

import pytest

from tests.builders.spies import Spy, watched_command_lines
from tests.cluster.job_user import JobUser
from tests.cluster.two_hosts import TWO, cell_user, slurm_user

__all__ = ["cell_user", "slurm_user"]

SECRET = f"hf_{secrets.token_hex(16)}"


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
def test_gridengine_hides_the_token(cell_user: JobUser, launcher: str) -> None:
    with watched_command_lines() as spy:
        shown = launch(cell_user, spy, "--launcher", launcher)
    expect_hidden(spy, shown)
