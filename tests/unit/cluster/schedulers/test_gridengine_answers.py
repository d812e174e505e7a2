# SPDX-License-Identifier: BSD-3-Clause
"""What Grid Engine's programs print, recorded from 8.1.9 (tests/golden/gridengine/recorded), and what is made of it."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.gridengine.backend import BACKEND as GRIDENGINE
from kedge.cluster.schedulers.gridengine.backend import read_state
from kedge.errors import KedgeError, SchedulerFailed
from tests.builders.rows import with_rows
from tests.requirements import REPOSITORY
from tests.wording import assert_begins, assert_reads, assert_says

RECORDED = REPOSITORY / "tests/golden/gridengine/recorded"
LIST = (RECORDED / "list.xml").read_text()
ACCOUNTS = (RECORDED / "accounts.txt").read_text()


def read_detail(name: str) -> JobStatus:
    [status] = GRIDENGINE.parse_detail((RECORDED / f"detail-{name}.txt").read_text())
    return status


def make_account(**fields: str) -> str:
    base = {"jobnumber": "5", "taskid": "undefined", "failed": "0", "exit_status": "0", "category": "NONE"}
    return "=" * 62 + "\n" + "".join(f"{name:<12} {value}\n" for name, value in {**base, **fields}.items())


def account(**fields: str) -> JobStatus:
    [status] = GRIDENGINE.parse_history(make_account(**fields))
    return status


@with_rows(
    *((each, State.QUEUED) for each in ("qw", "Rq", "Rqw")),
    *((each, State.HELD) for each in ("hqw", "hRwq", "Eqw", "Ehqw", "EhRqw")),
    *((each, State.RUNNING) for each in ("r", "t", "Rr", "Rt", "hr")),
    *((each, State.SUSPENDED) for each in ("s", "ts", "S", "tS", "T", "tT", "Rs", "RtT")),
    *((each, State.COMPLETING) for each in ("dr", "dt", "dRr", "ds", "dT")),
    *((each, State.UNKNOWN) for each in ("", "z", "new", "r!", "h", "R")),
)
def test_gridengine_states(letters: str, state: State) -> None:
    assert read_state(letters) is state


def test_gridengine_list_of_all_kinds() -> None:
    found = {(each.name, each.index): each for each in GRIDENGINE.parse_list(LIST)}
    states = {name: each.state for name, each in found.items()}
    assert states == {
        **{("run", None): State.RUNNING, ("arr", 1): State.RUNNING, ("arr", 3): State.RUNNING},
        **{("arr", None): State.QUEUED, ("susp", None): State.SUSPENDED, ("pe", None): State.QUEUED},
        ("error", None): State.HELD,
        ("w%lt;&>i", None): State.QUEUED,  # 8.1.9 writes < wrongly
        ("held", None): State.HELD,
        ("dep", None): State.HELD,
        ("toolate", None): State.QUEUED,
    }
    run, rest = found["run", None], found["arr", None]
    assert (run.id, run.user, run.queue, run.nodes, run.raw) == ("45", "ada", "all.q", "ge01", "r")
    assert (run.started, run.submitted) == (datetime(2026, 11, 15, 8, 8, 14).timestamp(), None)
    assert (rest.pending_indices, rest.shown_id) == ("5-9:2", "46_[5-9:2]")
    assert rest.submitted is not None


def test_gridengine_list_of_nothing_and_of_odd_names() -> None:
    text = LIST.replace("<tasks>5-9:2</tasks>", "<tasks>4-9:1,12,20-30:5</tasks>")
    assert "4-9,12,20-30:5" in {each.pending_indices for each in GRIDENGINE.parse_list(text)}
    assert GRIDENGINE.parse_list("") == []
    assert GRIDENGINE.parse_list("<?xml version='1.0'?>\n<job_info><queue_info/><job_info/></job_info>\n") == []
    assert len(GRIDENGINE.parse_list(f"Attention: maintenance on Monday\n{LIST}")) == 11
    assert "a?b" in {each.name for each in GRIDENGINE.parse_list(LIST.replace(">run<", ">a\x01b<"))}


@with_rows(
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa">]><job_info>&a;</job_info>',
    "<job_info><job_list>",
    "error: commlib error: got select error (Connection refused)",
)
def test_gridengine_list_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(SchedulerFailed):
        GRIDENGINE.parse_list(text)


def test_gridengine_list_of_three_thousand_jobs_is_read_quickly() -> None:
    [entry] = re.findall(r"    <job_list.*?</job_list>\n", LIST, re.DOTALL)[:1]
    text = LIST.replace(entry, "".join(entry.replace(">45<", f">{number}<") for number in range(3_000)))
    began = time.process_time()
    assert len(GRIDENGINE.parse_list(text)) == 3_010
    assert time.process_time() - began < 0.5


def test_gridengine_detail() -> None:
    running = read_detail("running")
    assert (running.id, running.name, running.user, running.time_limit) == ("45", "run", "ada", 300)
    assert running.raw == "", "8.1.9 does not say the state here"
    assert dict(running.details)["hard resource_list"] == "h_rt=300,gpu=4"
    assert read_detail("held").reason == "Job is in hold state"
    [newer] = GRIDENGINE.parse_detail("job_number:   7\njob_state             1:    r\n")
    assert (newer.state, newer.raw) == (State.RUNNING, "r")
    text = (
        "job_number: 7\nscheduling info:            queue instance dropped\n                            and another\n"
    )
    assert_reads(GRIDENGINE.parse_detail(text)[0].reason, "schedulers/queue-instance-dropped-another")
    assert GRIDENGINE.parse_detail("Following jobs do not exist: \n99\n") == []
    assert GRIDENGINE.list_query("ada").argv == ("qstat", "-u", "ada", "-xml")
    assert GRIDENGINE.history_query(["7"], 0.0).argv == ("qacct", "-j", "7")  # type: ignore[union-attr]
    moment = datetime(2026, 11, 15, 7, 33, 19).timestamp()
    several = GRIDENGINE.history_query(["7", "8"], moment)
    assert several.argv == ("qacct", "-j", "-b", "202611150733")


def explain_waiting(detail: str, raw: str, state: State) -> str:
    return GRIDENGINE.explain(JobStatus("7", state, raw, reason=read_detail(detail).reason))


def test_gridengine_says_why_jobs_wait() -> None:
    error = explain_waiting("error", "Eqw", State.HELD)
    assert_says(error, "schedulers/could-not-open-output-file-no", "/nonexistent/x/y")
    assert "qmod -cj 7" in error
    closed = explain_waiting("closed", "Eqw", State.HELD)
    assert "could not open its output file /home/ada/closed/x/y (Permission denied); fix" in closed
    assert GRIDENGINE.is_stuck(JobStatus("7", State.HELD, "Eqw"))
    assert not GRIDENGINE.is_stuck(JobStatus("7", State.HELD, "hqw"))
    gpus = explain_waiting("gpu", "qw", State.QUEUED)
    assert_begins(gpus, "schedulers/requests-gpu-left", 9, "ge01", 0)
    assert "never starts" in gpus
    assert "qrls 7" in explain_waiting("held", "hqw", State.HELD)
    assert "depends on" in explain_waiting("dependency", "hqw", State.HELD)
    assert "start time is not reached" in explain_waiting("later", "qw", State.QUEUED)
    assert_says(explain_waiting("parallel", "qw", State.QUEUED), "schedulers/parallel-environment-smp-free-slots", 0)
    assert_says(explain_waiting("array", "qw", State.QUEUED), "schedulers/many-tasks-once-allows")


def test_gridengine_accounts_of_all_kinds_say_how_jobs_ended() -> None:
    found = {(each.id, each.index): each for each in GRIDENGINE.parse_history(ACCOUNTS)}
    states = {id: (each.state, each.exit_code, each.signal) for id, each in found.items()}
    assert states == {
        ("25", None): (State.TIMEOUT, None, 9),
        ("26", None): (State.CANCELLED, None, 9),
        ("27", None): (State.FAILED, 1, None),
        ("28", None): (State.FAILED, None, 11),
        ("29", None): (State.FAILED, None, None),
        ("32", None): (State.LOST, None, None),
        ("33", None): (State.FAILED, 137, None),
        ("9", None): (State.FAILED, None, None),
        **{("1", None): (State.FAILED, 3, None), ("2", 1): (State.FAILED, 3, None), ("2", 3): (State.FAILED, 3, None)},
        ("2", 5): (State.FAILED, 3, None),
    }
    ended = found["25", None]
    assert (ended.time_limit, ended.ended) == (3, datetime(2026, 11, 15, 7, 34, 57).timestamp())
    assert (ended.nodes, ended.queue, ended.reason) == (
        "ge01",
        "all.q",
        "qmaster enforced h_rt, h_cpu, or h_vmem limit",
    )
    assert dict(ended.details)["maxvmem"] == "4.156MB"
    assert found["9", None].started is None, "it was never started"
    said = {each.id: GRIDENGINE.explain(each) for each in GRIDENGINE.parse_history(ACCOUNTS)}
    assert "time limit of 0:00:03" in said["25"]
    assert "qdel" in said["26"]
    assert "exit code 1" in said["27"]
    assert "SIGSEGV" in said["28"]
    assert "application error returned" in said["29"]
    assert "requeued" in said["32"]
    assert "SIGKILL" in said["33"]
    assert_says(said["9"], "schedulers/could-not-run-opening-input", "ge01")


def test_gridengine_accounts_tell_limits_and_versions_apart() -> None:
    killed = {"failed": "100 : assumedly after job", "exit_status": "137", "category": "-l h_rt=60,h_vmem=200M"}
    assert account(**killed, ru_wallclock="3s", maxvmem="199.9MB").state is State.OUT_OF_MEMORY
    assert account(**killed, ru_wallclock="61s", maxvmem="9MB").state is State.TIMEOUT
    assert account(**killed, ru_wallclock="3s", maxvmem="9MB").state is State.CANCELLED
    assert account(**killed, ru_wallclock="3s", maxvmem="300MB", slots="2").state is State.CANCELLED
    enforced = {"failed": "37 : qmaster enforced", "exit_status": "137"}
    assert account(**enforced, category="-l h_vmem=1G").state is State.OUT_OF_MEMORY
    assert account(**enforced, category="-l h_vmem=1G,h_rt=5").state is State.TIMEOUT
    assert account(**{**killed, "deleted_by": "ada@head"}, maxvmem="199.9MB").state is State.CANCELLED
    found = account(start_time="11/15/2026 07:33:19.123", taskid="4", exit_status="7")
    assert (found.started, found.index) == (datetime(2026, 11, 15, 7, 33, 19).timestamp(), 4)
    assert GRIDENGINE.parse_history(make_account(pe_taskid="1.ge02")) == [], "a part on another node"
    text = make_account(failed="25  : rescheduling", exit_status="99") + make_account(exit_status="0")
    assert [each.state for each in GRIDENGINE.parse_history(text)] == [State.DONE]


TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from([*LIST.splitlines(), *ACCOUNTS.splitlines()[:60], "]]>", "&x;", "<", ""]), max_size=40
    ).map("\n".join),
    st.tuples(st.integers(0, len(LIST)), st.integers(0, len(LIST))).map(lambda cut: LIST[: cut[0]] + LIST[cut[1] :]),
)


@given(TEXTS)
def test_gridengine_never_stumbles_over_nonsense(text: str) -> None:
    for parse in (GRIDENGINE.parse_list, GRIDENGINE.parse_detail, GRIDENGINE.parse_history):
        try:
            for status in parse(text):
                assert GRIDENGINE.explain(status) is not None
        except KedgeError:
            pass


@given(st.text(max_size=200), st.sampled_from(State), st.text(max_size=8))
def test_gridengine_explains_any_reason(reason: str, state: State, raw: str) -> None:
    GRIDENGINE.explain(JobStatus("7", state, raw, reason=reason))
    offers = f'(-l {reason}) cannot run at host "x" because it offers only hc:gpu={raw}'
    GRIDENGINE.explain(JobStatus("7", state, raw, reason=offers))
