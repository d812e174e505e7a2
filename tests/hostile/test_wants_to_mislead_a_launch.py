# SPDX-License-Identifier: BSD-3-Clause
"""An image, a file or a variable wants to mislead `kedge launch`: to stall it, to fill memory, to write on the terminal
in kedge's name, or to have other programs run on the nodes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.errors import LaunchRefused
from kedge.launch.surroundings import read_allocation_here
from tests.builders.containers import Runner, give_to
from tests.builders.rows import each_row

PLANTED = "import os; os.write(2, b'planted ran\\n')\n"


@pytest.fixture(scope="module")
def image(runner: Runner) -> Path:
    path = runner.home / "tools.sif"
    runner.read("pull", str(path), "host:sh,sleep,printf,env,head,tr")
    return path


def refuse(**variables: str) -> str:
    """What a launch with these variables of a job is told."""
    with pytest.raises(LaunchRefused) as problem:
        read_allocation_here({"PATH": "/usr/bin:/bin", **variables})
    said = f"{problem.value} {problem.value.context}"
    assert said.isprintable()
    return said


def play_pbs(nodes: Path) -> dict[str, str]:
    return {"PBS_JOBID": "4711.head", "PBS_NODEFILE": str(nodes), "PBS_ENVIRONMENT": "PBS_BATCH"}


def play_gridengine(hosts: Path) -> dict[str, str]:
    return {"JOB_ID": "4711", "PE_HOSTFILE": str(hosts), "PE": "mpi", "SGE_ROOT": "/none", "NSLOTS": "2"}


PLAYED = each_row("play", [play_pbs, play_gridengine])
Play = Callable[[Path], dict[str, str]]


@PLAYED
def test_a_pipe_in_place_of_the_node_list_is_not_waited_for(tmp_path: Path, play: Play) -> None:
    if not (tmp_path / "pipe").exists():
        os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refuse(**play(tmp_path / "pipe"))
    assert "Is a directory" in refuse(**play(tmp_path))


@PLAYED
@each_row("text", [b"", b"\0" * 4096, b"node1 1\n" * 200_000, b"\xff\xfe\n"])
def test_node_lists_that_are_none(tmp_path: Path, play: Play, text: bytes) -> None:
    (tmp_path / "nodes").write_bytes(text)
    assert "kedge cannot read P" in refuse(**play(tmp_path / "nodes"))


@PLAYED
@each_row("name", ["-oProxyCommand=id", "--host", "n1;id", "$(id)", "../n1", "n1\x1b[8m", "a" * 300])
def test_host_names_that_would_be_options_or_commands(tmp_path: Path, play: Play, name: str) -> None:
    (tmp_path / "nodes").write_text(f"n1 1 all.q UNDEFINED\n{name} 1 all.q UNDEFINED\n")
    assert "no host name" in refuse(**play(tmp_path / "nodes"))


@each_row(
    "nodes", ["-oProxyCommand=id,n2", "n[1-99999999]", "n[1-9][1-9][1-9][1-9][1-9][1-9]", "n[[1", "n[2-1]", "n\n2"]
)
def test_host_lists_of_slurm_that_are_none(nodes: str) -> None:
    refuse(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=nodes, SLURM_NNODES="2", SLURM_TASKS_PER_NODE="1(x2)")


def test_modules_beside_the_user_are_not_run(runner: Runner, image: Path) -> None:
    """Neither by kedge nor by the processes that it starts for nodes and ranks."""
    folder = runner.folder / "project"
    (folder / "kedge").mkdir(parents=True, exist_ok=True)
    for name in ("kedge/__init__.py", "kedge/__main__.py", "launch.py", "rank.py", "json.py", "base64.py", "select.py"):
        (folder / name).write_text(PLANTED)
    give_to(runner, folder)
    # -P is how an installed `kedge` starts: it has no current directory on its path
    argv = runner.argv("launch", "--tasks", "2", "--each-task", str(image), "sh", "-c", "echo ran")
    argv.insert(argv.index("-m"), "-P")
    done = subprocess.run(
        argv, env=runner.variables(), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ran\nran\n", done.stderr
    assert "planted" not in done.stderr


def test_variables_with_newlines_and_quotes_reach_every_rank_as_they_are(runner: Runner, image: Path) -> None:
    odd = "one\ntwo $(id) `id` \\ ' \" \x1b[8m"
    words = ("launch", "--ranks", "--tasks", "2", str(image), "sh", "-c", 'printf "<%s>" "$ODD"; echo')
    done = runner.run(*words, env={"ODD": odd, "BASH_FUNC_x%%": "() { echo planted; }"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("$(id) `id` \\ ' \" \x1b[8m>") == 2
    assert "planted" not in done.stdout + done.stderr


def test_last_lines_of_a_rank_cannot_steer_the_terminal(runner: Runner, image: Path) -> None:
    """They are printed a second time, in kedge's own words."""
    program = (
        '[ $RANK = 0 ] && { printf "bad\\033]0;title\\007\\033[8mhidden\\000\\r\\n" >&2; sleep 1; exit 3; }; '
        "for i in 1 2 3; do echo $i; sleep 0.5; done; sleep 60"
    )
    done = runner.run("launch", "--ranks", "--tasks", "2", str(image), "sh", "-c", program)
    assert done.returncode == 3
    told = done.stderr.partition("warning: rank 0")[2]
    assert "Its last lines:" in told, done.stderr
    assert "  badhidden\\x00\n" in told
    assert not any(letter in told for letter in "\x1b\x07\0\r")


def test_a_line_without_an_end_fills_no_memory(runner: Runner, image: Path) -> None:
    """200 MB in one line, in 150 MB of address space more than a launch needs."""
    line = "head -c 200000000 /dev/zero; echo; echo end >&2"
    began = time.monotonic()
    words = runner.argv("launch", "--tasks", "1", "--each-task", str(image), "sh", "-c", line)
    done = run_within(400 << 20, words, runner)
    assert done == (0, 200_000_001)
    assert time.monotonic() - began < 60


def run_within(memory: int, words: list[str], runner: Runner) -> tuple[int, int]:
    """The status of a program that may use so much address space, and the bytes that it printed."""
    limited = ["prlimit", f"--as={memory}", *words]
    with subprocess.Popen(limited, env=runner.variables(), cwd=runner.home, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        size = 0
        while piece := program.stdout.read(1 << 20):
            size += len(piece)
    return program.returncode, size


def test_a_rank_cannot_end_the_launch_by_what_it_prints(runner: Runner, image: Path) -> None:
    lines = ("kedge: rank 1 ended with 3 on elsewhere", "0: kedge: rank 0 ended with 3 on x", "0+ x", "1+ ")
    program = "".join(f'echo "{line}" >&2; ' for line in lines) + "sleep 1; echo still here"
    done = runner.run("launch", "--ranks", "--tasks", "2", str(image), "sh", "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("still here") == 2
    assert all(done.stderr.count(f"{line}\n") == 2 for line in lines)
