# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of one launch share one container: real namespaces, processes that are killed, memory that is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.container.options import RunOptions
from kedge.container.processes import rank_sharing
from kedge.container.processes.rank_sharing import find_launch, has_companions, make_key
from kedge.system.spawn import start_of
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.rows import each_row
from tests.programs import read_program
from tests.requirements import require_user_namespaces

# A rank in small: joins, or makes the namespaces and a mount, and becomes a program that reports and waits.
RANK = read_program("rank_that_shares_namespaces")
REPORT = """
import os, sys
assert os.path.exists(sys.argv[1] + "/mounted")
print(os.getpid(), os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/user"), flush=True)
sys.stdin.read()
"""
# Reads a word of its own from the other process, at the address that the other says.
READER = read_program("read_memory_of_a_neighbour")

Rank = subprocess.Popen[str]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    """Starts ranks; all that still live are ended afterwards."""
    require_user_namespaces()
    started: list[Rank] = []

    def start(key: str, code: str = REPORT, kind: str = "") -> Rank:
        (tmp_path / "mount").mkdir(exist_ok=True)
        rank = subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path / "mount"), key, "built", kind, code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(rank)
        return rank

    yield start
    for rank in started:
        rank.kill()
        rank.communicate()


@pytest.fixture
def key() -> str:
    return f"test {uuid.uuid4()}"


def read_line(rank: Rank) -> str:
    line = rank.stdout.readline().strip()
    assert line or rank.poll() is None, rank.communicate()[1]
    return line


def write_line(rank: Rank, text: str) -> None:
    rank.stdin.write(text + "\n")
    rank.stdin.flush()


def end(rank: Rank) -> str:
    """Let a rank end; what it said on standard error."""
    _, errors = rank.communicate(timeout=30)
    assert rank.returncode == 0, errors
    return errors


def record_of(key: str) -> Path:
    folder = Path(rank_sharing.find_private_directory()) / "sharing"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / rank_sharing.make_digest(key)


def test_sharing_ranks_have_one_container(ranks: Callable[..., Rank], key: str) -> None:
    started = [ranks(key) for _ in range(8)]
    seen = {tuple(read_line(rank).split()[1:]) for rank in started}
    assert len(seen) == 1, "all in one mount and one user namespace"
    assert "".join(end(rank) for rank in started).count("built") == 1
    assert seen != {tuple(str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("mnt", "user"))}


@pytest.mark.parametrize(("other", "said"), [("", "from rank"), (" other", "Operation not permitted")])
def test_sharing_ranks_of_one_key_read_each_others_memory(ranks, key, other, said):
    first, second = ranks(key, READER), ranks(key + other, READER)
    places = [read_line(rank) for rank in (first, second)]
    write_line(first, places[1])
    assert read_line(first) == said


def test_sharing_first_rank_may_end_early(ranks: Callable[..., Rank], key: str) -> None:
    first, second = ranks(key), None
    names = read_line(first).split()[1:]
    second = ranks(key)
    assert read_line(second).split()[1:] == names
    end(first)
    third = ranks(key)
    assert read_line(third).split()[1:] == names
    assert "built" not in end(third)


def test_sharing_container_is_built_anew_when_all_have_ended(ranks: Callable[..., Rank], key: str) -> None:
    first = ranks(key)
    read_line(first)
    assert "built" in end(first)
    second = ranks(key)
    read_line(second)
    assert "built" in end(second)


@pytest.mark.parametrize("kind", ["a number used again", "a member that went elsewhere"])
def test_sharing_who_is_no_member_is_not_joined(ranks: Callable[..., Rank], key: str, kind: str) -> None:
    own, began = os.getpid(), start_of(os.getpid())
    mounts = Path("/proc/self/ns/mnt").stat().st_ino
    stale = f"{own} {began + 1} {mounts} \n99999999 1 1 \ngarbage\n{own}\n"
    elsewhere = f"{own} {began} 1 a note\n"  # lives, but in another mount namespace
    record_of(key).write_text(stale if "number" in kind else elsewhere)
    first = ranks(key)
    read_line(first)
    assert "built" in end(first)


