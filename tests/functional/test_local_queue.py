# SPDX-License-Identifier: BSD-3-Clause
"""The queue of this machine, through its commands: real scripts, real signals, real kills. Needs nothing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.jobs.local.host_resources import read_machine
from kedge.jobs.local.queue_files import LocalQueue
from kedge.system.file_locks import is_locked
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge
from tests.requirements import REPOSITORY

PATIENCE = 40.0
OVER = {"done", "failed", "cancelled", "timeout", "out of memory", "node failed", "lost"}
HOSTILE = "a 'b' \"c\" $(touch pwned) `id` \\ ; & | * ? ~ # %j {id} äöü 日本 \t\n line two\n"


class Machine:
    """A queue of its own, and the command that speaks to it."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.queue = LocalQueue(folder / "queue")
        self.environ = {**os.environ, "KEDGE_LOCAL_QUEUE": str(self.queue.root), "PYTHONPATH": str(REPOSITORY / "src")}
        self.environ |= {"KEDGE_LOCAL_GPUS": "0", **variables}

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "kedge", "local-queue", *words]

    def call(self, *words: str, status: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        environ, input = options.get("env", self.environ), options.get("input")
        done = run_kedge(["local-queue", *words], environment=environ, folder=self.folder, input=input)
        assert status is None or done.returncode == status, done.stderr
        return done

    def write(self, text: str, *directives: str, name: str = "job.sh") -> Path:
        path = self.folder / name
        lines = [f"#KEDGE {each}" for each in ("--output={id}_{index}.out", *directives)]
        path.write_text("\n".join(["#!/bin/bash", *lines, text]) + "\n")
        return path

    def submit(self, text: str, *directives: str, arguments: tuple[str, ...] = (), **options: Any) -> str:
        return self.call("submit", str(self.write(text, *directives)), *arguments, **options).stdout.strip()

    def list_jobs(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.call("list", "--json", *words).stdout)["jobs"]
        return found

    def show(self, id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.call("show", "--json", id).stdout)["jobs"]
        return found

    def wait(self, id: str, until: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
        """The first entry, once all of them are over or `until` is true of the first."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self.show(id)
            if until is None and all(each["state"] in OVER for each in found):
                return found[0]
            if until is not None and until(found[0]):
                return found[0]
            assert time.monotonic() < end, f"{found}\n{self.read_log()}"
            self.pause(id, 0.15 if until else 1)

    def pause(self, id: str, most: float) -> None:
        """Until the job's directory has left the queue, or so long: a question to the queue costs more than a look."""
        end = time.monotonic() + most
        time.sleep(0.05)
        while (self.queue.active / id).exists() and time.monotonic() < end:
            time.sleep(0.05)

    def wait_running(self, id: str) -> dict[str, Any]:
        entry = self.wait(id, lambda each: each["state"] == "running")
        self.wait_file(self.queue.active / id / "running", "begun")
        return entry

    def wait_file(self, path: Path, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while not (path.exists() and text in path.read_text()):
            assert time.monotonic() < end, f"{path}\n{self.read_log()}"
            time.sleep(0.05)

    def read_log(self) -> str:
        return self.queue.log.read_text() if self.queue.log.exists() else ""

    def output(self, id: str, index: int | None = None) -> str:
        return (self.folder / f"{id}_{'' if index is None else index}.out").read_text()

    def read_task(self, id: str) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for line in (self.queue.active / id / "running").read_text().splitlines():
            fields |= json.loads(line)
        return fields

    def find_holders(self, path: Path) -> list[int]:
        """The processes that have a file open, which are its runner alone."""
        holders = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdecimal() and any(
                    file.resolve() == path for file in (process / "fd").iterdir() if file.is_symlink()
                ):
                    holders.append(int(process.name))
        return holders

    def end(self) -> None:
        """Leave nothing running."""
        if self.queue.exists:
            ids = [str(job.id) for job in self.queue.list_active()]
            if ids:
                self.call("cancel", *ids, status=None)
            end = time.monotonic() + PATIENCE
            while ids and (active := self.queue.list_active()) and time.monotonic() < end:
                self.pause(str(active[0].id), 1)
                self.call("list", status=None)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.end()
    assert made.read_log() == ""  # no process in the background had a complaint


@pytest.fixture
def gpu_machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, KEDGE_LOCAL_GPUS="2")
    yield made
    made.end()


def test_submit_runs_a_script_and_says_how_it_ended(machine: Machine) -> None:
    id = machine.submit('echo "$KEDGE_LOCAL_JOB_ID in $PWD"; echo trouble >&2')
    assert id == "1"
    bad, killed = machine.submit("exit 3"), machine.submit("kill -9 $$")
    entry = machine.wait(id)
    assert (entry["state"], entry["exit_code"], entry["signal"]) == ("done", 0, None)
    assert machine.output(id) == f"1 in {machine.folder}\ntrouble\n"
    assert entry["submitted"] <= entry["started"] <= entry["ended"]
    assert dict(entry["details"])["output"] == str(machine.folder / "1_.out")
    assert machine.wait(bad)["exit_code"] == 3
    entry = machine.wait(killed)
    assert (entry["state"], entry["exit_code"], entry["signal"]) == ("failed", None, 9)


def test_submit_keeps_the_script_and_the_environment_of_that_moment(machine: Machine) -> None:
    first = machine.submit("sleep 0.5; echo first $FLAVOUR", env={**machine.environ, "FLAVOUR": "sweet"})
    machine.write("echo second")
    machine.wait(first)
    assert machine.output(first) == "first sweet\n"
    secret = machine.queue.ended / first / "environment"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert machine.queue.root.stat().st_mode & 0o777 == 0o700


def test_submit_carries_hostile_text_unchanged(machine: Machine) -> None:
    raw = os.fsdecode(b"\xff\xfe")
    script = machine.write(
        f'{shlex.quote(sys.executable)} -c {shlex.quote(_PRINT)} "$@"', f"--name={json.dumps(HOSTILE)}"
    )
    environ = {**machine.environ, "HOSTILE": HOSTILE + raw, "PYTHONUTF8": "1"}
    id = machine.call("submit", str(script), HOSTILE, "", raw, env=environ).stdout.strip()
    entry = machine.wait(id)
    assert entry["state"] == "done"
    assert entry["name"] == HOSTILE
    words, variable = json.loads(machine.output(id))
    assert words == [HOSTILE, "", raw]
    assert variable == HOSTILE + raw
    assert not (machine.folder / "pwned").exists()


_PRINT = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['HOSTILE']]))"


