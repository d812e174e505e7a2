# SPDX-License-Identifier: BSD-3-Clause
"""Whole scripts for Grid Engine's qsub, word by word: tests/golden/gridengine. KEDGE_GOLDEN=write writes them anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.gridengine.backend import BACKEND as GRIDENGINE
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob, KedgeError, RequestRefused
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY, require_program
from tests.wording import assert_reads

WRITE = os.environ.get("KEDGE_GOLDEN") == "write"  # read before tests lose all variables of kedge
GOLDEN = REPOSITORY / "tests/golden/gridengine"
SITE = Site("generic-gridengine", "Grid Engine", "gridengine", options=(("mpi_environment", "mpi-{tasks}"),))
ABCI = Site(
    "abci-like",
    "rt_F",
    "gridengine",
    queues=(Queue("rt_F", resource="rt_F", is_whole_node=True, is_default=True),),
    account_option="-g",
    account_on_command_line=True,
    module_setup=("source /etc/profile.d/modules.sh",),
    modules=("openmpi/4.0.5",),
    drop_directives=("-R",),
)
BASE = Job(name="train", image="/scratch/ada/pytorch.sif", command=("python", "train.py"), time=3600)
IMAGE, CODE = "/scratch/ada/pytorch.sif", "/home/ada/code"
RECORD = "/home/ada/.local/state/kedge/jobs/records/K"
PLACE = ScriptContext(RECORD, "/usr/bin/kedge", IMAGE, "", CODE, CODE + "/{name}-{id}.out", "")
ARRAY = replace(PLACE, output="/home/ada/code/{name}-{id}_{index}.out")

ODD = "/home/ada/a:b, 'c'"
HOSTILE = Job(
    name='1 it\'s "a"/$(job):`of`\n日本 # *?@\\',
    command=("printf", "%s\\n", "a b", "it's\n#$ -q x", '"q"', "$(id)", "two\n#$ -l gpu=9\nlines", "é日本", ""),
    environment=(("NOTE", 'it\'s\n$(id) "x"'), ("MORE", "a\n#$ -P y")),
    setup=("#$ -l comment=1", "true"),
)
FILES = "/home/ada/my work/{name}"
AFTER = (Dependency(DependencyKind.AFTER_OK, "11", "/home/ada/records/J"), Dependency(DependencyKind.AFTER_ANY, "12"))


def make(site: Site = SITE, place: ScriptContext = PLACE, **fields) -> tuple[Job, Site, ScriptContext]:
    return replace(BASE, **fields), site, place


JOBS = {
    "plain": (Job(name="hello", command=("hostname",)), SITE, PLACE),
    "hostile": (HOSTILE, SITE, replace(PLACE, directory=ODD, output=ODD + "/{name}-{id}.out")),
    "container": make(
        place=replace(PLACE, output=FILES + ":{id}.out", error=FILES + ".{id}.err"),
        **{"gpus_per_node": 2, "memory": 64 << 30, "cpus_per_task": 8, "queue": "gpu.q", "account": "proj"},
    ),
    "array": make(SITE, ARRAY, array=JobArray.parse("0-9%3"), dependencies=AFTER),
    "mpi": make(
        replace(SITE, options=(*SITE.options, ("gpu_per_slot", "yes"), ("memory_resource", "mem_free"))),
        **{"parallel": Parallel.MPI, "nodes": 2, "tasks_per_node": 4, "gpus_per_node": 4, "memory_per_cpu": 2 << 30},
    ),
    "abci": make(ABCI, parallel=Parallel.TORCHRUN, command=("train.py",), nodes=2, gpus_per_node=4, account="grp"),
    "changed": make(
        *(replace(SITE, options=(("exclusive", "-l exclusive=true"),)), ARRAY),
        **{"array": JobArray.parse("1-20:2"), "exclusive": True, "constraint": "cpu=skylake", "reservation": "17"},
        **{"begin": "203001010000", "mail": "ada@example.org", "mail_on": ("begin", "fail"), "memory": 1 << 30},
        directives=("#$ -l h_rt=2:00:00,s_rt=1:59:00", "-p -400 -m n", '-A "two words"'),
        drop_directives=("-j", "constraint", "-M", "h_vmem"),
    ),
}


def render(name: str) -> str:
    job, site, place = JOBS[name]
    return GRIDENGINE.render(job, site, place).replace(VERSION, "VERSION")


def directives(script: str) -> list[str]:
    return [line for line in script.splitlines() if line.startswith("#$")]


def ask(site: Site = SITE, **fields: object) -> list[str]:
    return directives(GRIDENGINE.render(replace(BASE, **fields), site, PLACE))  # type: ignore[arg-type]


@each_row("name", JOBS)
def test_gridengine_script_is_as_written_down(name: str) -> None:
    path = GOLDEN / f"{name}.sh"
    if WRITE:
        path.write_text(render(name))
    assert render(name) == path.read_text()


def test_gridengine_scripts_are_clean() -> None:
    # 1078 and 1079 suspect the quotes of texts with several lines, 2016 means text that is not to be expanded
    words = [require_program("shellcheck"), "-s", "bash", "-e", "SC1091,SC2016,SC1078,SC1079"]
    words += [str(GOLDEN / f"{name}.sh") for name in JOBS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    # qsub reads them in the whole file: a user's text must not look like one
    for name in JOBS:
        lines = render(name).splitlines()
        last = max(number for number, line in enumerate(lines) if line.startswith("#$"))
        assert all(line.startswith("#") for line in lines[: last + 1])


@with_rows(
    *(("1a", "j1a"), ("a/b:c@d\\e*f?", "a_b_c_d_e_f_"), ("é", "j_"), ("", "j"), ("-N x", "j-N_x")),
    ("ok-1.2+", "ok-1.2+"),
)
def test_gridengine_name_is_one_that_qsub_takes(name: str, expected: str) -> None:
    assert f"#$ -N {expected}" in ask(name=name)


def test_gridengine_slots() -> None:
    assert not any("-pe" in line for line in ask())
    assert "#$ -pe smp 6" in ask(tasks=2, cpus_per_task=3)
    assert "#$ -pe mpi-6 12" in ask(nodes=2, tasks=4, cpus_per_task=3)
    site = replace(SITE, queues=(Queue("q", parallel_environment="ppn{tasks}", is_default=True),))
    assert "#$ -pe ppn4 8" in ask(site, nodes=2, tasks_per_node=4)
    assert "#$ -pe ppn2 2" in ask(site, cpus_per_task=2)
    assert "#$ -pe threaded 2" in ask(replace(site, options=(("smp_environment", "threaded"),)), cpus_per_task=2)
    site = replace(SITE, options=(("gpu_per_slot", "true"),))
    assert "#$ -l gpu=1" in ask(site, gpus_per_node=4, tasks_per_node=4)
    with pytest.raises(RequestRefused) as caught:
        ask(site, gpus_per_node=4, tasks_per_node=3)
    assert_reads(caught.value.hint, "schedulers/ask-tasks-cpus-per-node", 2, 3)


@with_rows(
    ({"nodes": 2, "tasks_per_node": 2}, "mpi_environment"),
    ({"exclusive": True}, "options.exclusive"),
    ({"qos": "high"}, "--qos"),
    ({"gpus_per_node": 1, "gpu_type": "a100"}, "gpu_directive"),
    ({"dependencies": (Dependency(DependencyKind.AFTER, "7"),)}, "afterany:7"),
    ({"dependencies": (Dependency(DependencyKind.AFTER_OK, "7"),)}, "afterany:7"),
)
def test_gridengine_refuses_what_it_has_no_words_for(fields: dict[str, object], words: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        ask(replace(SITE, options=()), **fields)
    assert words in (caught.value.hint or "")


@each_row("key", ["account", "queue", "reservation", "constraint", "begin", "mail"])
@each_row("value", ["a b", "a\nb", "-x", "a'b", 'a"b'])
def test_gridengine_values_cannot_become_other_directives(key: str, value: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        ask(**{key: value})
    assert caught.value.context["key"] == key


@each_row("text", ["h_rt=1", "-l a=1\nrm -rf ~", "-N 'x", "", "#SBATCH -N 1"])
def test_gridengine_directives_of_users_are_directives(text: str) -> None:
    with pytest.raises(InvalidJob):
        ask(directives=(text,))


def test_gridengine_account_is_on_the_command_line_and_terminals_have_no_batch_options() -> None:
    job, site, place = JOBS["abci"]
    assert GRIDENGINE.submit_argv("/r/script.sh", job, site) == ["qsub", "-terse", "-g", "grp", "/r/script.sh"]
    assert not any("grp" in line for line in directives(GRIDENGINE.render(job, site, place)))
    words = GRIDENGINE.interactive_argv(job, site, ["/bin/kedge", "shell", "a b"])
    assert (words[:5], words[-3:]) == (["qrsh", "-now", "n", "-g", "grp"], ["-pty", "y", "/bin/kedge shell 'a b'"])
    assert words[words.index("rt_F=2") - 1 : words.index("rt_F=2") + 1] == ["-l", "rt_F=2"]
    job, site, _ = JOBS["container"]
    words = GRIDENGINE.interactive_argv(job, site, [])
    assert not {"-o", "-e", "-j", "-S", "-t", "-pty"} & set(words)
    assert {"-cwd", "-q", "-P", "-pe"} <= set(words)


@with_rows(
    ("7\n", "7"),
    ("7.1-3:1\n", "7"),
    ("Welcome to the cluster\n12 days left\n\n4711\n", "4711"),
    ('Your job 8 ("x") has been submitted\n', "8"),
    ('Your job-array 9.1-5:1 ("x") has been submitted\n', "9"),
)
def test_gridengine_id_of_a_submission(output: str, id: str) -> None:
    assert GRIDENGINE.parse_submit(output) == id


@each_row("output", ["", "Unable to run job: denied\nExiting.\n", "12 days left\n"])
def test_gridengine_submission_without_an_id(output: str) -> None:
    with pytest.raises(KedgeError) as caught:
        GRIDENGINE.parse_submit(output)
    assert caught.value.context["said"] == output


def test_gridengine_cancels_tasks() -> None:
    assert GRIDENGINE.cancel_argv(["7", "8_3"]) == ["qdel", "7", "8.3"]
    with pytest.raises(RequestRefused):
        GRIDENGINE.cancel_argv(["7"], "USR1")


def test_gridengine_text_of_users_arrives_where_no_scheduler_is() -> None:
    job, site, place = JOBS["hostile"]
    script = GRIDENGINE.render(job, site, place)
    tail = script[script.index("export NOTE=") :].replace(f"cd {shlex.quote(place.directory)}\n", "")
    tail = re.sub(r"^cd .*$", "", tail, flags=re.MULTILINE)
    shown = subprocess.run(
        ["bash", "-c", f'{tail}\nprintf "%s\\0" "$NOTE" "$MORE"'], capture_output=True, text=True, check=True
    ).stdout
    words, note = shown[: shown.index('it\'s\n$(id) "x"\0')], shown[shown.index('it\'s\n$(id) "x"\0') :]
    assert words == "".join(f"{word}\n" for word in job.command[2:])
    assert note.split("\0")[:2] == [value for _, value in job.environment]
