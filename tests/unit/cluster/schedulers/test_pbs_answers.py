# SPDX-License-Identifier: BSD-3-Clause
"""What PBS's qstat prints, after its documents and sources, and what is made of it; and whose qstat one is."""

from __future__ import annotations

import time
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.pbs.backend import BACKEND as PBS
from kedge.cluster.schedulers.pbs.status import read_size
from tests.builders.rows import with_rows
from tests.requirements import REPOSITORY
from tests.wording import assert_ends, assert_reads, assert_says

RUNNING = """\
Job Id: 1234.pbs1
    Job_Name = train
    Job_Owner = ada@es1.example.org
    resources_used.cpupercent = 98
    resources_used.cput = 00:10:00
    resources_used.mem = 4096kb
    resources_used.walltime = 00:05:00
    job_state = R
    queue = rt_HF
    server = pbs1
    ctime = Sun Nov 15 07:33:19 2026
    exec_host = hnode001/0*192+hnode002/0*192
    exec_vnode = (hnode001:ncpus=192:ngpus=8)+(hnode002:ncpus=192:ngpus=8)
    mtime = Sun Nov 15 07:34:00 2026
    Resource_List.select = 2:ncpus=192:ngpus=8
    Resource_List.walltime = 01:00:00
    stime = Sun Nov  5 07:34:00 2026
    Variable_List = PBS_O_HOME=/home/ada,PBS_O_LANG=en_US.UTF-8,PBS_O_LOGNAME=ada,
\tPBS_O_PATH=/usr/bin:/bin,PBS_O_WORKDIR=/home/ada/code,X=job_state = F
    comment = Job run at Sun Nov 15 at 07:34 on (hnode001:ncpus=192:ngpus=8)+(
\thnode002:ncpus=192:ngpus=8)
    project = grp

"""
QUEUED = """\
Job Id: 1300.pbs1
    Job_Name = waits
    Job_Owner = ada@es1
    job_state = Q
    queue = gpu
    comment = Not Running: Insufficient amount of resource: ngpus (R: 8 A: 3 T: 64)

"""
TABLE = """\

pbs1:
                                                            Req'd  Req'd   Elap
Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time
--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----
1234.pbs1       ada      rt_HF    train       12345   2 384    --  01:00 R 00:05
1300.pbs1       ada      gpu      waits         --    1   1    --  01:00 Q   --
1400[].pbs1     ada      gpu      sweep         --    1   1    --  01:00 B   --
"""


def finished(code: str | None, substate: str = "", **more: str) -> JobStatus:
    lines = ["Job Id: 5.pbs1", "    job_state = F", "    stime = Sun Nov 15 07:34:00 2026"]
    lines += [f"    Exit_status = {code}"] if code is not None else []
    lines += [f"    substate = {substate}"] if substate else []
    lines += [f"    {name} = {value}" for name, value in more.items()]
    [status] = PBS.parse_history("\n".join(lines))
    return status


def test_pbs_running_job_and_ids() -> None:
    [job] = PBS.parse_list(RUNNING)
    assert (job.id, job.state, job.raw, job.name, job.user) == ("1234.pbs1", State.RUNNING, "R", "train", "ada")
    assert (job.queue, job.nodes, job.time_limit) == ("rt_HF", "hnode001,hnode002", 3600)
    assert job.submitted == datetime(2026, 11, 15, 7, 33, 19).timestamp()
    assert job.started == datetime(2026, 11, 5, 7, 34, 0).timestamp(), "days of one digit have two blanks before them"
    assert job.ended is None
    assert job.reason.endswith("(hnode001:ncpus=192:ngpus=8)+(hnode002:ncpus=192:ngpus=8)"), "lines go on behind a tab"
    assert job.details == (
        *(("resources_used.walltime", "00:05:00"), ("resources_used.mem", "4096kb")),
        *(("resources_used.cput", "00:10:00"), ("Resource_List.select", "2:ncpus=192:ngpus=8"), ("project", "grp")),
    )
    more = "    Account_Name = lab\n    array_state_count = Queued:1\n    estimated.start_time = 1795000000\n"
    [billed] = PBS.parse_list(f"{RUNNING.rstrip()}\n{more}")
    assert dict(billed.details).items() >= {
        *(("array_state_count", "Queued:1"), ("project", "grp"), ("Account_Name", "lab")),
        ("estimated.start_time", "1795000000"),
    }
    text = "Job Id: {}\n    job_state = R\n"
    ids = ("12", "12.pbs1", "12[].pbs1", "12[3].pbs1", "12[3]")
    read = [PBS.parse_list(text.format(id))[0] for id in ids]
    assert [(each.id, each.index) for each in read] == [
        *(("12", None), ("12.pbs1", None), ("12[].pbs1", None), ("12[].pbs1", 3), ("12[]", 3))
    ]