def test_submit_lets_the_command_line_beat_the_script(machine: Machine) -> None:
    script = machine.write("true", "--time=1:00:00", "--name=script")
    id = machine.call("submit", "--name", "mine", "--time=2h", str(script)).stdout.strip()
    entry = machine.show(id)[0]
    assert (entry["name"], entry["time_limit"]) == ("mine", 7200)


@each_row(
    "directive, status, says",
    [
        ("--gpus=3", 71, "this host has none"),
        ("--cpus=100000", 71, "this host allows"),
        ("--memory=900T", 71, "this host allows"),
        ("--tiem=3", 70, "has no option --tiem"),
        ("--time=3", 70, "'3' has no unit"),
        ("time 3", 70, "line 3"),
        ("--after=77", 73, "no job '77'"),
        ("--directory=/nowhere/at/all", 30, "/nowhere/at/all"),
        ("--array=5-1", 70, "counts down"),
    ],
)
def test_submit_refuses_and_leaves_nothing(machine: Machine, directive: str, status: int, says: str) -> None:
    done = machine.call("submit", str(machine.write("true", directive)), status=status)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert machine.list_jobs() == []
    assert not machine.queue.exists or [path.name for path in machine.queue.root.glob("draft*")] == []


def test_submit_refuses_what_is_no_script(machine: Machine) -> None:
    (machine.folder / "program").write_bytes(b"\x7fELF\0\0")
    assert "is not a script" in machine.call("submit", "program", status=70).stderr
    assert "program-not-here" in machine.call("submit", "program-not-here", status=30).stderr


def test_submit_of_a_folder_that_goes_away_says_so(machine: Machine) -> None:
    place, gone = machine.folder / "place", machine.folder / "gone"
    place.mkdir()
    first = machine.submit(f"until [ -e {gone} ]; do sleep 0.1; done", "--exclusive")
    second = machine.submit("true", f"--directory={place}", f"--output={machine.folder}/second.out")
    place.rmdir()
    gone.touch()
    machine.wait(first)
    entry = machine.wait(second)
    assert entry["state"] == "failed"
    assert str(place) in entry["reason"]
    assert str(place) in (machine.folder / "second.out").read_text()


