# SPDX-License-Identifier: BSD-3-Clause
"""What kedge writes for Slurm is what a real one takes, and what that one prints is understood."""

from __future__ import annotations

import json
from pathlib import Path

from kedge.cluster.job import Dependency, DependencyKind, IndexRange, Job, JobArray, Parallel
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.output_pattern import fill_pattern
from kedge.cluster.schedulers.backend import Query, ScriptContext
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from kedge.cluster.site import Site
from tests.cluster.daemons import wait_until
from tests.cluster.job_user import HOSTILE
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.users import ClusterUser

SITE = Site("generic-slurm", "Slurm", "slurm")
NAME = 'we/ird %x "n" it\'s $(id) `x` \\ # é日本 | UserId=x(0)\nsecond'
FOLDER = 'p%j %%é $(id) it\'s "q" #h'
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NOTE'], os.environ['KEDGE_JOB_NAME']]))"


def make_place(user: ClusterUser, job: Job, folder: str = "work") -> ScriptContext:
    work, record = user.home / folder, user.home / "record"
    for each in (work, record):
        each.mkdir(exist_ok=True)
        each.chmod(0o777)
    name = "{name}-{id}_{index}.out" if job.array else "{name}-{id}.out"
    return ScriptContext(str(record), "/bin/false", "", "", str(work), f"{work}/{name}", "")


def submit(user: ClusterUser, job: Job, place: ScriptContext, site: Site = SITE) -> str:
    script = user.home / "script.sh"
    script.write_text(SLURM.render(job, site, place))
    return SLURM.parse_submit(user.read_program(*SLURM.submit_argv(str(script), job, site)))


def ask(user: ClusterUser, query: Query | None) -> str:
    assert query is not None
    done = user.run_program(*query.argv, env={name: value for name, value in query.environment if value is not None})
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_jobs(user: ClusterUser, *ids: str) -> list[JobStatus]:
    return [each for each in SLURM.parse_list(ask(user, SLURM.list_query("alice"))) if each.id in ids]


def wait(user: ClusterUser, *ids: str) -> list[JobStatus]:
    def are_over() -> bool:
        found = list_jobs(user, *ids)
        return bool(found) and all(each.state.is_final for each in found)

    wait_until("the jobs are over", are_over, timeout=60)
    return list_jobs(user, *ids)


def test_slurm_user_text_arrives_unchanged(slurm: SlurmCluster) -> None:
    user = slurm.user()
    note = "\n".join(HOSTILE)
    job = Job(name=NAME, command=("python3", "-c", SHOW, *HOSTILE), environment=(("NOTE", note),))
    place = make_place(user, job, FOLDER)
    id = submit(user, job, place)
    [listed] = wait(user, id)
    assert listed.state is State.DONE
    assert listed.name == NAME.replace("\n", " ")
    [shown] = SLURM.parse_detail(ask(user, SLURM.detail_query(id)))
    assert (shown.name, shown.state, shown.exit_code, shown.user) == (listed.name, State.DONE, 0, "alice")
    output = Path(fill_pattern(place.output, name=NAME, id=id, index=None))
    assert json.loads(output.read_text()) == [[*HOSTILE], note, NAME]


def test_slurm_array_with_holes_behind_another_job(slurm: SlurmCluster) -> None:
    user = slurm.user()
    first = Job(name="first", command=("sleep", "4"))
    one = submit(user, first, make_place(user, first))
    job = Job(
        name="array",
        command=("sh", "-c", 'echo "$KEDGE_JOB_ID $KEDGE_ARRAY_INDEX"; exit $((KEDGE_ARRAY_INDEX % 2))'),
        array=JobArray((IndexRange(2, 2), IndexRange(5, 9, 2)), 2),
        dependencies=(Dependency(DependencyKind.AFTER_OK, one), Dependency(DependencyKind.AFTER_ANY, one)),
    )
    place = make_place(user, job)
    id = submit(user, job, place)
    wait_until("the scheduler says why it waits", lambda: list_jobs(user, id)[0].reason == "Dependency")
    [waiting] = list_jobs(user, id)
    assert (waiting.state, waiting.pending_indices) == (State.QUEUED, "2,5,7,9")
    assert "waits for another job" in SLURM.explain(waiting)
    states = {each.index: each.state for each in wait(user, one, id) if each.id == id}
    assert states == {2: State.DONE, 5: State.FAILED, 7: State.FAILED, 9: State.FAILED}
    codes = {each.index: each.exit_code for each in SLURM.parse_detail(ask(user, SLURM.detail_query(id)))}
    assert codes == {2: 0, 5: 1, 7: 1, 9: 1}
    assert Path(fill_pattern(place.output, name="array", id=id, index=7)).read_text() == f"{id} 7\n"


def test_slurm_tasks_run_on_all_nodes_with_what_was_asked_for(slurm: SlurmCluster) -> None:
    user = slurm.user()
    show = 'echo "$SLURM_PROCID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK"'
    job = Job(
        name="tasks", command=("sh", "-c", show), parallel=Parallel.TASKS, nodes=2, tasks_per_node=2, cpus_per_task=2,
        gpus_per_node=2, gpu_type="a100", memory=1 << 30, time=60, directives=("-p gpu", "--comment=\"a # 'b'\""),
    )  # fmt: skip
    place = make_place(user, job)
    id = submit(user, job, place)
    assert [each.state for each in wait(user, id)] == [State.DONE]
    lines = Path(fill_pattern(place.output, name="tasks", id=id, index=None)).read_text().splitlines()
    assert sorted(lines) == ["0 n1 0,1 2", "1 n1 0,1 2", "2 n2 0,1 2", "3 n2 0,1 2"]


def test_slurm_terminal_of_several_nodes_leaves_them_free_for_srun(slurm: SlurmCluster) -> None:
    user = slurm.user()
    job = Job(name="shell", nodes=2, tasks_per_node=2, gpus_per_node=1, parallel=Parallel.TASKS)
    inside = ["sh", "-c", "srun sh -c 'echo task $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"]
    words = SLURM.interactive_argv(job, SITE, inside)
    done = user.run_program("python3", "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = sorted(line.strip() for line in done.stdout.splitlines() if line.strip("\0 ").startswith("task"))
    assert [line.strip("\0 ") for line in tasks] == ["task n1 0", "task n1 0", "task n2 0", "task n2 0"]