@with_rows(
    *((each, State.QUEUED) for each in "QWT"),
    ("H", State.HELD),
    *((each, State.RUNNING) for each in "RB"),
    ("E", State.COMPLETING),
    *((each, State.SUSPENDED) for each in "SU"),
    *((each, State.UNKNOWN) for each in "MZ"),
    ("F", State.LOST),
    ("X", State.LOST),
)
def test_pbs_states(letter: str, state: State) -> None:
    [job] = PBS.parse_list(f"Job Id: 1.pbs1\n    job_state = {letter}\n")
    assert job == JobStatus("1.pbs1", state, letter)


@with_rows(
    *(("0", "92", State.DONE, 0, None), ("3", "93", State.FAILED, 3, None), ("137", "93", State.FAILED, 137, None)),
    *(("271", "91", State.CANCELLED, None, 15), ("271", "", State.CANCELLED, None, 15)),
    *(("267", "93", State.FAILED, None, 11), (None, "91", State.CANCELLED, None, None)),
    *((None, "", State.LOST, None, None), ("-29", "93", State.TIMEOUT, None, None)),
    ("-27", "93", State.OUT_OF_MEMORY, None, None),
    ("-26", "91", State.OUT_OF_MEMORY, None, None),
    *((code, "93", State.NODE_FAILED, None, None) for code in ("-4", "-5", "-6", "-20")),
    ("-1", "93", State.FAILED, None, None),
    ("256", "93", State.FAILED, 256, None),
    ("what", "", State.LOST, None, None),
)
def test_pbs_ends(code: str | None, substate: str, state: State, exit_code: int | None, signal: int | None) -> None:
    job = finished(code, substate)
    assert (job.state, job.exit_code, job.signal) == (state, exit_code, signal)


def test_pbs_ends_that_servers_do_not_name() -> None:
    limits = {"Resource_List.walltime": "00:01:00", "Resource_List.mem": "4gb"}
    assert finished("271", **limits, **{"resources_used.walltime": "00:01:02"}).state is State.TIMEOUT
    assert finished("271", **limits, **{"resources_used.walltime": "00:01:00"}).state is State.TIMEOUT
    assert finished("271", **limits, **{"resources_used.walltime": "00:00:59"}).state is State.CANCELLED
    killed = {**limits, "resources_used.walltime": "00:00:02"}
    assert finished("265", **killed, **{"resources_used.mem": "4194000kb"}).state is State.OUT_OF_MEMORY
    assert finished("265", **killed, **{"resources_used.mem": "100kb"}).state is State.FAILED
    nearly = {"Resource_List.mem": "100kb", "resources_used.mem": "98kb"}
    assert finished("265", **nearly).state is State.OUT_OF_MEMORY, "from 98 percent on"
    changed = {"mtime": "Sun Nov 15 07:40:00 2026"}
    assert finished("0", **changed).ended == datetime(2026, 11, 15, 7, 40).timestamp()
    reported = finished("0", **changed, obittime="Sun Nov 15 07:39:59 2026")
    assert reported.ended == datetime(2026, 11, 15, 7, 39, 59).timestamp()
    depend = "afterok:4.pbs1@pbs1"
    assert finished(None, depend=depend).state is State.CANCELLED
    assert finished(None, depend=depend, exec_host="n1/0").state is State.LOST
    assert finished(None, depend=depend, run_count="1").state is State.LOST
    failed, deleted = PBS.parse_history(read_answer("dependency-unmet"))
    assert (failed.state, failed.exit_code, deleted.state) == (State.FAILED, 1, State.CANCELLED)
    assert "depends on" in PBS.explain(deleted)


