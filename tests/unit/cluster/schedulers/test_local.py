# SPDX-License-Identifier: BSD-3-Clause
"""The local queue as text: its scripts (tests/golden/local; KEDGE_GOLDEN=write writes them anew), answers and plans."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.cluster.job import Dependency, DependencyKind, IndexRange, Job, JobArray, Parallel
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.schedulers.local.backend import BACKEND as LOCAL
from kedge.cluster.site import Site
from kedge.errors import InvalidJob, InvalidSetting, RequestRefused, SchedulerFailed
from kedge.jobs.local.directives import apply_options, read_directives
from kedge.jobs.local.host_resources import read_machine
from kedge.jobs.local.planning import ARRAY_LIMIT, NEVER, PRIORITY, RESOURCES, TOO_LARGE, Claim, plan_turn
from kedge.jobs.local.queue_files import LocalRequest, ResourceAmount
from kedge.jobs.local_queue import compress_indices
from kedge.system.start_kedge import own_command
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY, require_program

WRITE = os.environ.get("KEDGE_GOLDEN") == "write"  # read before tests lose all variables of kedge
GOLDEN = REPOSITORY / "tests/golden/local"
SITE = Site("local", "This machine", "local")
RECORD, WORK = "/home/ada/.local/state/kedge/jobs/records/K", "/home/ada/my work"
PLACE = ScriptContext(
    RECORD, "/home/ada/.local/bin/kedge", "/data/pytorch.sif", "", WORK, WORK + "/{name}-{id}.out", ""
)
HOSTILE = 'it\'s "a" $(job) `of`\n日本 # %j/\\'
BASE = Job(name="train", image="/data/pytorch.sif", command=("python", "train.py"), time=3600)
JOBS = {
    "plain": Job(name="hello", command=("hostname",)),
    "hostile": Job(name=HOSTILE, command=("printf", "%s", "a\nb", "$(id)"), environment=(("NOTE", HOSTILE),)),
    "container": replace(BASE, gpus_per_node=2, gpu_type="a100", memory=64 << 30, cpus_per_task=8, queue="gpu"),
    "array": replace(
        BASE,
        array=JobArray((IndexRange(1, 1), IndexRange(4, 10, 2)), 3),
        dependencies=(Dependency(DependencyKind.AFTER_OK, "11"), Dependency(DependencyKind.AFTER_ANY, "12_3")),
    ),
    "mpi": replace(BASE, parallel=Parallel.MPI, tasks=4, cpus_per_task=2, memory_per_cpu=1 << 30),
    "changed": replace(BASE, memory=1 << 30, directives=("--time=2h", "--begin now+1h"), drop_directives=("--memory",)),
}


def read_request(job: Job, place: ScriptContext = PLACE) -> LocalRequest:
    """What the queue reads out of the script that the backend writes."""
    return apply_options(LocalRequest(), read_directives(LOCAL.render(job, SITE, place)))


def test_answers_are_read_and_argv_names_jobs() -> None:
    assert find_backend("local") is LOCAL
    assert (LOCAL.parse_submit('{"id": "12"}\n'), LOCAL.parse_submit("12\n")) == ("12", "12")
    for said in ("", '{"error": "x", "exit_code": 71}', "no 12"):
        with pytest.raises(SchedulerFailed):
            LOCAL.parse_submit(said)
    known = {"id": "1", "state": "running", "raw": "running", "index": 3, "details": [["a", "b"]], "later": 1}
    strange = {"id": "2", "state": "dreaming", "raw": "dreaming"}
    found = LOCAL.parse_list(json.dumps({"jobs": [known, strange]}))
    assert found[0] == JobStatus("1", State.RUNNING, "running", index=3, details=(("a", "b"),))
    assert (found[1].state, found[1].raw) == (State.UNKNOWN, "dreaming")
    assert LOCAL.parse_detail('{"jobs": []}') == []
    for said in ("nothing", "[]", '{"jobs": [1]}'):
        with pytest.raises(SchedulerFailed):
            LOCAL.parse_list(said)
    assert LOCAL.cancel_argv(["1", "2_3"])[-4:] == ["local-queue", "cancel", "1", "2_3"]
    assert LOCAL.cancel_argv(["1"], "USR1")[-2:] == ["--signal=USR1", "1"]
    assert LOCAL.interactive_argv(JOBS["mpi"], SITE, ["bash", "-l"])[len(own_command()) :] == [
        "local-queue", "run", "--name=train", "--time=1:00:00", "--cpus=8", "--memory=8G", "--", "bash", "-l",
    ]  # fmt: skip
    assert LOCAL.history_query([], 0.0) is None


@each_row("name", JOBS)
def test_render_writes_the_golden_script(name: str) -> None:
    text = LOCAL.render(JOBS[name], SITE, PLACE).replace(f"kedge {VERSION} ", "kedge VERSION ")
    path = GOLDEN / f"{name}.sh"
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_render_is_clean_shell() -> None:
    scripts = [GOLDEN / f"{name}.sh" for name in JOBS]
    words = [require_program("shellcheck"), "--shell=bash", "--exclude=SC2016", *scripts]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == ""


def test_render_is_read_back_by_the_queue() -> None:
    request = read_request(replace(JOBS["container"], exclusive=True), replace(PLACE, error="/e {index}\n"))
    assert (request.name, request.directory) == ("train", PLACE.directory)
    assert (request.output, request.error) == (PLACE.output, "/e {index}\n")
    assert (request.cpus, request.gpus, request.memory, request.time) == (8, 2, 64 << 30, 3600)
    assert request.is_exclusive
    array = read_request(JOBS["array"])
    assert (array.indices, array.limit) == ([1, 4, 6, 8, 10], 3)
    assert array.after == (("afterok", "11"), ("afterany", "12_3"))
    mpi = read_request(JOBS["mpi"])
    assert (mpi.cpus, mpi.memory) == (8, 8 << 30)
    changed = read_request(JOBS["changed"])
    assert (changed.time, changed.memory) == (7200, None)
    assert 3500 < (changed.begin or 0) - time.time() < 3700


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_render_carries_any_text(name: str, folder: str) -> None:
    if "\0" in name + folder:
        return
    request = read_request(Job(name=name, command=("true",)), replace(PLACE, directory=f"/{folder}"))
    assert (request.name, request.directory) == (name, f"/{folder}")


def test_render_refuses_several_nodes_and_directives_end_at_the_first_command() -> None:
    with pytest.raises(RequestRefused, match="2 nodes; the local queue has one, this host"):
        LOCAL.render(replace(BASE, nodes=2), SITE, PLACE)
    with pytest.raises(RequestRefused, match="the local queue has no option"):
        LOCAL.render(replace(BASE, directives=("-t=3",)), SITE, PLACE)
    text = "#!/bin/bash\n\n# words\n#KEDGE --time=1h\n#KEDGE --cpus 2\necho\n#KEDGE --gpus=1\n"
    assert read_directives(text) == {"time": "1h", "cpus": "2"}


@with_rows(
    ("#KEDGE --tiem=1h", "line 2: the local queue has no option --tiem"),
    ("#KEDGE time=1h", "line 2: 'time=1h' is not an option"),
    ("#KEDGE", "line 2"),
    ('#KEDGE --name="open', "not text in double quotes"),
)
def test_directives_name_the_line_of_a_mistake(line: str, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        read_directives(f"#!/bin/bash\n{line}\ntrue\n")


@with_rows(
    *(("cpus", "0"), ("cpus", "two"), ("gpus", "-1"), ("memory", "12"), ("time", "1:30"), ("array", "1-x")),
    *(("after", "never:3"), ("begin", "tomorrow"), ("begin", "2030-13-01"), ("exclusive", "perhaps")),
)
def test_options_name_what_cannot_be_used(name: str, value: str) -> None:
    with pytest.raises(InvalidJob, match=f"^--{name}: "):
        apply_options(LocalRequest(), {name: value})


def test_options_read_times_to_begin() -> None:
    now = time.time()
    for text, least, most in (
        *(("now", 0, 2), ("now+90", 89, 92), ("now+5minutes", 299, 302), ("now+1day", 86399, 86402)),
        *(("23:59:59", -1, 86400), ("00:00", 0, 86400 + 3600)),
    ):
        begin = apply_options(LocalRequest(), {"begin": text}).begin
        assert begin is not None
        assert least <= begin - now <= most, text
    exact = apply_options(LocalRequest(), {"begin": "2030-01-31T08:05"}).begin
    assert time.localtime(exact)[:6] == (2030, 1, 31, 8, 5, 0)


def test_request_is_read_from_its_file_and_the_machine_counted(tmp_path) -> None:
    request = LocalRequest(name=HOSTILE, arguments=("\udcff", "a"), array="1-3", after=(("after", "4"),), begin=1.5)
    assert LocalRequest.decode(request.encode()) == request
    assert LocalRequest.decode(b'{"name": "x", "of a later version": 1}').name == "x"
    with pytest.raises(ValueError, match="not a table"):
        LocalRequest.decode(b"[]")
    for name in ("nvidia1", "nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert read_machine({}, str(tmp_path)).gpus == ("0", "1", "10")
    assert read_machine({"KEDGE_LOCAL_GPUS": "3"}, str(tmp_path)).gpus == ("0", "1", "2")
    assert read_machine({"KEDGE_LOCAL_GPUS": "2,3"}, str(tmp_path)).gpus == ("2", "3")
    assert read_machine({"KEDGE_LOCAL_GPUS": "0"}, str(tmp_path)).gpus == ()
    for wrong in ("1,1", "a b", ","):
        with pytest.raises(InvalidSetting):
            read_machine({"KEDGE_LOCAL_GPUS": wrong})
    assert compress_indices([7, 1, 2, 3, 9, 10]) == "1-3,7,9-10"
    assert compress_indices([]) == ""


@with_rows(
    (State.QUEUED, "Resources", {"lacks": "gpus", "waits for": "12"}, "it waits for GPUs, used by job 12"),
    (State.QUEUED, "Priority", {"lacks": "cpus", "waits for": "12"}, "waits for CPUs; job 12 goes first"),
    (State.QUEUED, "Dependency", {"waits for": "3 4"}, "it waits for jobs 3, 4"),
    (State.HELD, "DependencyNeverSatisfied", {"waits for": "3"}, "it never starts: job 3 did not end"),
    (State.QUEUED, "BeginTime", {"begins": "1900000000"}, "it starts at 2030-"),
    (State.QUEUED, "", {}, "in a moment"),
    (State.TIMEOUT, "it reached its time limit of 1h", {}, "request more with --time"),
    (State.OUT_OF_MEMORY, "it used 2G", {}, "request more with --mem"),
    (State.LOST, "its runner was killed", {}, "its runner was killed"),
    (State.QUEUED, "SomethingElse", {}, "SomethingElse"),
)
def test_explain_says_it_in_words(state: State, reason: str, details: dict[str, str], says: str) -> None:
    status = JobStatus("7", state, str(state), reason=reason, details=tuple(details.items()))
    assert says in LOCAL.explain(status)
    assert LOCAL.is_stuck(status) is ("never" in says)


def test_explain_says_how_it_ended() -> None:
    assert "SIGKILL" in LOCAL.explain(JobStatus("7", State.FAILED, "failed", signal=9))
    assert "exit code 3" in LOCAL.explain(JobStatus("7", State.FAILED, "failed", exit_code=3))
    assert LOCAL.explain(JobStatus("7", State.DONE, "done", exit_code=0)) == ""


SIZE = ResourceAmount(4, 100, 2)


def test_plan_starts_in_order_and_lets_small_jobs_pass() -> None:
    claims = [
        Claim(2, ResourceAmount(1, 0, 2), [None], 9),
        Claim(3, ResourceAmount(3), [None], 9),
        Claim(4, ResourceAmount(1), [None], 9),
    ]
    plan = plan_turn(SIZE, {"1": ResourceAmount(1, 0, 1)}, claims)
    # 2 waits for a GPU, and one processor is kept for it: 3 would take that, and 4 comes after 3
    assert plan.starts == []
    assert (plan.reasons[2].word, plan.reasons[2].lacks, plan.reasons[2].others) == (RESOURCES, ("gpus",), ("1",))
    assert (plan.reasons[3].word, plan.reasons[3].others) == (PRIORITY, ("2",))
    assert plan.reasons[4].word == PRIORITY
    claims = [Claim(2, ResourceAmount(1, 0, 2), [None], 9), Claim(3, ResourceAmount(2), [None], 9)]
    plan = plan_turn(SIZE, {"1": ResourceAmount(1, 0, 1)}, claims)
    assert plan.starts == [(3, None)]


def test_plan_obeys_the_limit_of_an_array_and_passes_by_what_can_never_begin() -> None:
    plan = plan_turn(SIZE, {}, [Claim(1, ResourceAmount(), [3, 4, 5], 2), Claim(2, ResourceAmount(), [None], 9)])
    assert (plan.starts, plan.reasons[1].word) == ([(1, 3), (1, 4), (2, None)], ARRAY_LIMIT)
    claims = [
        Claim(1, ResourceAmount(9), [None], 9),
        Claim(2, ResourceAmount(), [None], 9, NEVER, ("8",)),
        Claim(3, ResourceAmount(4), [None], 9),
    ]
    plan = plan_turn(SIZE, {}, claims)
    assert (plan.starts, plan.reasons[1].word, plan.reasons[2].others) == ([(3, None)], TOO_LARGE, ("8",))


needs = st.builds(ResourceAmount, st.integers(1, 4), st.integers(0, 100), st.integers(0, 2))


@given(st.lists(needs, max_size=8))
def test_plan_never_gives_more_than_there_is(wanted: list[ResourceAmount]) -> None:
    claims = [Claim(id, need, [None], 1) for id, need in enumerate(wanted)]
    plan = plan_turn(SIZE, {}, claims)
    given_away = [wanted[id] for id, _ in plan.starts]
    for kind in ("cpus", "memory", "gpus"):
        assert sum(getattr(need, kind) for need in given_away) <= getattr(SIZE, kind)
    if wanted:
        assert (0, None) in plan.starts  # the first never waits while nothing runs
    assert len(plan.starts) + len(plan.reasons) == len(wanted)


@given(st.lists(needs, min_size=1, max_size=8))
def test_plan_comes_to_every_job(wanted: list[ResourceAmount]) -> None:
    """Whatever ends first, the job that waits longest begins after at most all those before it have ended."""
    waiting = dict(enumerate(wanted))
    for _ in range(len(wanted)):
        claims = [Claim(id, need, [None], 1) for id, need in waiting.items()]
        oldest = min(waiting)
        plan = plan_turn(SIZE, {}, claims)
        assert (oldest, None) in plan.starts
        for id, _ in plan.starts:
            waiting.pop(id)
        if not waiting:
            return
