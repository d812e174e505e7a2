# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of a real OpenPBS: where they run, what signals do to them, and what a second attempt leaves of the first."""

from __future__ import annotations

from tests.builders.waiting import wait_until
from tests.cluster.job_user import JobUser
from tests.live.openpbs import OpenPbs

ASKED = 'trap "echo asked" USR1; touch here; for i in $(seq 100); do sleep 0.2; [ ! -e go ] || exit 5; done'


def test_jobs_of_two_nodes_get_two_where_nodes_are_exclusive(pbs: OpenPbs, me: JobUser) -> None:
    me = me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"))
    with pbs.exclusive_nodes():
        me.read("site", "init", "exclusive")
        words = ("--site", "exclusive", "-N", "2", "--tasks-per-node", "4", "-t", "2m")
        shown = me.run_shell("sort -u <$PBS_NODEFILE", *words)
    assert shown.split() == ["pbsn1", "pbsn2"]


def test_a_signal_reaches_the_command_and_leaves_the_job_running(me: JobUser) -> None:
    job = me.submit_shell(ASKED)
    me.await_file("here")
    me.read("cancel", "--signal", "USR1", job)
    wait_until("the command was asked", lambda: "asked" in me.run("logs", job).stdout, every=0.5)
    assert me.status(job)["state"] == "running"
    me.write("go", "")
    me.wait(job)
    assert (me.status(job)["state"], me.status(job)["exit_code"]) == ("failed", 5)


def test_a_signal_to_one_task_of_an_array_is_for_that_one(me: JobUser) -> None:
    job = me.submit_shell(ASKED.replace("here", "here.$KEDGE_ARRAY_INDEX"), "--array", "3-4")
    for index in (3, 4):
        me.await_file(f"here.{index}")
    me.read("cancel", "--signal", "SIGUSR1", f"{job}_4")
    wait_until("task 4 was asked", lambda: "asked" in me.run("logs", f"{job}_4").stdout, every=0.5)
    me.write("go", "")
    me.wait(job)
    assert "asked" not in me.run("logs", f"{job}_3").stdout


def test_what_a_job_printed_before_it_was_put_back_is_kept(pbs: OpenPbs, me: JobUser) -> None:
    job = me.submit_shell("echo run >>runs; echo attempt $(wc -l <runs); [ $(wc -l <runs) -gt 1 ] || sleep 100")
    me.await_file("runs")
    pbs.put_back(job)
    me.wait(job)
    assert (me.status(job)["state"], me.status(job)["attempts"]) == ("done", 2)
    said = me.read("logs", job)
    assert "attempt 1\n" in said, "the first attempt's output is lost"
    assert "attempt 2\n" in said
