# SPDX-License-Identifier: BSD-3-Clause
"""The verbs as an ordinary user meets them on a real Slurm: submit, jobs, logs, wait, cancel, alloc."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.job_user import PYTHON, JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.wording import assert_says

DESCRIPTION = """\
site = "generic-slurm"
[job]
time = "5m"
[jobs.prepare]
name = "prepare data"
command = ["sh", "-c", "sleep 1; echo prepared > data"]
[jobs.train]
command = ["sh", "-c", "cat data; echo index $KEDGE_ARRAY_INDEX"]
array = "0-1"
after = "prepare"
"""
SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@pytest.fixture
def me(slurm: SlurmCluster) -> JobUser:
    return make_job_user(slurm)


def test_submit_runs_a_command_and_keeps_a_record(me: JobUser) -> None:
    id = me.submit("-J", "my job", "-t", "5m", "-c", "2", "--mem", "600M", "-", "sh", "-c", "echo $SLURM_CPUS_PER_TASK")
    me.read("wait", id)
    assert (me.folder / f"my_job-{id}.out").read_text() == "2\n"
    told = me.tell("status", id)
    assert (told["name"], told["output"]) == ("my job", str(me.folder / f"my_job-{id}.out"))
    assert (told["tasks"][0]["state"], told["tasks"][0]["exit_code"]) == ("done", 0)
    assert Path(told["script"]).stat().st_uid == me.user.uid


def test_submit_takes_the_jobs_of_a_description_in_order(me: JobUser) -> None:
    me.write("kedge.toml", DESCRIPTION)
    first, second = me.tell("submit", "--all")
    assert me.run("wait", second["id"]).returncode == 0
    assert me.read("logs", f"{second['id']}_1") == "prepared\nindex 1\n"
    assert first["name"] == "prepare data"
    again = me.tell("submit", "-j", "train", "--", "more words")
    assert me.run("wait", again["id"]).returncode == 0, "it waits for the one that was submitted before"


def test_submit_dry_run_changes_nothing(me: JobUser, slurm: SlurmCluster) -> None:
    me.write("kedge.toml", DESCRIPTION)
    before = slurm.read("squeue", "-h", "--states=all", "-o", "%i")
    shown = me.read("submit", "--all", "--dry-run", "--script", "-")
    assert shown.count("#SBATCH --time=00:05:00") == 2
    assert shown.count("# submitted with: sbatch --parsable") == 2
    assert len(me.tell("submit", "--all", "--dry-run")) == 2
    assert {each.name for each in me.folder.iterdir()} == {"kedge.toml"}
    assert slurm.read("squeue", "-h", "--states=all", "-o", "%i") == before


def test_submit_refuses_all_when_one_is_refused(me: JobUser) -> None:
    me.write("kedge.toml", DESCRIPTION + 'directory = "nowhere"\n')
    assert me.run("submit", "--all").returncode != 0
    assert me.tell("jobs", "--mine") == []


def test_submit_script_can_be_submitted_by_hand(me: JobUser, slurm: SlurmCluster) -> None:
    id = me.submit("--script", "job.sh", "-J", "byhand", "-", "sh", "-c", "echo it is $KEDGE_JOB_ID")
    me.wait(id)
    by_hand = me.user.read_program("sbatch", "--parsable", str(me.folder / "job.sh")).strip()
    slurm.wait_for_state(by_hand, "COMPLETED")
    assert (me.folder / f"byhand-{by_hand}.out").read_text() == f"it is {by_hand}\n"
    keys = {each["id"]: each["key"] for each in me.tell("jobs", "--name", "byhand")}
    assert keys[id]
    assert keys[by_hand] is None, "it is no job of kedge's, and is shown all the same"
    assert by_hand not in {each["id"] for each in me.tell("jobs", "--mine")}
    printed = me.read("submit", "--dry-run", "-", "echo", "from print")
    done = me.user.run_program("sbatch", "--parsable", stdin=printed, cwd=me.folder)
    slurm.wait_for_state(done.stdout.strip(), "COMPLETED")
    assert (me.folder / f"echo-{done.stdout.strip()}.out").read_text() == "from print\n"


def test_submit_wait_says_how_it_ended(me: JobUser) -> None:
    good, bad = me.run("submit", "--wait", "-", "true"), me.run("submit", "--wait", "-", "sh", "-c", "exit 7")
    assert (good.returncode, bad.returncode) == (0, 76)
    assert "exit code 7" in bad.stderr
    told = me.run("submit", "--wait", "--json", "-", "false")
    assert (told.returncode, json.loads(told.stdout)["error"]) == (76, "job-failed"), "one document"


def test_jobs_lists_by_state_and_name(me: JobUser) -> None:
    wrong, right = me.submit("-J", "wrong", "-", "false"), me.submit("-J", "right", "-", "true")
    me.wait(wrong)
    me.wait(right)
    assert [each["id"] for each in me.tell("jobs", "--mine", "--state", "failed")] == [wrong]
    assert [each["id"] for each in me.tell("jobs", "--mine", "--name", "right")] == [right]
    assert [each["id"] for each in me.tell("jobs", "--mine")] == [right, wrong], "the newest first"
    table = me.read("jobs", "--mine")
    assert table.splitlines()[-1] == "2 jobs"
    assert me.read("jobs", "--forget", "1") == "Removed 0 records\n"
    assert me.read("jobs", "--forget", "0") == "Removed 2 records\n"
    assert me.tell("jobs", "--mine") == []
    assert not list(me.records.iterdir())


def test_jobs_watch_ends_when_interrupted(me: JobUser) -> None:
    me.wait(me.submit("-J", "seen", "-", "true"))
    watch = me.start("jobs", "--mine", "--watch", "2")
    assert watch.stdout is not None
    lines = [watch.stdout.readline() for _ in range(3)]
    assert "seen" in lines[1]
    watch.send_signal(signal.SIGINT)
    _, errors = watch.communicate(timeout=20)
    assert watch.returncode == 130
    assert "Traceback" not in errors


def test_logs_show_all_or_the_end(me: JobUser) -> None:
    words = ("-e", "wrong.txt", "-", "sh", "-c", "seq 5; echo bad >&2; printf tail")
    id = me.submit(*words)
    me.wait(id)
    assert me.read("logs", id) == "1\n2\n3\n4\n5\ntail"
    assert me.read("logs", id, "-n", "2") == "5\ntail"
    assert me.read("logs", id, "-n", "0") == ""
    assert me.read("logs", "--error") == "bad\n"
    assert me.read("logs", id, "--path") == f"{me.folder}/sh-{id}.out\n"
    assert me.read("logs", id, "--path", "--error") == f"{me.folder}/wrong.txt\n"


def test_logs_follow_from_before_the_beginning_to_the_end(me: JobUser) -> None:
    id = me.submit_shell("echo one; touch up; while [ ! -e go ]; do sleep 0.1; done; echo two", "--directive=--hold")
    none = me.run("logs", id)
    assert none.returncode != 0
    assert_says(none.stderr, "submit/written-no-output-yet")
    follow = me.start("logs", "-f", id)
    assert follow.stdout is not None
    me.user.read_program("scontrol", "release", id)
    assert follow.stdout.readline() == "one\n"
    assert follow.poll() is None
    (me.folder / "go").touch()
    rest, _ = follow.communicate(timeout=60)
    assert (rest, follow.returncode) == ("two\n", 0)
    bad = me.submit_shell("echo last words; exit 3")
    done = me.run("logs", "-f", bad)
    assert (done.stdout, done.returncode) == ("last words\n", 76)


def test_logs_of_arrays_are_told_apart(me: JobUser) -> None:
    id = me.submit_shell("echo task $KEDGE_ARRAY_INDEX", "-a", "0,3-5:2%2")
    me.wait(id)
    assert me.read("logs", f"{id}_5") == "task 5\n"
    every = me.read("logs", id)
    assert [line for line in every.splitlines() if line.startswith("task")] == ["task 0", "task 3", "task 5"]
    assert sorted(each["index"] for each in me.tell("logs", id)) == [0, 3, 5]
    assert me.run("logs", f"{id}_4").returncode != 0


def test_wait_for_several_and_not_for_ever(me: JobUser) -> None:
    long = me.submit_shell("while [ ! -e go ]; do sleep 0.1; done")
    bad, good = me.submit_shell("exit 4"), me.submit_shell("true")
    begin = time.monotonic()
    late = me.run("wait", long, good, "--timeout", "2s")
    assert (late.returncode, "after the timeout" in late.stderr) == (76, True)
    assert time.monotonic() - begin < 20
    (me.folder / "go").touch()
    done = me.run("wait", bad, long, good)
    assert done.returncode == 76
    assert_says(done.stderr, "submit/job-sh-failed-exit-code", bad)
    assert [each["id"] for each in me.tell("wait", long, good)] == [long, good]


def test_status_right_after_cancel_says_so(me: JobUser) -> None:
    id = me.submit("-t", "5m", "-", "sh", "-c", "trap '' TERM; sleep 300")
    me.await_state(id, "running")
    me.read("cancel", id)
    assert me.status(id)["state"] in ("completing", "cancelled")
    listed = {each["id"]: each["state"] for each in me.tell("jobs")}
    assert listed[id] in ("completing", "cancelled")


def test_cancel_ends_jobs_and_single_tasks(me: JobUser) -> None:
    array = me.submit_shell("sleep 300", "-a", "1-3")
    wait_until("they run", lambda: [each["state"] for each in me.tell("status", array)["tasks"]] == ["running"] * 3)
    me.read("cancel", f"{array}_2")
    wait_until("one is gone", lambda: me.status(f"{array}_2")["state"] == "cancelled")
    others = {each["index"]: each["state"] for each in me.tell("status", array)["tasks"]}
    assert others == {1: "running", 2: "cancelled", 3: "running"}
    one = me.submit_shell("sleep 300")
    assert me.read("cancel", "--all", "--dry-run").count("Would cancel job ") == 2
    me.read("cancel", "--all")
    me.wait(array)
    me.wait(one)
    assert me.status(one)["state"] == "cancelled"
    assert me.read("cancel", "--all") == "No jobs to cancel\n"
    assert "had already ended" in me.read("cancel", one), "no error"
    assert me.run("cancel", "999999").returncode != 0


def test_cancel_gives_the_program_time_to_save(me: JobUser) -> None:
    program = """\