@with_rows(
    *(("10", 10), ("10b", 10), ("2kb", 2 << 10), ("2KB", 2 << 10), ("2kw", 2 << 10)),
    *(("2mb", 2 << 20), ("2gb", 2 << 30), ("2tb", 2 << 40), ("2pb", 2 << 50), ("2xb", None), ("", None)),
)
def test_pbs_sizes(text: str, size: int | None) -> None:
    assert read_size(text) == size


def read_answer(name: str) -> str:
    """What OpenPBS 23.06 said of two nodes with room for one task each."""
    return (REPOSITORY / "tests/golden/pbs/answers" / f"{name}.txt").read_text()


def list_tasks(found: list[JobStatus]) -> list[tuple[int | None, str, State]]:
    return [(each.index, each.pending_indices, each.state) for each in found]


def test_pbs_arrays_are_told_once_and_waiting_tasks_wait() -> None:
    found = PBS.parse_detail(read_answer("array-without-history"))
    assert list_tasks(found) == [
        (None, "5-12", State.QUEUED),  # the array itself has begun
        (3, "", State.COMPLETING),
        (4, "", State.COMPLETING),
    ], "how 1 and 2 ended this server does not know: the status it tells is that of whichever ended last"
    assert found[0].started is None
    waiting = PBS.parse_list(read_answer("array-running"))[2]
    assert (waiting.index, waiting.state, waiting.started, waiting.reason) == (3, State.QUEUED, None, "")
    assert [each.index for each in PBS.parse_list(read_answer("array-one-deleted"))] == [1, 2]
    ended = PBS.parse_history(read_answer("array-one-deleted-ended"))
    assert list_tasks(ended) == [(1, "", State.DONE), (2, "", State.DONE), (3, "", State.CANCELLED)]
    assert (ended[2].exit_code, ended[2].started) == (None, None), "those that it shows are the array's"
    assert_reads(PBS.explain(ended[2]), "schedulers/deleted-before-started")
    deleted = PBS.parse_history(read_answer("array-deleted"))
    assert list_tasks(deleted) == [(index, "", State.CANCELLED) for index in (1, 2, 3, 40)]
    assert [PBS.explain(each).rpartition(" it ")[2] for each in deleted] == ["ran", "ran", "started", "started"]


def test_pbs_table_of_versions_without_wide_attributes() -> None:
    over = "1500.pbs1       ada      gpu      ended         --    1   1    --  01:00 F 00:01\n"
    assert PBS.parse_list(TABLE + over) == [
        JobStatus("1234.pbs1", State.RUNNING, "R", name="train", user="ada", queue="rt_HF"),
        JobStatus("1300.pbs1", State.QUEUED, "Q", name="waits", user="ada", queue="gpu"),
        JobStatus("1400[].pbs1", State.RUNNING, "B", name="sweep", user="ada", queue="gpu"),
    ]
    for text in ("", "qstat: Unknown Job Id 99.pbs1\n", "qstat: PBS is not configured to maintain job history\n"):
        assert PBS.parse_list(text) == PBS.parse_detail(text) == PBS.parse_history(text) == []


def test_pbs_list_of_three_thousand_jobs_is_read_quickly() -> None:
    text = "".join(RUNNING.replace("1234", str(number)) for number in range(3_000))
    began = time.process_time()
    assert len(PBS.parse_list(text)) == 3_000
    assert time.process_time() - began < 0.6


