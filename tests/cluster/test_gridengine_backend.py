# SPDX-License-Identifier: BSD-3-Clause
"""What kedge writes for Grid Engine is what a real one takes, and what that one prints is understood."""

from __future__ import annotations

import json
import os
import pty
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.output_pattern import fill_pattern
from kedge.cluster.schedulers.array_numbers import restore_indices
from kedge.cluster.schedulers.backend import Query, ScriptContext
from kedge.cluster.schedulers.gridengine.backend import BACKEND as GRIDENGINE
from kedge.cluster.site import Site
from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import SEEN_BY_QRSH, GridEngineCell
from tests.cluster.job_user import HOSTILE
from tests.cluster.users import ClusterUser

SITE = Site("cell", "Grid Engine", "gridengine", options=(("mpi_environment", "ppn{tasks}"), ("gpu_per_slot", "yes")))
NAMES = ("..", "1st", 'we/ird %x "n" it\'s $(id) `x` \\ # é日本 @:?*\nsecond')
FOLDERS = ("with blanks é", "a:b", 'p$JOB_ID,it\'s "q" #h \\')
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NOTE'], os.environ['KEDGE_JOB_NAME']]))"


def make_place(user: ClusterUser, job: Job, folder: str = "work", error: str = "") -> ScriptContext:
    work, record = user.home / folder, user.home / f"record-{time.time_ns()}"
    for each in (work, record):
        each.mkdir(exist_ok=True)
        each.chmod(0o777)
    name = "{name}-{id}_{index}.out" if job.array else "{name}-{id}.out"
    return ScriptContext(str(record), "/bin/false", "", "", str(work), f"{work}/{name}", error and f"{work}/{error}")


def submit(user: ClusterUser, job: Job, place: ScriptContext, site: Site = SITE) -> str:
    script = user.home / "script.sh"
    script.write_text(GRIDENGINE.render(job, site, place))
    done = user.run_program(*GRIDENGINE.submit_argv(str(script), job, site), cwd=Path(place.directory))
    assert done.returncode == 0, done.stderr
    return GRIDENGINE.parse_submit(done.stdout)


def run(user: ClusterUser, *command: str, **fields: object) -> str:
    job = replace(Job(name="job", command=command), **fields)  # type: ignore[arg-type]
    return submit(user, job, make_place(user, job))


def ask(user: ClusterUser, query: Query | None) -> str:
    assert query is not None
    done = user.run_program(*query.argv)
    return done.stdout if done.returncode == 0 or query.may_fail else pytest.fail(done.stderr)


def list_jobs(user: ClusterUser, *ids: str) -> list[JobStatus]:
    return [each for each in GRIDENGINE.parse_list(ask(user, GRIDENGINE.list_query("alice"))) if each.id in ids]


def read_history(user: ClusterUser, *ids: str) -> list[JobStatus]:
    query = GRIDENGINE.history_query(ids, time.time() - 600)
    return [each for each in GRIDENGINE.parse_history(ask(user, query)) if each.id in ids]


def wait(user: ClusterUser, *ids: str) -> list[JobStatus]:
    wait_until("the jobs are over", lambda: not list_jobs(user, *ids), timeout=90, every=0.2)
    wait_until("they are in the accounts", lambda: {each.id for each in read_history(user, *ids)} == set(ids))
    return read_history(user, *ids)


def explain_waiting(user: ClusterUser, id: str) -> str:
    """What `kedge status` says: the state of the list with the reason of the closer look."""
    [listed] = list_jobs(user, id)
    [detail] = GRIDENGINE.parse_detail(ask(user, GRIDENGINE.detail_query(id)))
    return GRIDENGINE.explain(replace(listed, reason=detail.reason))


def test_gridengine_user_text_arrives_unchanged(gridengine: GridEngineCell) -> None:
    user, note = gridengine.user(), "\n".join(HOSTILE)
    jobs = [Job(name=name, command=("python3", "-c", SHOW, *HOSTILE), environment=(("NOTE", note),)) for name in NAMES]
    places = [make_place(user, job, folder) for job, folder in zip(jobs, FOLDERS, strict=True)]
    ids = [submit(user, job, place) for job, place in zip(jobs, places, strict=True)]
    assert {(each.state, each.exit_code, each.user) for each in wait(user, *ids)} == {(State.DONE, 0, "alice")}
    for name, place, id in zip(NAMES, places, ids, strict=True):
        output = Path(fill_pattern(place.output, name=name, id=id, index=None))
        assert json.loads(output.read_text()) == [[*HOSTILE], note, name]
        assert Path(place.record, "ended").read_text().split()[0] == "0"
        began = Path(place.record, "began").read_text().splitlines()
        assert (began[0].split()[0], began[1]) == (id, str(output))


def test_gridengine_errors_apart(gridengine: GridEngineCell) -> None:
    user = gridengine.user()
    job = Job(name="two", command=("sh", "-c", "echo out; echo err >&2"))
    place = make_place(user, job, "with: blanks", error="{name}.{id}.err")
    id = submit(user, job, place)
    wait(user, id)
    assert Path(fill_pattern(place.output, name="two", id=id, index=None)).read_text() == "out\n"
    assert Path(fill_pattern(place.error, name="two", id=id, index=None)).read_text() == "err\n"


