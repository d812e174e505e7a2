# SPDX-License-Identifier: BSD-3-Clause
"""The verbs for jobs on a real Grid Engine, as an ordinary user."""

from __future__ import annotations

import json

import pytest

from kedge.errors import JobFailed, JobStuck
from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import HOSTILE, SHOW, JobUser, make_job_user
from tests.wording import assert_says

NAME = 'we/ird "n" it\'s $(id) `x` \\ # é日本 @:?*\nsecond'


@pytest.fixture
def user(gridengine: GridEngineCell) -> JobUser:
    return make_job_user(gridengine, KEDGE_SITE="generic-gridengine")


def states(user: JobUser, job: str) -> dict[int, str]:
    return {each["index"]: each["state"] for each in user.tell("status", job)["tasks"]}


def test_gridengine_verbs_user_text_arrives_unchanged(user: JobUser) -> None:
    note = "\n".join(HOSTILE)
    words = ("--name", NAME, "--env", f"NOTE={note}", "-", "python3", "-c", SHOW, *HOSTILE)
    assert json.loads(user.run_job(*words)) == [list(HOSTILE), note]


def test_gridengine_verbs_follow_a_job(user: JobUser) -> None:
    id = user.submit_shell("echo begun; sleep 5; exit 3", "--name", "first", "--time", "2m", "--gpus", "1")
    running = user.await_state(id, "running")
    assert running["nodes"] in ("ge01", "ge02")
    wait_until("its output is there while it runs", lambda: user.read("logs", id) == "begun\n")
    assert "first" in user.read("jobs")
    assert user.run("wait", id, "--timeout", "90s").returncode != 0
    ended = user.status(id)
    assert (ended["state"], ended["exit_code"]) == ("failed", 3)


def test_gridengine_verbs_count_an_array_as_its_user_does(user: JobUser) -> None:
    id = user.submit_shell("echo $KEDGE_ARRAY_INDEX; sleep 600", "-a", "0-3")
    wait_until("all run", lambda: states(user, id) == dict.fromkeys(range(4), "running"))
    user.read("cancel", f"{id}_0")
    wait_until("one is gone", lambda: states(user, id) == {0: "cancelled", **dict.fromkeys(range(1, 4), "running")})
    user.read("cancel", id)
    user.wait(id)
    assert states(user, id) == dict.fromkeys(range(4), "cancelled")
    assert user.read("logs", f"{id}_2").split()[0] == "2"


def test_gridengine_verbs_depend_on_how_a_job_ended(user: JobUser) -> None:
    bad = user.submit_shell("exit 1")
    ids = [user.submit_shell("true", "--after", f"{kind}:{bad}") for kind in ("afterok", "afternotok", "afterany")]
    for id in ids:
        user.wait(id)
    assert [user.status(id)["state"] for id in ids] == ["failed", "done", "done"]


def test_gridengine_verbs_pass_on_what_qsub_refuses(gridengine_abci: GridEngineCell) -> None:
    user = make_job_user(gridengine_abci, KEDGE_SITE="abci2")
    done = user.run("submit", "-A", "nosuch", "-p", "rt_F", "--time", "1h", "-", "true")
    assert done.returncode == 72
    assert_says(done.stderr, "doctor/project-nosuch-does-not-exist")
    assert_says(done.stderr, "schedulers/qconf-sprjl-lists-projects")
    assert user.tell("jobs", "--mine") == []


def test_gridengine_verbs_say_that_a_job_never_begins(user: JobUser) -> None:
    (user.folder / "gone").mkdir()
    (user.folder / "gone").chmod(0o777)
    stuck = user.submit_shell("true", "-o", "gone/out.txt", "--directive=-h")
    (user.folder / "gone").rmdir()
    behind = user.submit_shell("true", "--after", f"afterany:{stuck}")
    user.user.read_program("qrls", stuck)
    for id, why in ((stuck, "could not open its output file"), (behind, f"job {stuck}, which will never start")):
        done = user.run("wait", id, "--timeout", "60s")
        assert done.returncode == JobStuck.exit_code, done.stderr
        assert why in done.stderr
        assert "held, will never start" in user.read("status", id)
    user.read("cancel", stuck, behind)


def test_gridengine_verbs_give_back_the_status_of_a_command_without_a_terminal(user: JobUser) -> None:
    process = user.start("alloc", "-", "sh", "-c", "echo said; exit 5")
    said, errors = process.communicate(timeout=90)
    assert (process.returncode, said) == (5, "said\n"), errors


def test_gridengine_verbs_know_attempts(user: JobUser, gridengine: GridEngineCell) -> None:
    id = user.submit_shell("echo run >>runs; [ $(wc -l <runs) -gt 1 ] || sleep 600", "--directive=-r y")
    user.await_file("runs")
    waiting = user.start("wait", id, "--timeout", "90s")
    gridengine.read("qmod", "-rj", id)
    _, errors = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, errors
    assert user.status(id)["attempts"] == 2


def test_gridengine_verbs_end_to_wait_for_what_was_deleted_between_two_attempts(
    user: JobUser, gridengine: GridEngineCell
) -> None:
    id = user.submit_shell("touch begun; sleep 600", "--directive=-r y")
    user.await_file("begun")
    user.user.read_program("qhold", id)
    gridengine.read("qmod", "-rj", id)
    assert "again after 1 attempt" in user.read("status", user.await_state(id, "held")["id"])
    user.user.read_program("qdel", id)
    done = user.run("wait", id, "--timeout", "90s")
    assert (done.returncode, "deleted before it started again" in done.stderr) == (JobFailed.exit_code, True), (
        done.stderr
    )