@with_rows(
    (
        "Not Running: Insufficient amount of resource: ngpus (R: 8 A: 3 T: 64)",
        "it waits until enough ngpus is free: 8 requested, 3 free, 64 in total",
    ),
    (
        "Can Never Run: Insufficient amount of resource: ngpus (R: 80 A: 3 T: 64)",
        "it requests more ngpus than there is: 80 requested, 3 free, 64 in total; it can never run",
    ),
    ("Not Running: Insufficient amount of resource ncpus", "it waits until enough ncpus is free"),
    ("Not Running: Not enough free nodes available", "it waits for free nodes"),
    ("Can Never Run: Not enough total nodes available", "it can never run: Not enough total nodes"),
    ("Not Running: User has reached queue rt_HF running job limit.", "limit of running jobs"),
    ("Not Running: Job would conflict with reservation or top job", "reservation or a job with higher priority"),
    ("Not Running: Job cannot complete before dedicated time", "it could not complete before its queue"),
    ("Not Running: Dependency not satisfied", "it waits for the jobs that it depends on"),
    ("Not Running: Queue not started.", "queue is stopped"),
    ("job held, too many failed attempts to run", "PBS failed too often to start it"),
    ("Not Running: Something new", "it waits: Something new"),
)
def test_pbs_says_why_jobs_wait(comment: str, words: str) -> None:
    assert words in PBS.explain(JobStatus("1.pbs1", State.QUEUED, "Q", reason=comment))
    is_stuck = "never" in words or "too often" in words
    assert PBS.is_stuck(JobStatus("1.pbs1", State.QUEUED, "Q", reason=comment)) is is_stuck
    assert not PBS.is_stuck(JobStatus("1.pbs1", State.RUNNING, "R", reason=comment))


def test_pbs_says_why_jobs_are_held_or_begin_later() -> None:
    later, held = PBS.parse_list(
        "Job Id: 1.pbs1\n    job_state = W\nJob Id: 2.pbs1\n    job_state = H\n    comment = for now\n"
    )
    assert "its start time is not reached" in PBS.explain(later)
    assert "it is held (for now); release it with 'qrls 2.pbs1'" in PBS.explain(held)


def test_pbs_says_how_jobs_ended() -> None:
    for text in ("", " "):
        assert PBS.explain(JobStatus("1.pbs1", State.QUEUED, "Q", reason=text)) == ""
    assert PBS.explain(JobStatus("1.pbs1", State.RUNNING, "R")) == ""
    assert "time limit of 0:01:00" in PBS.explain(finished("-29", **{"Resource_List.walltime": "00:01:00"}))
    assert "4096kb" in PBS.explain(finished("-27", **{"resources_used.mem": "4096kb"}))
    assert "deleted while it ran" in PBS.explain(finished("271", "91"))
    assert "SIGSEGV" in PBS.explain(finished("267"))
    assert "exit code 3" in PBS.explain(finished("3"))
    assert_says(PBS.explain(finished("-10")), "schedulers/does-not-know-user")
    assert "submit it again" in PBS.explain(finished("-4"))
    assert "qrls 1.pbs1" in PBS.explain(JobStatus("1.pbs1", State.HELD, "H"))
    assert "another PBS server" in PBS.explain(JobStatus("1.pbs1", State.UNKNOWN, "M"))


@with_rows(
    *((code, "the node could not start it") for code in (-1, -2)),
    (-3, "the node could not start it; PBS was to try again"),
    *((-7, "it could not be restarted"), (-10, "the node does not know its user")),
    *((-13, "its user's password was refused"), (-21, "PBS' directories on the node are not secure")),
    (-23, "it had no Kerberos credentials"),
    *((code, "it used more CPUs than it requested") for code in (-24, -25)),
    (-28, "it used more CPU time than it requested"),
    (-30, "not all of its nodes could join the job"),
    (-8, "PBS or one of its hooks killed it"),
)
def test_pbs_says_what_its_own_exit_codes_mean(code: int, words: str) -> None:
    """Those of the reference guide; the comment is the server's, where it left one."""
    assert_reads(PBS.explain(finished(str(code))), "schedulers/pbs-exit-status", code, words)
    assert_ends(PBS.explain(finished(str(code), comment="job failed")), "schedulers/comment-job-failed", words)


PIECES = [
    *RUNNING.splitlines(),
    *read_answer("array-without-history").splitlines(),
    *TABLE.splitlines(),
    *("Job Id: ", "Job Id: x", "\t", "    = 1"),
]


@given(st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES), max_size=40).map("\n".join)))
def test_pbs_never_stumbles_over_nonsense(text: str) -> None:
    for status in PBS.parse_list(text):
        assert PBS.explain(status) is not None


@given(st.text(max_size=200), st.sampled_from(State), st.text(max_size=20))
def test_pbs_explains_any_reason(reason: str, state: State, raw: str) -> None:
    PBS.explain(JobStatus("7.pbs1", state, raw, reason=reason))