def test_sharing_builder_killed_with_the_lock_is_replaced(ranks: Callable[..., Rank], key: str, tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    slow = tmp_path / "mount" / "slow"
    slow.touch()
    first = ranks(key)
    assert read_line(first) == "building"
    slow.unlink()
    others = [ranks(key) for _ in range(3)]
    time.sleep(0.3)
    assert all(other.poll() is None for other in others), "they wait"
    first.send_signal(signal.SIGKILL)
    assert len({tuple(read_line(rank).split()[1:]) for rank in others}) == 1
    assert "".join(end(rank) for rank in others).count("built") == 1


def test_sharing_with_process_namespace_outlasts_the_first(ranks: Callable[..., Rank], key: str) -> None:
    first = ranks(key, kind="pid")
    names = read_line(first).split()
    second = ranks(key, kind="pid")
    seen = read_line(second).split()
    assert seen[1:] == names[1:]
    assert (int(names[0]), int(seen[0])) == (2, 3), "numbers of one namespace"
    first.stdin.close()
    time.sleep(0.5)
    assert second.poll() is None, "the first one's end did not take it along"
    end(second)
    first.stdin = None
    first.communicate(timeout=20)
    assert first.returncode == 0


def test_sharing_records_of_the_dead_are_swept(ranks: Callable[..., Rank], key: str) -> None:
    old, live = record_of(key + " old"), record_of(key + " live")
    old.write_text("99999999 1 1 \n")
    live.write_text(f"{os.getpid()} {start_of(os.getpid())} 1 \n")
    read_line(ranks(key))
    assert not old.exists()
    assert live.exists()
    live.unlink()


def test_sharing_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    for place in (bad, good):
        place.mkdir()
    (bad / f"kedge-{os.getuid()}").symlink_to(tmp_path)
    monkeypatch.setattr(rank_sharing, "_PLACES", (str(tmp_path / "missing"), str(bad), str(good)))
    assert rank_sharing.find_private_directory() == f"{good}/kedge-{os.getuid()}"
    (good / f"kedge-{os.getuid()}").chmod(0o777)
    with pytest.raises(Exception, match="a private directory in memory"):
        rank_sharing.find_private_directory()


@each_row(
    ("environ", "expected"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}, "SLURM_JOB_ID=7 SLURM_STEP_ID=1"),
        (
            {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "PMIX_NAMESPACE": "slurm.pmix.7.1"},
            "PMIX_NAMESPACE=slurm.pmix.7.1",
        ),
        ({"OMPI_MCA_ess_base_jobid": "99", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "OMPI_MCA_ess_base_jobid=99"),
        ({"FLUX_JOB_ID": "f1", "FLUX_TASK_RANK": "3"}, "FLUX_JOB_ID=f1"),
    ],
)
def test_sharing_launch_is_told_by_its_name(environ: dict[str, str], expected: str) -> None:
    assert find_launch(environ) == expected


@each_row(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "7"},  # a batch script: several launches may come from it
        {"PBS_JOBID": "7.server"},
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "MPI_LOCALRANKID": "0"},  # MPICH's mpirun in an interactive step
    ],
)
def test_sharing_launch_without_a_name_is_told_by_the_parent(environ: dict[str, str]) -> None:
    parent = os.getppid()
    assert find_launch(environ) == f"parent {parent} {start_of(parent)}"


