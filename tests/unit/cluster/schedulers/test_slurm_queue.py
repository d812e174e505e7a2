# SPDX-License-Identifier: BSD-3-Clause
"""What squeue, scontrol and sacct print, as recorded from 22.05 and as other releases write it, is understood."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from kedge.cluster.schedulers.slurm.values import read_duration, read_exit, read_state, read_time
from kedge.errors import SchedulerFailed
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY

RECORDED = REPOSITORY / "tests/golden/slurm/recorded-22.05"
SQUEUE = "9|{index}|{state}|ada|gpu|{nodes}|1794728396|{start}|{end}|{limit}|{reason}|{name}\n"


def read_recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def find(statuses: list[JobStatus], shown_id: str) -> JobStatus:
    return next(each for each in statuses if each.shown_id == shown_id)


def list_one(**fields: str) -> JobStatus:
    usual = {
        "index": "N/A", "state": "RUNNING", "nodes": "n1", "start": "1794728397", "end": "1794728997", "limit": "10:00",
        "reason": "None", "name": "train",
    }  # fmt: skip
    [status] = SLURM.parse_list(SQUEUE.format(**usual | fields))
    return status


def test_queries_are_asked_once_for_all_jobs() -> None:
    query = SLURM.list_query("ada")
    assert query.argv[0] == "squeue"
    assert {"--noheader", "--states=all", "--user=ada"} < set(query.argv)
    variables = dict(query.environment)
    assert (variables["SLURM_TIME_FORMAT"], variables["SLURM_BITSTR_LEN"]) == ("%s", "0")
    assert variables["SQUEUE_PARTITION"] is None
    assert not query.may_fail
    query = SLURM.history_query(["1", "2"], 1794728396.0)
    assert query.may_fail
    assert "--jobs=1,2" in query.argv
    assert "--starttime=2026-11-14" in query.argv
    many = SLURM.history_query([str(10_000_000 + number) for number in range(20_000)], 0.0)
    assert max(map(len, many.argv)) < 131_072
    assert sum(word.count(",") + 1 for word in many.argv if word.startswith("--jobs=")) == 20_000


def test_squeue_recorded_list_and_names_are_read() -> None:
    found = SLURM.parse_list(read_recorded("squeue.txt"))
    states = {each.shown_id: each.state for each in found}
    assert (states["10_1"], states["10_[5-45:2]"], states["11"]) == (State.RUNNING, State.QUEUED, State.HELD)
    assert (states["5"], states["1"]) == (State.FAILED, State.DONE)
    assert find(found, "19").reason.startswith("Nodes required for job are DOWN, DRAINED")
    running, waiting, done = find(found, "10_3"), find(found, "15"), find(found, "4")
    assert (running.index, running.nodes, running.queue, running.user) == (3, "n1", "gpu", "root")
    assert (running.started, running.ended, running.time_limit) == (1794728397.0, None, 600)
    assert waiting.started is None, "an expected start is none"
    assert dict(waiting.details)["expected start"] == "1794731996"
    assert (done.started, done.ended) == (1794728111.0, 1794728131.0)
    found = SLURM.parse_list(read_recorded("squeue.txt")) + SLURM.parse_list(read_recorded("squeue-names.txt"))
    names = {each.name for each in found}
    assert "a b \"q\" 'x' $(id) `id` \\ # é 日本 %j | = UserId=x(0)" in names
    assert "a|b|c é" in names
    assert "two" in names, "what follows a line break is passed over"
    assert len(found) == 20 + 13
    status = list_one(start="2026-11-15T07:39:57")
    assert status.started == time.mktime((2026, 11, 15, 7, 39, 57, 0, 0, -1))
    assert (list_one(start="N/A").started, list_one(start="07:39:57").started) == (None, None)


def test_squeue_list_that_is_empty_or_no_list() -> None:
    assert (SLURM.parse_list(""), SLURM.parse_list("\n \n")) == ([], [])
    with pytest.raises(SchedulerFailed) as caught:
        SLURM.parse_list("slurm_load_jobs error: Unable to contact slurm controller\n")
    assert "Unable to contact" in caught.value.context["said"]
    text = "NOTE: maintenance on Monday\n" + SQUEUE.format(
        index="N/A", state="RUNNING", nodes="n1", start="1", end="2", limit="UNLIMITED", reason="None", name="x"
    )
    [status] = SLURM.parse_list(text)
    assert status.time_limit is None


@with_rows(
    (State.QUEUED, ["PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"]),
    (State.HELD, ["REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "PENDING,REQUEUE_HOLD"]),
    (State.RUNNING, ["RUNNING", "SIGNALING", "RESIZING", "RUNNING,POWER_UP_NODE"]),
    (State.SUSPENDED, ["SUSPENDED", "STOPPED"]),
    (State.COMPLETING, ["COMPLETING", "STAGE_OUT", "CANCELLED,COMPLETING"]),  # 23.11 and later give several
    (State.DONE, ["COMPLETED"]),
    (State.FAILED, ["FAILED", "LAUNCH_FAILED"]),
    (State.CANCELLED, ["CANCELLED", "CANCELLED by 1000", "CANCELLED+"]),
    (State.TIMEOUT, ["TIMEOUT", "DEADLINE"]),
    (State.OUT_OF_MEMORY, ["OUT_OF_MEMORY"]),
    (State.NODE_FAILED, ["NODE_FAIL", "BOOT_FAIL", "RECONFIG_FAIL"]),
    (State.PREEMPTED, ["PREEMPTED"]),
    (State.UNKNOWN, ["REVOKED", "DREAMING", ""]),
)
def test_slurm_states_are_ours_or_unknown_with_the_raw_word(state: State, words: list[str]) -> None:
    found = [list_one(state=word) for word in words]
    assert [(status.state, status.raw) for status in found] == [(state, word) for word in words]


@each_row("reason", ["JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "job_requeued_in_held_state"])
def test_slurm_held_jobs_are_held(reason: str) -> None:
    assert list_one(state="PENDING", reason=reason).state is State.HELD
    assert list_one(state="RUNNING", reason=reason).state is State.RUNNING


@with_rows(("7", (7, "")), ("4-9%2", (None, "4-9")), ("1,3,5-9:2", (None, "1,3,5-9:2")), ("N/A", (None, "")))
def test_slurm_array_indices(index: str, expected: tuple[int | None, str]) -> None:
    status = list_one(index=index, state="PENDING")
    assert (status.index, status.pending_indices) == expected


def count_calls(work) -> int:
    """How many functions, of Python and of C, a piece of work calls: its cost on a machine of any speed and load."""
    calls = 0

    def count(_frame, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_squeue_three_thousand_lines_cost_ten_times_three_hundred() -> None:
    lines = [
        f"{number // 10}|{number % 10}|{'RUNNING' if number % 2 else 'PENDING'}|ada|gpu|n{number % 99}|"
        f"{1794728396 + number}|{1794728397 + number}|{1794738397 + number}|10:00|Priority|job {number}\n"
        for number in range(3_000)
    ]
    assert len(SLURM.parse_list("".join(lines))) == 3_000
    few, many = (count_calls(lambda part=part: SLURM.parse_list("".join(part))) for part in (lines[:300], lines))
    assert many < 11 * few
    assert many < 40 * len(lines), "26 for each line when this was written"


def test_scontrol_recorded_jobs_are_read() -> None:
    found = SLURM.parse_detail(read_recorded("scontrol.txt"))
    assert len(found) == 20
    first = find(found, "1")
    assert first.name == "a b \"q\" 'x' $(id) `id` \\ # é 日本 %j | = UserId=x(0)"
    assert (first.state, first.exit_code, first.signal, first.user) == (State.DONE, 0, None, "root")
    assert (find(found, "9").exit_code, find(found, "9").signal) == (127, None)
    assert (find(found, "6").exit_code, find(found, "6").signal) == (0, 9)
    assert find(found, "10_[5-45:2]").reason == "JobArrayTaskLimit"
    running = find(found, "10_1")
    assert (running.exit_code, running.started, running.ended) == (None, 1794728397.0, None)
    assert dict(running.details)["output"] == "/home/ada/slurm-10_1.out"
    assert dict(find(found, "12").details)["waits for"] == "afterok:5(failed)"


def test_scontrol_texts_of_users_and_of_later_releases() -> None:
    [status] = SLURM.parse_detail(read_recorded("scontrol-two-lines.txt"))
    assert (status.name, status.state) == ("two\nlines|x", State.DONE)
    text = (
        "JobId=4 JobName=x JobState=COMPLETED ExitCode=0:0 UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A "
        "JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 TimeLimit=UNLIMITED "
        "SubmitTime=2026-11-15T07:39:56 StartTime=1 EndTime=2 Partition=gpu NodeList=n[1-2,7] TRES=cpu=1,mem=4G "
        "Command=/home/ada/my job.sh JobState=RUNNING WorkDir=/home/ada/a b StdOut=/home/ada/o ut.txt "
        "Comment=JobState=TIMEOUT \n"
    )
    [status] = SLURM.parse_detail(text)
    assert (status.state, status.exit_code, status.name) == (State.FAILED, 3, "x JobState=COMPLETED ExitCode=0:0")
    assert status.nodes == "n[1-2,7]"
    details = dict(status.details)
    assert (details["folder"], details["output"]) == ("/home/ada/a b", "/home/ada/o ut.txt")
    assert details["resources"] == "cpu=1,mem=4G"
    # 24.11 has ReqTRES and AllocTRES, 25.05 SegmentSize and more; 20.11 has Power behind all.
    text = (
        "JobId=77 ArrayJobId=70 ArrayTaskId=7 JobName=t UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A Priority=1 "
        "JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null) Requeue=1 ExitCode=0:125 TimeLimit=1-00:00:00 "
        "Partition=gpu NodeList=gpu01 NumNodes=1 ReqTRES=cpu=1,mem=1G,node=1,gres/gpu=2 "
        "AllocTRES=cpu=2,mem=1G,node=1,gres/gpu:h100=2 SegmentSize=1 TresPerNode=gres/gpu:2 OOMKillStep=0\n"
    )
    [status] = SLURM.parse_detail(text)
    assert (status.shown_id, status.state, status.time_limit) == ("70_7", State.OUT_OF_MEMORY, 86400)
    assert dict(status.details)["got"] == "cpu=2,mem=1G,node=1,gres/gpu:h100=2"
    assert dict(status.details)["per node"] == "gres/gpu:2"
    with pytest.raises(SchedulerFailed):
        SLURM.parse_detail("Segmentation fault\n")


@with_rows("", "slurm_load_jobs error: Invalid job id specified\n", "No jobs in the system\n", "Job 7 not found\n")
def test_scontrol_that_knows_no_such_job_is_no_error(text: str) -> None:
    assert SLURM.parse_detail(text) == []
    query = SLURM.detail_query("7")
    assert query.may_fail


def test_sacct_recorded_jobs_and_other_lines_are_read() -> None:
    found = SLURM.parse_history(read_recorded("sacct.txt"))
    told = {each.shown_id: (each.state, each.exit_code, each.signal) for each in found}
    assert told == {
        **{"1": (State.DONE, 0, None), "2": (State.FAILED, 3, None), "3": (State.FAILED, 0, 9)},
        "4": (State.OUT_OF_MEMORY, 0, 9),
        "5": (State.OUT_OF_MEMORY, 137, None),
        "6_1": (State.FAILED, 1, None),
        "6_2": (State.DONE, 0, None),
        "6_3": (State.FAILED, 1, None),
        "7_[1-9]": (State.QUEUED, None, None),
        **{"8": (State.CANCELLED, 0, None), "9": (State.RUNNING, None, None), "10": (State.FAILED, 139, None)},
        "11": (State.DONE, 0, None),
    }
    first = find(found, "1")
    assert (first.name, first.user, first.queue, first.nodes) == ("a|b|c é", "ada", "gpu", "n1")
    assert (first.submitted, first.ended, first.time_limit) == (1794728736.0, 1794728736.0, 600)
    assert (dict(find(found, "5").details)["largest process"], find(found, "9").ended) == ("314500K", None)
    text = sacct_line("7+0", "COMPLETED") + sacct_line("x", "COMPLETED") + "short|line\n"
    assert [each.shown_id for each in SLURM.parse_history(text)] == ["7"]
    assert SLURM.parse_history("Slurm accounting storage is disabled\n") == []
    with pytest.raises(SchedulerFailed):
        SLURM.parse_history("sacct: fatal: invalid field\n")


def sacct_line(id: str, state: str, code: str = "0:0", asked: str = "4Gn", used: str = "") -> str:
    return f"{id}|{state}|{code}|ada|gpu|n1|1|2|3|01:00:00|00:00:09|{asked}|{used}|train\n"


def test_sacct_memory_and_codes_are_explained() -> None:
    text = sacct_line("7", "FAILED", "1:0") + sacct_line("7.batch", "FAILED", "1:0")
    [failed] = SLURM.parse_history(text)
    [killed] = SLURM.parse_history(text + sacct_line("7.0", "OUT_OF_MEMORY", "0:125"))
    assert (failed.state, killed.state) == (State.FAILED, State.OUT_OF_MEMORY)
    [fine] = SLURM.parse_history(sacct_line("7", "COMPLETED") + sacct_line("7.0", "OUT_OF_MEMORY", "0:125"))
    assert fine.state is State.DONE, "the script went on without the step"
    # 20.11 writes 4Gn for 4 GiB per node and 4Gc per CPU; how many CPUs that were is not said.
    for asked, used, state in [
        *(("4Gn", "5000000K", State.OUT_OF_MEMORY), ("4G", "5000000K", State.OUT_OF_MEMORY)),
        *(("4Gn", "1000000K", State.FAILED), ("4Gc", "5000000K", State.FAILED), ("", "5000000K", State.FAILED)),
    ]:
        text = sacct_line("7", "FAILED", "0:9", asked) + sacct_line("7.batch", "CANCELLED", "0:9", asked, used)
        assert [each.state for each in SLURM.parse_history(text)] == [state]
    [status] = SLURM.parse_history(sacct_line("7", "FAILED", "127:0"))
    assert dict(status.details)["exit code"] == "127 or 255"
    sentence = SLURM.explain(status)
    assert "127 or 255" in sentence
    assert "not found" in sentence
    assert "container" in sentence


def test_slurm_values() -> None:
    texts = ["10:00", "1:00:00", "2-00:00:00", "1-12", "30", "UNLIMITED", "Partition_Limit", "INVALID", ""]
    assert [read_duration(each) for each in texts] == [600, 3600, 172800, 129600, 1800, None, None, None, None]
    assert read_exit("3:0") == (3, None)
    assert read_exit("0:9") == (0, 9)
    assert read_exit("?") == (None, None)
    assert read_time("0") is None
    assert read_time("99999999999999999999999") is None
    assert read_time("9999-99-99T99:99:99") is None
    assert read_state("cancelled by 7") is State.CANCELLED


PARSERS = (SLURM.parse_list, SLURM.parse_detail, SLURM.parse_history, lambda text: [SLURM.parse_submit(text)])
FILES = ("squeue.txt", "squeue-names.txt", "scontrol.txt", "sacct.txt")


@given(st.sampled_from(PARSERS), st.one_of(st.text(), st.binary().map(lambda data: data.decode(errors="replace"))))
def test_slurm_hostile_text_is_an_error_or_nothing(parse, text) -> None:  # type: ignore[no-untyped-def]
    try:
        found = parse(text)
    except SchedulerFailed:
        return
    assert all(SLURM.explain(each) is not None for each in found if isinstance(each, JobStatus))


@settings(max_examples=150)
@given(st.data())
def test_slurm_damaged_text_is_an_error_or_less(data) -> None:  # type: ignore[no-untyped-def]
    parse, name = data.draw(st.sampled_from(PARSERS)), data.draw(st.sampled_from(FILES))
    text = read_recorded(name)
    begin = data.draw(st.integers(0, len(text)))
    damaged = text[:begin] + data.draw(st.text(max_size=40)) + text[begin + data.draw(st.integers(0, 400)) :]
    try:
        found = parse(damaged)
    except SchedulerFailed:
        return
    assert all(SLURM.explain(each) is not None for each in found if isinstance(each, JobStatus))


def test_slurm_huge_text_is_read_in_time() -> None:
    begin = time.process_time()
    for text in ("JobId=1 JobName=" + "a " * 500_000, "|" * 1_000_000, "9" * 1_000_000, "1|" * 200_000, "[" * 500_000):
        for parse in PARSERS:
            try:
                parse(text)
            except SchedulerFailed:
                continue
    assert time.process_time() - begin < 10
