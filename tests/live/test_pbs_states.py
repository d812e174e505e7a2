# SPDX-License-Identifier: BSD-3-Clause
"""What kedge says of more than a hundred tasks of a real OpenPBS is what was done to them, and what the server says."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kedge.cluster.job_state import State
from tests.builders.waiting import wait_until
from tests.cluster.job_user import JobUser
from tests.live.openpbs import OpenPbs

LIVING = {"Q": "queued", "H": "held", "W": "queued", "R": "running", "S": "suspended", "E": "completing"}


def read_states(me: JobUser, job: str) -> dict[int, str]:
    """The state of every task; one entry may stand for many that wait."""
    found: dict[int, str] = {}
    for task in me.tell("status", job)["tasks"]:
        first, _, last = (task["pending_indices"] or str(task["index"])).partition("-")
        found |= {index: task["state"] for index in range(int(first), int(last or first) + 1)}
    return found


def ask_server(pbs: OpenPbs, job: str) -> dict[int, dict[str, str]]:
    """Every task as the server tells it, its history included."""
    said = pbs.read("qstat", "-x", "-f", "-w", "-t", job)
    found = {}
    for part in said.split("Job Id: ")[1:]:
        number = re.match(r"\d+\[(\d+)\]", part)
        if number:
            found[int(number[1])] = dict(re.findall(r"^    (\S+) = (.*)$", part, re.MULTILINE))
    return found


def judge_end(fields: dict[str, str]) -> str:
    """A task that is over: it ran nowhere, was deleted, or ended with its own status."""
    if "exec_host" not in fields or fields["substate"] == "91":
        return "cancelled"
    return "done" if fields["Exit_status"] == "0" else "failed"


def agree(pbs: OpenPbs, me: JobUser, job: str) -> Counter[str]:
    """Compare once, while nothing changes: what the server says is asked before and after."""
    for _ in range(20):
        before, ours, after = ask_server(pbs, job), read_states(me, job), ask_server(pbs, job)
        letters = {index: fields["job_state"] for index, fields in before.items()}
        if letters == {index: fields["job_state"] for index, fields in after.items()}:
            break
    theirs = {index: LIVING.get(letters[index]) or judge_end(fields) for index, fields in after.items()}
    assert ours == theirs
    return Counter(ours.values())


def test_tasks_of_an_array_at_every_moment(pbs: OpenPbs, me: JobUser) -> None:
    command = "touch began; while [ ! -e go ]; do sleep 0.2; done; exit $((KEDGE_ARRAY_INDEX % 4))"
    job = me.submit_shell(command, "--array", "1-60", "--cpus-per-task", "2", "-t", "5m")
    me.await_file("began")
    assert agree(pbs, me, job) == {"running": 8, "queued": 52}
    for index in range(50, 61):
        me.read("cancel", f"{job}_{index}")
    assert agree(pbs, me, job) == {"running": 8, "queued": 41, "cancelled": 11}
    me.write("go", "")
    wait_until("some have ended", lambda: "done" in read_states(me, job).values(), every=0.5)
    assert agree(pbs, me, job)["done"]
    assert me.run("wait", job, "--timeout", "240s").returncode != 0, "not all ended well"
    ended = agree(pbs, me, job)
    assert ended == {"done": 12, "failed": 37, "cancelled": 11}


def test_an_array_that_is_cancelled_while_some_run(pbs: OpenPbs, me: JobUser) -> None:
    job = me.submit_shell("touch began; sleep 100", "--array", "1-20", "--cpus-per-task", "8", "-t", "5m")
    me.await_file("began")
    me.read("cancel", job)
    me.wait(job)
    assert agree(pbs, me, job) == {"cancelled": 20}
    assert me.run("wait", job).returncode != 0


def test_a_server_without_history_is_no_reason_to_guess(pbs: OpenPbs, me: JobUser) -> None:
    """The scripts of tasks wrote how they ended; those that never began and were cancelled wrote nothing."""
    with pbs.settings("set server job_history_enable = False", "set server job_history_enable = True"):
        job = me.submit_shell("exit $((KEDGE_ARRAY_INDEX % 2))", "--array", "1-12", "--cpus-per-task", "8", "-t", "2m")
        for index in (11, 12):
            me.read("cancel", f"{job}_{index}")
        me.wait(job)
        wait_until("it is forgotten", lambda: job.partition("[")[0] not in pbs.read("qstat"), every=0.5)
        found = me.tell("status", job)["tasks"]
    assert Counter(task["state"] for task in found) == {"done": 5, "failed": 5, "cancelled": 2}, found


@pytest.mark.parametrize(
    ("first", "kind", "state"),
    [
        ("true", "afterok", State.DONE),
        ("false", "afterok", State.CANCELLED),
        ("true", "afternotok", State.CANCELLED),
        ("false", "afternotok", State.DONE),
        ("false", "afterany", State.DONE),
    ],
)
def test_jobs_that_depend_on_others(me: JobUser, first: str, kind: str, state: State) -> None:
    before = me.submit_shell(f"sleep 2; {first}", "-t", "2m")
    after = me.submit_shell("true", "-t", "2m", "--after", f"{kind}:{before}")
    me.wait(after)
    found = me.status(after)
    assert found["state"] == state, found
    assert state is State.DONE or "depends on" in me.read("status", after)


def test_held_suspended_killed_and_late_jobs(pbs: OpenPbs, me: JobUser) -> None:
    held = me.submit_shell("true", "-t", "2m", "--begin", "2036-01-01T00:00:00")
    stopped = me.submit_shell("touch began; while [ ! -e go ]; do sleep 0.2; done", "-t", "5m")
    killed = me.submit_shell("kill -9 $PPID; sleep 5", "-t", "2m")
    late = me.submit_shell("sleep 100", "-t", "5s")
    me.await_file("began")
    pbs.read("qsig", "-s", "suspend", stopped)
    assert me.await_state(stopped, "suspended")
    pbs.read("qsig", "-s", "resume", stopped)
    me.await_state(stopped, "running")
    me.write("go", "")
    me.await_state(stopped, "done")
    assert me.status(held)["state"] == "queued"
    pbs.read("qhold", held)
    assert me.status(held)["state"] == "held"
    me.wait(killed)
    assert me.status(killed)["state"] == "failed"
    me.wait(late)
    assert me.status(late)["state"] == "timeout"