import signal, sys, time
def save(*_):
    time.sleep(0.5); print("saved", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, lambda *_: print("checkpoint", flush=True))
open("up", "w").close()
while True: time.sleep(0.1)
"""
    me.write("program.py", program)
    id = me.submit("-", "python3", "program.py")
    me.await_file("up")
    assert "Sent USR1 to job" in me.read("cancel", id, "--signal", "USR1")
    wait_until("the program heard it", lambda: me.read("logs", id) == "checkpoint\n", timeout=20)
    assert me.status(id)["state"] == "running"
    me.read("cancel", id)
    me.wait(id)
    assert me.read("logs", id).splitlines()[-1] == "saved"
    assert me.status(id)["state"] == "cancelled"


def test_dependencies_by_name_hold_and_release(me: JobUser) -> None:
    first = me.submit_shell("while [ ! -e go ]; do sleep 0.1; done; touch first", "-J", "first")
    second = me.submit_shell("ls first", "-J", "second", "--after", "first")
    assert "waits for another job" in me.await_state(second, "queued")["why"]
    (me.folder / "go").touch()
    me.read("wait", first, second)
    bad = me.submit_shell("false", "-J", "bad")
    never = me.submit_shell("true", "--after", "bad")
    wait_until("it is known", lambda: "never starts" in me.status(never)["why"])
    anyway = me.submit_shell("true", "--after", f"afternotok:{bad}")
    me.read("wait", anyway)
    assert_says(me.run("submit", "--after", "nosuch", "-", "true").stderr, "submit/no-job-wait", "nosuch")
    me.read("cancel", never)


def test_alloc_hands_over_the_terminal_and_the_status(me: JobUser) -> None:
    inside = 'test -t 0 && echo "a terminal on $SLURMD_NODENAME, $NOTE"; exit 9'
    words = me.user.argv("alloc", "-c", "2", "--env", "NOTE=it's, $x", "--", "-", "sh", "-c", inside)
    done = subprocess.run(
        ["python3", "-c", SPAWN, *words],
        env=me.user.variables(),
        cwd=me.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "a terminal on n1, it's, $x" in done.stdout.replace("\0", ""), done.stdout + done.stderr
    assert done.returncode == 9
    assert me.run("alloc", "-a", "1-2").returncode != 0


def test_alloc_runs_in_a_container(me: JobUser) -> None:
    me.take_tools("py.sif", PYTHON)
    code = 'import os; print("inside", os.path.exists("/.singularity.d"), os.environ["NOTE"])'
    words = me.user.argv("alloc", "--env", "NOTE=a,b=c 'd'", "py.sif", "python3", "-c", code)
    done = subprocess.run(
        ["python3", "-c", SPAWN, *words],
        env=me.user.variables(),
        cwd=me.folder,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "inside True a,b=c 'd'" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