@pytest.mark.parametrize("indices", ["0-2", "2,5-9:2"])
def test_gridengine_arrays_behind_another_job(gridengine: GridEngineCell, indices: str) -> None:
    user = gridengine.user()
    first = Job(name="first", command=("sleep", "3"))
    first_place = make_place(user, first)
    one = submit(user, first, first_place)
    array = JobArray.parse(f"{indices}%2")
    job = Job(
        name="array",
        command=("sh", "-c", 'echo "$KEDGE_JOB_ID $KEDGE_ARRAY_INDEX"; exit $((KEDGE_ARRAY_INDEX % 2))'),
        array=array,
        dependencies=(Dependency(DependencyKind.AFTER_OK, one, first_place.record),),
    )
    place = make_place(user, job)
    id = submit(user, job, place)
    [waiting] = restore_indices("gridengine", array, list_jobs(user, id))
    assert waiting.state is State.HELD
    assert len(JobArray.parse(waiting.pending_indices)) == len(array)
    assert JobArray.parse(waiting.pending_indices).indices == array.indices
    wait_until("it says why", lambda: "depends on" in explain_waiting(user, id))
    found = {each.index: each.exit_code for each in restore_indices("gridengine", array, wait(user, id))}
    assert found == {index: index % 2 for index in array.indices}
    for index in array.indices:
        assert Path(fill_pattern(place.output, name="array", id=id, index=index)).read_text() == f"{id} {index}\n"


def test_gridengine_ends_of_all_kinds(gridengine: GridEngineCell) -> None:
    user = gridengine.user()
    ids = {
        "code": run(user, "sh", "-c", "exit 5"),
        "time": run(user, "sleep", "60", time=2),
        "cancelled": run(user, "sleep", "60"),
        "signal": run(user, "sh", "-c", "kill -SEGV $$"),
        "missing": run(user, "no-such-program"),
        "array": run(user, "sleep", "60", array=JobArray.parse("1-3")),
    }
    gridengine.wait_until_running(ids["cancelled"])
    user.read_program(*GRIDENGINE.cancel_argv([ids["cancelled"], f"{ids['array']}_2"]))
    wait_until("one task is gone", lambda: {each.index for each in list_jobs(user, ids["array"])} == {1, 3})
    user.read_program(*GRIDENGINE.cancel_argv([ids["array"]]))
    ended = {each.id: each for each in wait(user, *ids.values())}
    found = {name: (ended[id].state, ended[id].exit_code) for name, id in ids.items()}
    assert found == {
        "code": (State.FAILED, 5),
        "time": (State.TIMEOUT, None),
        "cancelled": (State.CANCELLED, None),
        "signal": (State.FAILED, 139),
        "missing": (State.FAILED, 127),
        "array": (State.CANCELLED, None),
    }
    assert "time limit of 0:00:02" in GRIDENGINE.explain(ended[ids["time"]])
    assert "not found" in GRIDENGINE.explain(ended[ids["missing"]])
    [alone] = read_history(user, ids["code"])
    assert alone == ended[ids["code"]], "asked for alone or among others, the accounts say the same"


def test_gridengine_reasons_to_wait(gridengine: GridEngineCell) -> None:
    user = gridengine.user()
    missing, closed = user.home / "no-such-directory/output", user.home / "closed/below/output"
    closed.parent.parent.mkdir(mode=0o700)  # root's
    ids = {
        "gpus": run(user, "true", gpus_per_node=9),
        "slots": run(user, "true", cpus_per_task=99),
        "later": run(user, "true", begin="203001010000"),
        "held": run(user, "true", directives=("-h",)),
        "error": run(user, "true", directives=(f"-o {missing}",)),
        "closed": run(user, "true", directives=(f"-o {closed}",)),
    }
    words = {
        "gpus": "it requests gpu=9, and ge0",
        "slots": "parallel environment smp",
        "later": "start time is not reached",
        "held": f"qrls {ids['held']}",
        "error": f"could not open its output file {missing} (No such file or directory);",
        "closed": f"could not open its output file {closed} (Permission denied);",
    }
    for name, id in ids.items():
        wait_until(f"{name} is explained", lambda id=id, name=name: words[name] in explain_waiting(user, id))  # type: ignore[misc]
    user.read_program(*GRIDENGINE.cancel_argv(list(ids.values())))
    wait_until("all are gone", lambda: not list_jobs(user, *ids.values()))


def test_gridengine_terminal(gridengine: GridEngineCell) -> None:
    user = gridengine.user()
    script = f'tty >/dev/null && printf "[%s]" "$@"; {SEEN_BY_QRSH}; exit 7'
    inside = ["sh", "-c", script, "sh", "a b", "it's", "$(id)"]
    argv = user.words(*GRIDENGINE.interactive_argv(Job(name="shell", gpus_per_node=1, time=60), SITE, inside))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(user.home)
        os.execvpe(argv[0], argv, user.variables())
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while piece := os.read(terminal, 4096):
            shown += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7, shown
    assert "[a b][it's][$(id)]" in shown.decode()