def test_time_limit_ends_all_processes(machine: Machine) -> None:
    """Those that hang up does not reach, and those that do not hear."""
    id = machine.submit("(trap '' HUP; setsid sleep 313) & sleep 313", "--time=1s")
    deaf = machine.submit("trap '' TERM; echo deaf; while :; do sleep 0.2; done", "--time=1s")
    began = time.monotonic()
    entry = machine.wait(id)
    assert entry["state"] == "timeout"
    assert "time limit of 1s" in entry["reason"]
    assert time.monotonic() - began < 60
    assert "is being stopped" in machine.output(id)
    assert not _find_processes("sleep\x00313")
    entry = machine.wait(deaf)
    assert (entry["state"], entry["signal"]) == ("timeout", 9)


def test_cancel_ends_a_running_job(machine: Machine) -> None:
    id = machine.submit("trap 'echo bye; exit 7' TERM; touch listening; sleep 301 & wait")
    machine.wait_file(machine.folder / "listening", "")
    machine.call("cancel", id)
    entry = machine.wait(id)
    assert (entry["state"], entry["exit_code"]) == ("cancelled", 7)
    assert "bye" in machine.output(id)
    machine.call("cancel", id)  # once more is no mistake
    assert "no job '99'" in machine.call("cancel", "99", status=73).stderr


def test_cancel_of_a_waiting_job(machine: Machine) -> None:
    first = machine.submit("sleep 302", "--exclusive")
    second = machine.submit("touch ran")
    assert machine.show(second)[0]["state"] == "queued"
    machine.call("cancel", second)
    assert machine.show(second)[0]["state"] == "cancelled"
    machine.call("cancel", first)
    assert machine.wait(first)["state"] == "cancelled"
    assert not (machine.folder / "ran").exists()


def test_cancel_can_send_a_signal(machine: Machine) -> None:
    id = machine.submit("trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 0.1; done")
    machine.wait_file(machine.folder / f"{id}_.out", "ready")
    machine.call("cancel", "--signal", "USR1", id)
    assert machine.wait(id)["state"] == "done"
    assert "heard" in machine.output(id)
    assert "unknown signal 'NONE'" in machine.call("cancel", "--signal", "NONE", id, status=2).stderr


def test_leftovers_and_greedy_processes_of_a_script_end(machine: Machine) -> None:
    grow = "import time; data = bytearray(200 << 20); time.sleep(300)"
    greedy = machine.submit(f"{shlex.quote(sys.executable)} -c '{grow}'", "--memory=100M")
    id = machine.submit("setsid nohup sleep 303 >/dev/null 2>&1 & sleep 0.2; echo done")
    assert machine.wait(id)["state"] == "done"
    assert not _find_processes("sleep\x00303")
    entry = machine.wait(greedy)
    assert entry["state"] == "out of memory"
    assert "requested 100M" in entry["reason"]


def test_jobs_wait_for_room_in_their_order(machine: Machine) -> None:
    text = "date +%s.%N; until [ -e go ]; do sleep 0.1; done; date +%s.%N"
    ids = [machine.submit(text, "--exclusive") for _ in range(3)]
    waiting = machine.show(ids[1])[0]
    assert (waiting["state"], waiting["reason"]) == ("queued", "Resources")
    assert dict(waiting["details"])["waits for"] == ids[0]
    assert machine.show(ids[2])[0]["reason"] == "Priority"
    (machine.folder / "go").touch()
    for id in ids:
        assert machine.wait(id)["state"] == "done"
    times = [[float(line) for line in machine.output(id).split()] for id in ids]
    assert times[0][1] <= times[1][0]
    assert times[1][1] <= times[2][0]


def test_array_runs_every_index_within_its_limit(machine: Machine) -> None:
    text = 'echo "$KEDGE_LOCAL_ARRAY_INDEX $(date +%s%N)"; sleep 0.3; date +%s%N'
    id = machine.submit(text, "--array=1,3,5-9:2%1")
    waiting = machine.show(id)[-1]
    assert waiting["pending_indices"]
    machine.wait(id)
    entries = machine.show(id)
    assert [each["index"] for each in entries] == [1, 3, 5, 7, 9]
    assert {each["state"] for each in entries} == {"done"}
    spans = []
    for index in (1, 3, 5, 7, 9):
        first, last = machine.output(id, index).splitlines()
        assert first.split()[0] == str(index)
        spans.append((int(first.split()[1]), int(last)))
    for before, after in zip(sorted(spans), sorted(spans)[1:], strict=False):
        assert before[1] <= after[0]


