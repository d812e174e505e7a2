# SPDX-License-Identifier: BSD-3-Clause
"""Why jobs wait and how they ended, in words, on a real Slurm: with accounts, without them, and after it forgot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kedge.errors import JobStuck
from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, leaving_nothing, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster, SlurmOptions
from tests.requirements import require_root
from tests.wording import assert_reads, assert_says


@pytest.fixture
def me(slurm: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm) as user:
        yield user


@pytest.fixture
def forgotten(slurm_forgetful: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_forgetful) as user:
        yield user


@pytest.fixture
def accounted(slurm_accounting: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_accounting) as user:
        yield user


def await_reason(user: JobUser, id: str, sentence: str) -> None:
    wait_until(sentence, lambda: sentence in user.status(id)["why"], timeout=20, every=0.3)


def test_status_says_why_jobs_wait(me: JobUser, slurm: SlurmCluster) -> None:
    first = me.submit_shell("sleep 300", "--exclusive", "-N", "2")
    me.await_state(first, "running")
    waits = {
        "enough nodes are free": me.submit_shell("true", "--exclusive", "-N", "2"),
        "waits for another job": me.submit_shell("true", "--after", first),
        "you hold it; release it with 'scontrol release": me.submit_shell("true", "--directive=--hold"),
        "its start time (--begin) is not reached": me.submit_shell("true", "--begin", "now+1hour"),
        "more time than the partition dev allows": me.submit_shell("true", "-p", "dev", "-t", "2h"),
    }
    for sentence, id in waits.items():
        await_reason(me, id, sentence)
        assert me.status(id)["state"] in ("queued", "held")
        assert me.status(id)["exit_code"] is None
    held = next(id for sentence, id in waits.items() if "hold" in sentence)
    assert me.status(held)["state"] == "held"
    shown = me.read("status", held)
    assert "you hold it" in shown
    me.read("cancel", "--all")
    for id in (first, *waits.values()):
        me.wait(id)
    assert me.status(held)["state"] == "cancelled"


def test_status_says_how_jobs_failed(me: JobUser) -> None:
    commands = {
        "exit code 3; its output says more": "exit 3",
        "exit code 127: command not found": "no-such-program",
        "exit code 255: the container": "exit 255",
        "SIGSEGV": "kill -SEGV $$",
        "exit code 137: SIGKILL": "kill -KILL $$",
    }
    ids = {sentence: me.submit_shell(command) for sentence, command in commands.items()}
    for sentence, id in ids.items():
        me.wait(id)
        status = me.status(id)
        assert status["state"] == "failed"
        assert sentence in status["why"]
        assert "failed" in me.read("status", id)
    script = me.submit_shell("kill -KILL $PPID")
    me.wait(script)
    assert (me.status(script)["state"], me.status(script)["signal"]) == ("failed", 9)
    assert "SIGKILL" in me.status(script)["why"]


def test_wait_ends_where_a_job_never_begins(me: JobUser) -> None:
    bad = me.submit_shell("exit 1")
    never = me.submit_shell("true", "--after", f"afterok:{bad}")
    behind = me.submit_shell("true", "--after", f"afterany:{never}")
    long = me.submit_shell("true", "-p", "dev", "-t", "2h")
    for id, why in (
        (never, "did not end as required"),
        (behind, f"it waits for job {never}, which will never start"),
        (long, "more time than the partition dev allows"),
    ):
        done = me.run("wait", id, "--timeout", "60s")
        assert done.returncode == JobStuck.exit_code, done.stderr
        assert why in done.stderr
        assert me.status(id)["stuck"] is True
        assert "pending, will never start" in me.read("status", id)
    assert me.status(bad)["stuck"] is False


def test_status_says_that_memory_ran_out(me: JobUser, slurm_memory: SlurmCluster) -> None:
    eat = "import time; x = bytearray(400 << 20); time.sleep(60)"
    other = make_job_user(slurm_memory)
    by_slurm = me.submit("--mem", "50M", "-", "python3", "-c", eat)
    by_kernel = other.submit("--mem", "50M", "-", "python3", "-c", eat)
    other.wait(by_kernel)
    assert other.status(by_kernel)["state"] == "out of memory"
    assert "request more with --mem" in other.status(by_kernel)["why"]
    me.wait(by_slurm)
    assert me.status(by_slurm)["state"] == "failed", "this Slurm says no more than that it was killed"
    assert_says(me.status(by_slurm)["why"], "schedulers/memory-runs-out-request-more")
    clue = me.status(by_slurm)["clue"]
    assert "exceeded memory limit" in clue["line"]
    assert_reads(clue["cause"], "diagnose/used-more-memory-asked-scheduler")


def test_status_says_that_the_output_could_not_be_opened(me: JobUser) -> None:
    (me.folder / "gone").mkdir()
    (me.folder / "gone").chmod(0o777)
    id = me.submit_shell("echo hello", "-o", "gone/out.txt", "--directive=--hold")
    (me.folder / "gone").rmdir()
    (me.folder / "gone").touch()  # later versions of Slurm make a directory that is missing
    me.user.read_program("scontrol", "release", id)
    me.wait(id)
    assert me.status(id)["state"] == "failed"
    assert_says(me.status(id)["why"], "schedulers/could-not-open-output-file")
    refused = me.run("submit", "-e", "nowhere/err.txt", "-", "true")
    assert refused.returncode != 0
    assert "nowhere" in refused.stderr


@pytest.mark.slow
def test_status_of_time_limits_is_known_to_slurm_and_to_scripts(
    me: JobUser, forgotten: JobUser, slurm: SlurmCluster, slurm_forgetful: SlurmCluster
) -> None:
    ids = {}
    for user, cluster in ((me, slurm), (forgotten, slurm_forgetful)):
        ids[user.folder] = id = user.submit_shell("touch up; sleep 300", "-t", "1m")
        user.await_file("up")
        cluster.expire(id)
    me.wait(ids[me.folder])
    assert me.status(ids[me.folder])["state"] == "timeout"
    assert "time limit of 0:01:00" in me.status(ids[me.folder])["why"]
    shown = me.run("diagnose", ids[me.folder]).stdout
    assert ("timeout" in shown.splitlines()[0], "ask for more time with --time" in shown) == (True, True), shown
    assert "ask for more time" not in me.run("status", ids[me.folder]).stdout, "the state says it"
    slurm_forgetful.wait_until_forgotten(ids[forgotten.folder])
    # so that nobody has to wait for a minute, the shortest limit: as if it had begun a minute ago
    [began] = forgotten.records.glob("*/began")
    first = began.read_text().splitlines()[0]
    earlier = " ".join([*first.split()[:2], str(int(first.split()[2]) - 60)])
    for path in (began, began.with_name("ended")):
        path.write_text(path.read_text().replace(first, earlier))
    status = forgotten.status(ids[forgotten.folder])
    assert (status["state"], status["raw"]) == ("timeout", ""), "nobody but the script says so"
    assert "time limit of 0:01:00" in status["why"]


def test_status_says_that_a_node_failed() -> None:
    require_root()
    with SlurmCluster(SlurmOptions(nodes=1, gpus=0)) as cluster:
        me = make_job_user(cluster)
        id = me.submit_shell("sleep 300", "--directive=--no-requeue")
        me.await_state(id, "running")
        cluster.read("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
        me.wait(id)
        status = me.status(id)
        assert (status["state"], "node it ran on" in status["why"]) == ("node failed", True)


def test_forgotten_jobs_are_told_by_their_scripts(forgotten: JobUser, slurm_forgetful: SlurmCluster) -> None:
    me = forgotten
    good, bad, odd = me.submit_shell("true"), me.submit_shell("exit 3"), me.submit_shell("exit 255")
    killed = me.submit_shell("kill -KILL $PPID")
    pending = me.submit_shell("true", "--directive=--hold")
    sleeper = me.submit_shell("touch up; sleep 300")
    me.await_file("up")
    foreign = me.user.read_program("scancel", me.submit_shell("true", "--directive=--hold", "-J", "vanished"))
    assert foreign == ""
    me.read("cancel", pending, sleeper)
    for id in (good, bad, odd, killed, pending, sleeper):
        slurm_forgetful.wait_until_forgotten(id)
    states = {each["id"]: each["state"] for each in me.tell("jobs", "--mine")}
    assert states[good] == "done"
    assert states[bad] == states[odd] == "failed"
    assert states[killed] == "lost"
    assert states[pending] == states[sleeper] == "cancelled"
    assert (me.status(bad)["exit_code"], me.status(odd)["exit_code"]) == (3, 255)
    assert "wrote no end" in me.status(killed)["why"]
    vanished = me.status("vanished")
    assert (vanished["state"], "never started" in vanished["why"]) in {("lost", True), ("queued", False)}
    assert me.run("wait", good).returncode == 0
    assert me.run("status", "999999").returncode != 0


def test_forgotten_tasks_of_an_array_are_not_done(forgotten: JobUser, slurm_forgetful: SlurmCluster) -> None:
    """Slurm forgets tasks one by one: the first one that failed must not vanish behind the last that is well."""
    me = forgotten
    body = """case $KEDGE_ARRAY_INDEX in
