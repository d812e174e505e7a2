# SPDX-License-Identifier: BSD-3-Clause
"""Another user of the node wants what a launch keeps to itself: its token, secrets of the user, its port beforehand.

Command lines are everybody's to read: he reads those of all processes, in a loop, while launches run. With the token
he could speak to a launch in the name of its ranks; with the port he could be there before them. The same with real
schedulers: tests/cluster/test_launch_tokens.py.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from pathlib import Path

import pytest

from kedge.launch import surroundings
from tests.builders.containers import Runner, give_to, make_sandbox
from tests.builders.spies import Spy, watched_command_lines

SECRET = "hf_" + secrets.token_hex(16)
# It takes the words of srun and starts two tasks, as Slurm does with --ntasks=2.
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 \\
        SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE=2 "$@" 2>&1 >&3 | sed "s/^/$task: /" >&2 &
done 3>&1
wait
"""
TORCHRUN = '#!/bin/sh\necho "torchrun $*"; sleep 0.2\n'
JOB = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": os.uname().nodename,
    "SLURM_NNODES": "1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_TASKS_PER_NODE": "2",
    "SLURM_NTASKS": "2",
    "SLURMD_NODENAME": os.uname().nodename,
}


@pytest.fixture(scope="module")
def programs(runner: Runner) -> Path:
    """Stand-ins for launchers, on the user's PATH."""
    folder = runner.folder / "launchers"
    folder.mkdir()
    (folder / "srun").write_text(SRUN)
    (folder / "srun").chmod(0o755)
    return give_to(runner, folder)


@pytest.fixture(scope="module")
def image(runner: Runner) -> str:
    folder = make_sandbox(runner.folder / "image")
    (folder / "bin/torchrun").write_text(TORCHRUN)
    (folder / "bin/torchrun").chmod(0o755)
    return str(give_to(runner, folder))


def expect_hidden(spy: Spy, *words: str) -> None:
    assert spy.find("rank"), "the spy saw no rank"
    assert spy.tokens, "no token was to be found, not even by root"
    for word in (*spy.tokens, *words):
        assert not spy.find(word), f"everybody saw {word!r}"


WAYS = {
    "this host": (("--tasks", "2", "--ranks"), {}),
    "srun": (("--launcher", "srun", "--ranks"), JOB),
    "srun, packed words": (("--launcher", "srun", "--ranks"), JOB),
}


@pytest.mark.parametrize("way", WAYS)
def test_command_lines_do_not_show_it(runner: Runner, programs: Path, image: str, way: str) -> None:
    options, job = WAYS[way]
    variables = {**job, "PATH": f"{programs}:/usr/bin:/bin", "HF_TOKEN": SECRET}
    words = ("sh", "-c", "sleep 1; echo $HF_TOKEN", *([":"] if "packed" in way else []))
    with watched_command_lines() as spy:
        done = runner.run("launch", *options, image, *words, env={**variables, **spy.variables})
    assert done.stdout == f"{SECRET}\n" * 2, done.stderr
    expect_hidden(spy, SECRET)
    assert not any(token.decode() in done.stdout + done.stderr for token in spy.tokens)


def test_torchrun_does_not_show_it(runner: Runner, image: str) -> None:
    words = ("launch", "--contract", "elastic", "--processes", "2", image, "train.py")
    with watched_command_lines() as spy:
        for _ in range(30):  # the process that has the token soon becomes torchrun, and a busy machine looks rarely
            done = runner.run(*words, env={"HF_TOKEN": SECRET, **spy.variables})
            assert "torchrun --nnodes=" in done.stdout, done.stderr
            if spy.tokens and spy.find("rank"):
                break
    expect_hidden(spy, SECRET)


def test_a_launcher_that_hands_no_variables_on_starts_ranks(runner: Runner, programs: Path, image: str) -> None:
    forgetful = programs / "forgetful"
    forgetful.mkdir(exist_ok=True)
    (forgetful / "srun").write_text(SRUN.replace('"$@"', 'env -u KEDGE_LAUNCH_TOKEN "$@"'))
    (forgetful / "srun").chmod(0o755)
    variables = {**JOB, "PATH": f"{forgetful}:/usr/bin:/bin"}
    done = runner.run("launch", "--launcher", "srun", "--ranks", image, "sh", "-c", "echo $RANK", env=variables)
    assert sorted(done.stdout.splitlines()) == ["0", "1"], done.stderr


def test_the_port_cannot_be_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from the job's id nor from the number of its launches."""
    monkeypatch.setattr(surroundings, "find_private_directory", lambda: str(tmp_path))
    first = [surroundings.take_number(f"slurm-{number}-") for number in range(40)]
    assert len(set(first)) > 35
    assert surroundings.take_number("slurm-0-") == first[0] + 1  # and not at the port of the launch before


def test_the_port_of_a_job_s_script_cannot_be_told(runner: Runner) -> None:
    words = ("submit", "--dry-run", "--site", "nvidia-pyxis", "--torchrun", "--nodes", "2", "--gpus", "1")
    done = runner.run(*words, "--time", "5m", "docker://a/b", "train.py")
    line = re.search(r"export MASTER_PORT=(.*)", done.stdout)
    assert line is not None, done.stdout + done.stderr
    script = ["bash", "-c", f"SLURM_JOB_ID=7; echo {line[1]}"]
    ports = {int(subprocess.run(script, capture_output=True, check=True).stdout) for _ in range(20)}
    assert len(ports) > 15
    assert all(20_000 <= port < 32_000 for port in ports)
