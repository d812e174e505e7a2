# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch` on one host without a scheduler, as an ordinary user: tasks, ranks, real Open MPI and MPICH."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kedge.errors import LaunchFailed, LaunchRefused, UsageError
from tests.builders.containers import Runner, warm_runner
from tests.builders.mpi_images import launch_words, make_mpi_image
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program
from tests.wording import assert_says

runner = warm_runner
LONG = "543.25"  # seconds that a rank would sleep
SHOW = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK on node $NODE_RANK at $MASTER_ADDR:$MASTER_PORT"'
RING = REPOSITORY / "tests/interop/mpi_ring.c"


@pytest.fixture(scope="module")
def image(runner: Runner) -> Path:
    path = runner.home / "tools.sif"
    runner.read("pull", str(path), "host:sh,sleep,readlink")
    return path


def launch(runner: Runner, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = runner.run("launch", *words)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stdout + done.stderr
    return done


def count_sleepers() -> int:
    found = 0
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += place.read_bytes().endswith(f"sleep\0{LONG}\0".encode()) and b"kedge" not in place.read_bytes()
        except OSError:
            continue
    return found


def wait_for_sleepers(number: int) -> None:
    end = time.monotonic() + 60
    while count_sleepers() != number:
        assert time.monotonic() < end, f"{count_sleepers()} sleep, not {number}"
        time.sleep(0.1)


def make_ring(runner: Runner, family: str) -> str:
    program = runner.home / f"ring-{family}"
    if not program.exists():
        compiler = require_program(f"mpicc.{family}")
        subprocess.run([compiler, "-O1", "-o", str(program), str(RING)], check=True, capture_output=True)
        program.chmod(0o755)
    return str(program)


def test_tasks_are_ranks_of_one_container(runner: Runner, image: Path) -> None:
    (runner.home / "met").mkdir()
    (runner.home / "met").chmod(0o777)
    # a rank that ends before the next one starts shares its container with nobody
    meet = "cd met; : > $RANK; until [ -e 0 ] && [ -e 1 ] && [ -e 2 ]; do sleep 0.1; done"
    words = f"{SHOW}; readlink /proc/self/ns/mnt; {meet}"
    done = launch(runner, "--tasks", "3", "--ranks", str(image), "sh", "-c", words)
    said = done.stdout.splitlines()
    ranks = sorted(line for line in said if " of " in line)
    assert [line.partition(" at ")[0] for line in ranks] == [f"{rank} of 3, {rank} on node 0" for rank in range(3)]
    assert len({line.partition(" at ")[2] for line in ranks}) == 1
    assert len({line for line in said if line.startswith("mnt:")}) == 1


def test_lines_can_be_labelled_by_their_rank(runner: Runner, image: Path) -> None:
    done = launch(runner, "--label", "--tasks", "2", "--each-task", str(image), "sh", "-c", "echo hello")
    assert sorted(done.stdout.splitlines()) == ["0: hello", "1: hello"]


def test_the_first_rank_that_fails_decides(runner: Runner, image: Path) -> None:
    program = f'[ $RANK = 1 ] && {{ echo "no such data" >&2; sleep 1; exit 9; }}; echo fine; exec sleep {LONG}'
    began = time.monotonic()
    done = launch(runner, "--tasks", "3", "--ranks", str(image), "sh", "-c", program, status=9)
    assert time.monotonic() - began < 30
    assert re.search(r"rank 1 on \S+ failed with status 9; the other ranks were ended", done.stderr)
    assert "no such data" in done.stderr
    assert count_sleepers() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_launch_that_is_ended(runner: Runner, image: Path, number: signal.Signals) -> None:
    argv = runner.argv("launch", "--tasks", "3", "--each-task", str(image), "sleep", LONG)
    program = subprocess.Popen(
        argv, env=runner.variables(), cwd=runner.home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    wait_for_sleepers(3)
    program.send_signal(number)
    program.communicate(timeout=30)
    assert program.returncode in (128 + number, -number)
    wait_for_sleepers(0)


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_ranks_of_mpi_find_each_other(runner: Runner, family: str) -> None:
    image, ring = make_mpi_image(runner, family), make_ring(runner, family)
    done = launch(runner, "-v", "--tasks", "3", str(image), ring)
    assert sorted(re.findall(r"rank (\d+) of (\d+) .* ring (\w+)", done.stdout)) == [
        (str(rank), "3", "ok") for rank in range(3)
    ]
    assert_says(done.stderr, "launch/world-check-ranks-found-each", 3)


@pytest.mark.parametrize(
    ("family", "launcher"),
    [
        *(("mpich", "mpirun"), ("openmpi", "local")),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in (("openmpi", "mpiexec"), ("mpich", "local"))),
    ],
)
def test_pairs_that_make_silent_singletons_are_refused(runner: Runner, family: str, launcher: str) -> None:
    require_program("mpirun.mpich")  # else mpiexec is Open MPI's, and fits
    image, ring = make_mpi_image(runner, family), make_ring(runner, family)
    done = launch(runner, "--tasks", "2", "--launcher", launcher, str(image), ring, status=LaunchRefused.exit_code)
    assert "rank 0 of 1" in done.stderr
    assert "ring" not in done.stdout


def test_a_rank_that_hangs_before_the_check_is_named(runner: Runner) -> None:
    """Its MPI waits for a network that does not answer."""
    image, ring = make_mpi_image(runner, "mpich"), make_ring(runner, "mpich")
    words = ("--check-timeout", "0.01", "--tasks", "2", str(image), ring)
    done = launch(runner, *words, status=LaunchFailed.exit_code)
    assert_says(done.stderr, "launch/world-check-did-not-end-within")


def test_a_dry_run_starts_nothing_and_shows_every_rank(runner: Runner, image: Path) -> None:
    words = ("--dry-run", "--json", "--tasks", "2", "--ranks", "-B", "/tmp:/data", str(image), "sleep", LONG)
    plan = json.loads(launch(runner, *words).stdout)
    assert plan["launcher"] == "local"
    assert [rank["environment"]["RANK"] for rank in plan["ranks"]] == ["0", "1"]
    assert plan["ranks"][0]["argv"][1:4] == ["exec", "--bind", "/tmp:/data"]
    shown = launch(runner, "--dry-run", "--tasks", "2", "--ranks", str(image), "sleep", LONG).stdout
    assert "# rank 1 of 2, on " in shown
    assert "RANK=1" in shown
    assert count_sleepers() == 0


def test_a_dry_run_does_not_show_secrets(runner: Runner, image: Path) -> None:
    words = ("--env", "API_KEY=tell-nobody", "--env", "COLOUR=blue", str(image), "tool", "--password", "tell-nobody")
    for form in ((), ("--json",)):
        said = launch(runner, "--dry-run", *form, "--tasks", "2", "--ranks", *words).stdout
        assert "tell-nobody" not in said
        assert said.count("API_KEY=***") == said.count("COLOUR=blue") >= 3


def test_a_launch_within_a_launch_is_refused(runner: Runner, image: Path) -> None:
    variables = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    done = runner.run("launch", "--each-task", str(image), "true", env=variables)
    assert done.returncode == LaunchRefused.exit_code
    assert "kedge launch was itself started as a rank" in done.stderr


@each_row("words", [("--tasks", "0"), ("--launcher", "aprun"), ("--check-timeout", "x"), ("--nodes", "-1")])
def test_mistakes_are_named(runner: Runner, image: Path, words: tuple[str, str]) -> None:
    done = launch(runner, *words, str(image), "true", status=UsageError.exit_code)
    assert words[1] in done.stderr


@each_row("words", [(), ("x",), ("{}", "--", "exec"), ("--packed", "eyJhIjogMX0=")])  # {"a": 1}
def test_rank_says_that_launches_start_it(runner: Runner, words: tuple[str, ...]) -> None:
    done = runner.run("rank", *words)
    assert done.returncode == 255, done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    assert_says(done.stderr, "launch/use-launch-starts")


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_a_job_of_pbs_reaches_other_nodes_without_ssh(runner: Runner, family: str) -> None:
    """By the program of PBS for that, here one that runs the words on this host; ssh is not there to be called."""
    image = make_mpi_image(runner, family)
    folder = runner.home / f"pbs-{family}"
    folder.mkdir()
    launcher = launch_words(family, 1)[0]
    (folder / ("mpirun" if family == "openmpi" else "mpiexec")).symlink_to(launcher)
    for name, line in (
        ("pbs_tmrsh", f'echo "$1" >>{folder}/asked; shift; exec "$@"'),
        ("ssh", f"touch {folder}/called"),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    folder.chmod(0o777)
    told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    # Open MPI 5 takes no localhost in a job; then kedge sees that the other node is this one
    here = os.uname().nodename if "(Open MPI) 5" in told else "localhost"
    (folder / "nodes").write_text(f"{here}\n{here}\nloopback.invalid\n")
    job = {"PBS_JOBID": "4711.head", "PBS_NODEFILE": str(folder / "nodes"), "PBS_ENVIRONMENT": "PBS_BATCH"}
    words = ("--ranks", "--no-check", str(image), "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    done = runner.run("launch", *words, env={**job, "PATH": f"{folder}:/usr/bin:/bin"})
    if here == "localhost":
        assert done.returncode == 0, done.stdout + done.stderr
        assert sorted(done.stdout.split("\n")[:-1]) == [f"rank {rank} of 3" for rank in range(3)]
    else:
        assert_says(done.stderr, "launch/started-rank-planned", 2, here, "loopback.invalid")
    assert "loopback.invalid" in (folder / "asked").read_text().split()
    assert not (folder / "called").exists()