0) exit 5 ;; 1) kill -KILL $PPID ;; 2) exit 0 ;; 3) while [ ! -e go ]; do sleep 0.1; done ;; esac"""
    id = me.submit_shell(body, "-a", "0-3")
    for index in (0, 1, 2):
        slurm_forgetful.wait_until_forgotten(f"{id}_{index}")
    wanted = {0: "failed", 1: "lost", 2: "done", 3: "running"}
    assert {each["index"]: each["state"] for each in me.tell("status", id)["tasks"]} == wanted
    assert {each["index"]: each["state"] for each in me.tell("jobs", "--mine") if each["id"] == id} == wanted
    (me.folder / "go").touch()
    slurm_forgetful.wait_until_forgotten(id)
    done = me.run("wait", f"{id}_3")
    assert done.returncode == 0
    assert {each["index"]: each["state"] for each in me.tell("status", id)["tasks"]} == {**wanted, 3: "done"}


def test_forgotten_ids_that_come_again_are_other_jobs() -> None:
    require_root()
    with SlurmCluster(SlurmOptions(nodes=1, gpus=0, min_job_age=2)) as cluster:
        me = make_job_user(cluster)
        old = me.submit_shell("exit 3", "-J", "old")
        me.wait(old)
        cluster.stop_control()
        for file in (cluster.folder / "state").iterdir():
            if file.is_file():
                file.unlink()
        cluster.start_control(forget=True)
        wait_until("the node is back", lambda: "idle" in cluster.read("sinfo", "-h", "-o", "%T"))
        new = me.submit_shell("true", "-J", "new")
        assert new == old
        me.wait(new)
        for _ in range(2):
            assert {each["name"]: each["state"] for each in me.tell("jobs", "--mine")} == {
                "old": "failed",
                "new": "done",
            }
            assert me.tell("status", new)["name"] == "new"
            assert me.status("old")["exit_code"] == 3


def test_accounts_tell_what_scripts_could_not(accounted: JobUser, slurm_accounting: SlurmCluster) -> None:
    me = accounted
    killed, odd, good = me.submit_shell("kill -KILL $PPID"), me.submit_shell("exit 255"), me.submit_shell("true")
    held = me.submit_shell("true", "--directive=--hold")
    array = me.submit_shell("exit $KEDGE_ARRAY_INDEX", "-a", "0-2")
    me.user.read_program("scancel", held)
    for id in (killed, odd, good, held, array):
        slurm_accounting.wait_until_forgotten(id)
    assert (me.status(killed)["state"], me.status(killed)["signal"]) == ("failed", 9)
    assert me.status(odd)["exit_code"] == 255, "sacct says 127"
    assert "127" not in me.status(odd)["why"]
    assert (me.status(good)["state"], me.status(held)["state"]) == ("done", "cancelled")
    tasks = {each["index"]: (each["state"], each["exit_code"]) for each in me.tell("status", array)["tasks"]}
    assert tasks == {0: ("done", 0), 1: ("failed", 1), 2: ("failed", 2)}
    foreign = me.user.read_program("sbatch", "--parsable", "--wrap", "exit 4", "--output=/dev/null").strip()
    slurm_accounting.wait_until_forgotten(foreign)
    assert me.status(foreign)["exit_code"] == 4


def test_accounts_that_nobody_answers_for_leave_the_scripts(me: JobUser) -> None:
    """sacct fails here, and Slurm still knows the job."""
    id = me.submit_shell("exit 200")
    me.wait(id)
    assert me.status(id)["exit_code"] == 200