def test_array_tasks_are_cancelled_one_by_one(machine: Machine) -> None:
    id = machine.submit("sleep 304", "--array=0-2", "--exclusive")
    machine.call("cancel", f"{id}_2")
    states = {each["index"]: each["state"] for each in machine.show(id)}
    assert states[2] == "cancelled"
    assert machine.show(id)[-1]["pending_indices"] == "1"
    machine.call("cancel", id)
    machine.wait(id)
    assert {each["state"] for each in machine.show(id)} == {"cancelled"}


def test_dependencies_decide_who_begins(machine: Machine) -> None:
    wait = "until [ -e go ]; do sleep 0.1; done"
    good, bad = machine.submit(wait), machine.submit(f"{wait}; exit 1")
    ids = {
        kind + id: machine.submit("true", f"--after={kind}:{id}")
        for kind in ("afterok", "afternotok", "afterany")
        for id in (good, bad)
    }
    assert machine.show(ids["afterok" + good])[0]["reason"] == "Dependency"
    begun = machine.submit("true", f"--after=after:{good}")
    (machine.folder / "go").touch()
    for key in ("afterok" + good, "afternotok" + bad, "afterany" + good, "afterany" + bad):
        assert machine.wait(ids[key])["state"] == "done", key
    assert machine.wait(begun)["state"] == "done"
    for key in ("afterok" + bad, "afternotok" + good):
        entry = machine.show(ids[key])[0]
        assert (entry["state"], entry["reason"]) == ("held", "DependencyNeverSatisfied"), key


def test_begin_time_is_waited_for(machine: Machine) -> None:
    id = machine.submit("date +%s.%N; touch begun", "--begin=now+2s")
    entry = machine.show(id)[0]
    assert (entry["state"], entry["reason"]) == ("queued", "BeginTime")
    machine.wait_file(machine.folder / "begun", "")  # nobody asks: the queue sees to it by itself
    assert float(machine.output(id)) >= entry["submitted"] + 2


def test_gpus_are_not_shared(gpu_machine: Machine) -> None:
    text = 'echo "$CUDA_VISIBLE_DEVICES $(date +%s%N)"; sleep 0.4; date +%s%N'
    cpus = read_machine(gpu_machine.environ).cpus
    ids = [gpu_machine.submit(text, f"--gpus={count}") for count in (1, 1, 2, 1)]
    none = gpu_machine.submit('echo "[$CUDA_VISIBLE_DEVICES]"') if cpus > 2 else ""
    held: list[tuple[int, int, str]] = []
    for id, count in zip(ids, (1, 1, 2, 1), strict=True):
        assert gpu_machine.wait(id)["state"] == "done"
        first, last = gpu_machine.output(id).splitlines()
        gpus, began = first.split()
        assert len(gpus.split(",")) == count
        held += [(int(began), int(last), gpu) for gpu in gpus.split(",")]
    for one in held:
        for other in held:
            assert one is other or one[2] != other[2] or one[1] <= other[0] or other[1] <= one[0]
    if none:
        gpu_machine.wait(none)
        assert gpu_machine.output(none) == "[]\n"
    assert "this host has 2" in gpu_machine.call("submit", "--gpus=3", str(gpu_machine.write("true")), status=71).stderr


def test_run_passes_the_terminal_and_the_status(machine: Machine) -> None:
    done = machine.call("run", "--time=1h", "--", "sh", "-c", "cat; echo err >&2; exit 5", status=5, input="in\n")
    assert (done.stdout, done.stderr) == ("in\n", "err\n")
    assert machine.call("run", "--", "sh", "-c", "kill -15 $$", status=None).returncode == 128 + 15
    assert "not found" in machine.call("run", "--", "no-such-program-here", status=30).stderr
    states = [each["state"] for each in machine.list_jobs()]
    assert states == ["failed", "failed"]