def test_sharing_launch_of_hydra_is_known_below_a_script() -> None:
    """Nothing names such a launch; the first process above that has no rank's variables is the launcher's."""
    code = "import os; from kedge.container.processes.rank_sharing import find_launch; print(find_launch(os.environ))"
    ranks = [
        subprocess.run(
            ["/bin/sh", "-c", f'{script} "$0" -c "$1"; exit $?', sys.executable, code],
            env={**os.environ, "MPI_LOCALRANKID": str(rank)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for rank, script in enumerate(["", '/bin/sh -c \'"$0" "$@"; exit $?\''])
    ]
    assert ranks == [f"parent {os.getpid()} {start_of(os.getpid())}"] * 2


@each_row(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, True),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "8"}, False),
        ({"MPI_LOCALNRANKS": "2"}, True),
        ({"SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),1"}, True),
        ({"SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x16)"}, False),
        ({"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "8"}, False),  # a batch script is no rank
        ({"FLUX_JOB_SIZE": "8", "FLUX_JOB_NNODES": "2"}, True),
        ({"FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "2"}, False),
        ({"MPI_LOCALNRANKS": "many"}, False),
    ],
)
def test_sharing_launchers_say_whether_there_are_companions(environ: dict[str, str], expected: bool) -> None:
    assert has_companions(environ) is expected


def test_sharing_key_is_of_what_shapes_the_container() -> None:
    def key(environ: dict[str, str] | None = None, cwd: str = "/", image: str = "i", **values: object) -> str:
        return make_key(RunOptions(**values), image, environ or {}, cwd)

    base = key()
    same = [key(verb="run"), key(arguments=["a"]), key(env=["A=1"]), key(pwd="/x"), key({"RANK": "1"}), key(verbose=1)]
    assert set(same) == {base}
    others = [
        *(key(bind=["/a"]), key(nv=True), key(contain=True), key(pid=True), key(cwd="/x"), key(image="j")),
        *(key({"APPTAINER_BIND": "/a"}), key({"HOME": "/x"}), key(overlay=["/o"]), key(home="/h")),
    ]
    assert len({*others, base}) == len(others) + 1
    assert key({"NVIDIA_VISIBLE_DEVICES": "1"}) == base
    assert key({"NVIDIA_VISIBLE_DEVICES": "1"}, contain=True) != key({"NVIDIA_VISIBLE_DEVICES": "0"}, contain=True)


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(getattr(request, "param", "user"))


@pytest.mark.parametrize(
    ("runner", "flags"),
    [("user", []), ("user", ["--pid"]), ("user", ["--fakeroot", "--pid"]), ("root", [])],
    indirect=["runner"],
)
def test_sharing_ranks_of_the_command_have_one_container(runner: Runner, flags: list[str]) -> None:
    image = give_to(runner, make_sandbox(runner.folder / "image"))
    script = "readlink /proc/self/ns/mnt; readlink /proc/self/ns/user; readlink /proc/self/ns/pid; cat; exit 3"

    def start() -> Rank:
        words = ("exec", "--sharens", *flags, str(image), "sh", "-c", script)
        return runner.start(*words, pipes="stdin stdout")

    first = [start() for _ in range(4)]
    seen = {tuple(read_line(rank) for _ in range(3)) for rank in first}
    if len(flags) == 2:  # what was built is one container; the program of each has namespaces below it
        seen = {namespaces[2:] for namespaces in seen}
    assert len(seen) == 1
    if not flags:  # a process-id namespace waits for the last, so that ranks end together
        for rank in first[1:]:
            assert rank.communicate(timeout=30)
            assert rank.returncode == 3
        late = start()
        assert {tuple(read_line(late) for _ in range(3))} == seen
        first = [first[0], late]
    for rank in first:
        rank.stdin.close()
        rank.stdin = None
    for rank in first:
        rank.communicate(timeout=30)
        assert rank.returncode == 3


@pytest.mark.parametrize(
    ("flags", "expected"),
    [([], 1), (["--sharens=false"], 2), (["--contain"], 2), (["--writable-tmpfs"], 2), (["--pid"], 2)],
)
def test_sharing_ranks_of_a_launcher_share_unasked(runner: Runner, flags: list[str], expected: int) -> None:
    """Who asks for something of its own has it."""
    image = give_to(runner, make_sandbox(runner.folder / "image"))
    words = ("exec", *flags, str(image), "sh", "-c", "readlink /proc/self/ns/mnt; cat")
    env = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_ess_base_jobid": "7"}
    ranks = [runner.start(*words, env=env, pipes="stdin stdout") for _ in range(2)]
    assert len({read_line(rank) for rank in ranks}) == expected
    for rank in ranks:
        rank.communicate(timeout=30)
        assert rank.returncode == 0