def test_run_waits_for_its_turn_and_is_limited(machine: Machine) -> None:
    first = machine.submit("sleep 1.5; touch over", "--exclusive")
    assert machine.call("run", "--", "test", "-e", "over").returncode == 0
    assert machine.wait(first)["state"] == "done"
    done = machine.call("run", "--time=1s", "--", "sleep", "305", status=76)
    assert "time limit" in done.stderr


def test_run_that_is_killed_leaves_the_queue(machine: Machine) -> None:
    first = machine.submit("sleep 306", "--exclusive")
    waiting = subprocess.Popen(machine.argv("run", "--", "true"), env=machine.environ, cwd=machine.folder)
    end = time.monotonic() + PATIENCE
    while not machine.show("2") and time.monotonic() < end:
        time.sleep(0.1)
    assert machine.show("2")[0]["state"] == "queued"
    waiting.kill()
    waiting.wait()
    assert machine.show("2")[0]["state"] == "cancelled"
    machine.call("cancel", first)
    machine.wait(first)


@pytest.mark.slow
@pytest.mark.parametrize("many", [8, pytest.param(64, marks=pytest.mark.long)])
def test_submits_at_once_lose_nothing(machine: Machine, many: int) -> None:
    script = machine.write("echo ran", "--output=/dev/null", "--array=0-0")
    running = [
        subprocess.Popen(machine.argv("submit", str(script)), env=machine.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(many)
    ]
    ids = [int(each.communicate()[0]) for each in running]
    assert sorted(ids) == list(range(1, many + 1))
    assert {each.returncode for each in running} == {0}
    known = {job.id for job in (*machine.queue.list_active(), *machine.queue.list_ended())}
    assert known == set(range(1, many + 1))
    machine.call("cancel", *map(str, sorted(known)))


@pytest.mark.parametrize("rounds", [8, pytest.param(50, marks=pytest.mark.long)])
def test_killed_commands_lose_no_job(machine: Machine, rounds: int) -> None:
    """kill -9 at random moments: every id that was printed is a job, every job ends once, and its script ran once."""
    script = machine.write("echo x >> runs.$KEDGE_LOCAL_JOB_ID", "--output=/dev/null")
    chance = random.Random(4)
    printed = set()
    for _ in range(rounds):
        words = ["submit", str(script)] if chance.random() < 0.7 else ["list"]
        one = subprocess.Popen(
            machine.argv(*words), env=machine.environ, cwd=machine.folder, stdout=subprocess.PIPE, text=True
        )
        time.sleep(chance.uniform(0.0, 0.35))
        one.kill()
        said = one.communicate()[0].strip()
        if words[0] == "submit" and said:
            printed.add(int(said))
    end = time.monotonic() + PATIENCE
    while machine.call("list").returncode or machine.queue.list_active():
        assert time.monotonic() < end, machine.list_jobs()
        time.sleep(0.2)
    entries = {int(each["id"]): each for each in machine.list_jobs("--all")}
    assert printed <= set(entries)
    for id, entry in entries.items():
        assert entry["state"] == "done", entry
        assert (machine.folder / f"runs.{id}").read_text() == "x\n"
    assert not list(machine.queue.root.glob("draft*")) or machine.submit("true")


def test_killed_runner_keeps_its_part_until_the_script_ends(gpu_machine: Machine) -> None:
    """Its GPU is not given away while the script lives; then the job is lost, never done."""
    first = gpu_machine.submit("echo started; sleep 4; echo over", "--gpus=2")
    gpu_machine.wait_file(gpu_machine.folder / f"{first}_.out", "started")
    path = gpu_machine.queue.active / first / "running"
    assert is_locked(path)
    for pid in gpu_machine.find_holders(path):
        os.kill(pid, signal.SIGKILL)
    second = gpu_machine.submit("echo second", "--gpus=1")
    assert gpu_machine.show(second)[0]["state"] == "queued"
    assert gpu_machine.show(first)[0]["state"] == "running"
    entry = gpu_machine.wait(first)
    assert entry["state"] == "lost"
    assert "over" in gpu_machine.output(first)
    assert gpu_machine.wait(second)["state"] == "done"


def test_killed_runners_leave_no_job_without_an_end(machine: Machine) -> None:
    """kill -9 of whatever the queue runs, at random moments: each job is done or lost, and ran once at most."""
    script = machine.write("echo x >> runs.$KEDGE_LOCAL_JOB_ID; sleep 0.2", "--output=/dev/null")
    chance = random.Random(7)
    ids = [machine.call("submit", str(script)).stdout.strip() for _ in range(6)]
    for _ in range(6):
        time.sleep(chance.uniform(0.0, 0.3))
        marks = [*machine.queue.active.glob("*/running"), machine.queue.keeper]
        for pid in machine.find_holders(chance.choice(marks)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for id in ids:
        entry = machine.wait(id)
        runs = machine.folder / f"runs.{id}"
        assert entry["state"] in ("done", "lost"), entry
        assert entry["state"] == "lost" or runs.read_text() == "x\n"
        assert not runs.exists() or runs.read_text() == "x\n"


def test_killed_runner_and_script_free_their_part(machine: Machine) -> None:
    first = machine.submit("exec sleep 307", "--exclusive")
    machine.wait_running(first)
    second = machine.submit("true")  # waits, and so calls the keeper
    script = machine.read_task(first)["pid"]
    for pid in [*machine.find_holders(machine.queue.active / first / "running"), script]:
        os.kill(pid, signal.SIGKILL)
    machine.wait_file(machine.queue.ended / second / "done", "ended")  # nobody asked: the keeper saw it
    assert machine.show(first)[0]["state"] == "lost"


def test_killed_runner_does_not_save_a_job_from_its_end(machine: Machine) -> None:
    """Who watches on in the place of a killed runner knows the limits, and hears a cancel."""
    first = machine.submit("echo started; sleep 308", "--time=4s")
    second = machine.submit("echo started; sleep 309")
    for id in (first, second):
        machine.wait_file(machine.folder / f"{id}_.out", "started")
        for pid in machine.find_holders(machine.queue.active / id / "running"):
            os.kill(pid, signal.SIGKILL)
    machine.call("cancel", second)
    assert machine.wait(second)["state"] == "cancelled"
    assert machine.wait(first)["state"] == "timeout"
    assert not _find_processes("sleep\x00308")
    assert not _find_processes("sleep\x00309")


def test_keeper_is_one_and_does_not_stay(machine: Machine) -> None:
    first = machine.submit("sleep 5", "--exclusive")  # longer than the three below take on a busy machine
    ids = [machine.submit("true", "--exclusive") for _ in range(3)]
    assert len(machine.find_holders(machine.queue.keeper)) == 1
    for id in (first, *ids):
        machine.wait(id)
    end = time.monotonic() + PATIENCE
    while machine.find_holders(machine.queue.keeper):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_job_survives_the_terminal(machine: Machine) -> None:
    """A hang-up of the session that submitted it, as after a logout, reaches neither the job nor its runner."""
    script = machine.write("sleep 1; echo survived")
    words = " ".join(map(shlex.quote, machine.argv("submit", str(script))))
    subprocess.run(
        ["setsid", "sh", "-c", f"{words}; kill -HUP 0"], env=machine.environ, cwd=machine.folder, check=False
    )
    assert machine.wait("1")["state"] == "done"
    assert machine.output("1") == "survived\n"


@pytest.mark.parametrize(("last", "seconds"), [(1999, 6), pytest.param(9999, 30, marks=pytest.mark.long)])
def test_list_of_large_arrays_is_quick(machine: Machine, last: int, seconds: int) -> None:
    id = machine.submit("true", f"--array=0-{last}", "--begin=now+1h")
    machine.call("cancel", f"{id}_7")
    entries = machine.show(id)
    assert [each["pending_indices"] for each in entries if each["pending_indices"]] == [f"0-6,8-{last}"]
    machine.call("cancel", id)
    began = time.monotonic()
    assert len(machine.list_jobs()) == last + 1
    assert time.monotonic() - began < seconds


def test_queue_forgets_what_is_long_over(machine: Machine) -> None:
    id = machine.submit("true")
    machine.wait(id)
    os.utime(machine.queue.ended / id, (1e9, 1e9))
    (machine.queue.root / "last-id").write_text("98\n")
    machine.wait(machine.submit("true"))
    assert machine.show(id)
    machine.wait(machine.submit("true"))
    assert not machine.show(id)
    assert machine.show("100")


def _find_processes(text: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and text in (process / "cmdline").read_text(errors="replace"):
                found.append(process.name)
    return found
