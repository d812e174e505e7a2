# SPDX-License-Identifier: BSD-3-Clause
"""Whole scripts for PBS's qsub, word by word: tests/golden/pbs. KEDGE_GOLDEN=write writes them anew."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.pbs.backend import BACKEND as PBS
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob, KedgeError, RequestRefused
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY, require_program

WRITE = os.environ.get("KEDGE_GOLDEN") == "write"  # read before tests lose all variables of kedge
GOLDEN = REPOSITORY / "tests/golden/pbs"
SITE = Site("generic-pbs", "PBS", "pbs")
ABCI = Site(
    "abci3-like",
    "rt_HF",
    "pbs",
    queues=(Queue("rt_HF", is_whole_node=True, gpus_per_node=8), Queue("rt_HG", gpus_per_node=1)),
    account_option="-P",
    gpu_directive="",
    memory_directive="",
    options=(("cpu_resource", ""), ("reservation_variable", "RTYPE")),
)
BASE = Job(name="train", image="/scratch/ada/pytorch.sif", command=("python", "train.py"), time=3600)
IMAGE, CODE = "/scratch/ada/pytorch.sif", "/home/ada/code"
RECORD = "/home/ada/.local/state/kedge/jobs/records/K"
PLACE = ScriptContext(RECORD, "/usr/bin/kedge", IMAGE, "", CODE, CODE + "/{name}-{id}.out", "")
ARRAY = replace(PLACE, output="/home/ada/code/{name}-{id}_{index}.out")

ODD = "/home/ada/a:b, 'c'"
HOSTILE = Job(
    name='1 it\'s "a"/$(job):`of`\n日本 # *?@\\',
    command=("printf", "%s\\n", "a b", "it's", '"q"', "$(id)", "two\n#PBS -l gpu=9\nlines", "é日本", ""),
    environment=(("NOTE", 'it\'s\n$(id) "x"'),),
)
AFTER_OK, AFTER_ANY, TORCHRUN = DependencyKind.AFTER_OK, DependencyKind.AFTER_ANY, Parallel.TORCHRUN
AFTER = (Dependency(AFTER_OK, "11.pbs1", "/home/ada/records/J"), Dependency(AFTER_OK, "12[].pbs1"))


def make(site: Site = SITE, place: ScriptContext = PLACE, **fields) -> tuple[Job, Site, ScriptContext]:
    return replace(BASE, **fields), site, place


JOBS = {
    "plain": (Job(name="hello", command=("hostname",)), SITE, PLACE),
    "hostile": (HOSTILE, SITE, replace(PLACE, record="/home/ada/a b", directory=ODD, output=ODD + "/{name}.out")),
    "container": make(
        place=replace(PLACE, error="/home/ada/code/{name}.{id}.err"),
        **{"gpus_per_node": 2, "memory": 64 << 30, "cpus_per_task": 8, "queue": "gpu", "account": "proj"},
        exclusive=True,
    ),
    "array": make(
        SITE, ARRAY, array=JobArray.parse("0-99%10"), dependencies=(*AFTER, Dependency(AFTER_ANY, "13.pbs1"))
    ),
    "list": make(SITE, ARRAY, array=JobArray.parse("3,5,10-12")),
    "mpi": make(
        parallel=Parallel.MPI, nodes=2, tasks_per_node=4, cpus_per_task=2, gpus_per_node=4, memory=(1 << 30) - 1
    ),
    "abci": make(
        ABCI, parallel=TORCHRUN, command=("train.py",), nodes=2, gpus_per_node=8, account="grp", queue="rt_HF"
    ),
    "changed": make(
        *(SITE, ARRAY),
        **{"array": JobArray.parse("7"), "constraint": "cputype=milan", "begin": "203001010000"},
        **{"mail": "ada@example.org", "mail_on": ("end",), "drop_directives": ("-j", "-M")},
        directives=("#PBS -lwalltime=2:00:00", "-W umask=022", '-v A=1,B="x y"', "-k oed"),
    ),
}


def render(name: str) -> str:
    job, site, place = JOBS[name]
    return PBS.render(job, site, place).replace(VERSION, "VERSION")


def ask(site: Site = SITE, **fields: object) -> list[str]:
    script = PBS.render(replace(BASE, **fields), site, PLACE)  # type: ignore[arg-type]
    return [line for line in script.splitlines() if line.startswith("#PBS")]


@each_row("name", JOBS)
def test_pbs_script_is_as_written_down(name: str) -> None:
    path = GOLDEN / f"{name}.sh"
    if WRITE:
        path.write_text(render(name))
    assert render(name) == path.read_text()


def test_pbs_scripts_are_clean_and_export_nothing() -> None:
    words = [require_program("shellcheck"), "-s", "bash", "-e", "SC2016", *(GOLDEN / f"{name}.sh" for name in JOBS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert not any(line == "#PBS -V" for name in JOBS for line in render(name).splitlines())


@with_rows(
    *(({}, "select=1"), ({"nodes": 3}, "select=3"), ({"cpus_per_task": 4}, "select=1:ncpus=4")),
    ({"tasks": 4, "nodes": 2}, "select=2:ncpus=2:mpiprocs=2"),
    ({"tasks": 4, "nodes": 2, "parallel": Parallel.MPI}, "select=2:ncpus=2:mpiprocs=2"),
    ({"gpus_per_node": 2, "memory_per_gpu": 5 << 30}, "select=1:ngpus=2:mem=10gb"),
    ({"cpus_per_task": 4, "memory_per_cpu": 1 << 30}, "select=1:ncpus=4:mem=4gb"),
    ({"memory": 1}, "select=1:mem=1mb"),
    *(({"memory": 1023 << 20}, "select=1:mem=1023mb"), ({"memory": 1 << 40}, "select=1:mem=1024gb")),
    ({"gpus_per_node": 2, "memory_per_cpu": 1 << 20}, "select=1:ngpus=2:mem=1mb"),
)
def test_pbs_chunks(fields: dict[str, object], select: str) -> None:
    assert f"#PBS -l {select}" in ask(**fields)


def test_pbs_chunks_are_spread_over_nodes_and_counted_in_fixed_queues() -> None:
    assert "#PBS -l place=scatter:excl" in ask(nodes=2, exclusive=True)
    assert not any("place" in line for line in ask())
    assert not any("place" in line for line in ask(ABCI, nodes=2, queue="rt_HF"))
    assert "#PBS -l select=1" in ask(ABCI, queue="rt_HG", cpus_per_task=4, gpus_per_node=1, memory=1 << 30)
    assert "#PBS -l select=2:mpiprocs=8" in ask(ABCI, queue="rt_HF", nodes=2, tasks_per_node=8, parallel=Parallel.MPI)
    assert {"#PBS -q R77", "#PBS -v RTYPE=rt_HF"} <= set(ask(ABCI, queue="rt_HF", reservation="R77"))
    site = replace(SITE, queues=(Queue("all", is_default=True, is_whole_node=True, cpus_per_node=8),))
    text = PBS.render(replace(BASE, nodes=2, tasks_per_node=4), site, PLACE)
    assert "#PBS -l select=2:ncpus=4:mpiprocs=4\n#PBS -l place=scatter\n" in text


def test_pbs_words_of_sites_and_users() -> None:
    site = replace(SITE, gpu_directive="ngpus={count}:gpu_model={type}", memory_directive="-l pmem={size}")
    lines = ask(site, gpus_per_node=1, gpu_type="a100", memory=2 << 30)
    assert {"#PBS -l select=1:ngpus=1:gpu_model=a100", "#PBS -l pmem=2gb"} <= set(lines)
    with pytest.raises(RequestRefused):
        ask(site, gpus_per_node=1)
    with pytest.raises(RequestRefused):
        ask(gpus_per_node=1, gpu_type="a100")
    assert [line for line in ask(directives=("-l walltime=5",)) if "walltime" in line] == ["#PBS -l walltime=5"]
    assert [line for line in ask(directives=("-lselect=4",)) if "select" in line] == ["#PBS -l select=4"]
    assert not any("walltime" in line for line in ask(drop_directives=("walltime",)))
    assert not any(" -l " in line for line in ask(drop_directives=("-l",)))


@each_row("name", ["1a", "a/b:c", "é", "", "x" * 500])
def test_pbs_name_is_one_that_qsub_takes(name: str) -> None:
    [line] = [line for line in ask(name=name) if " -N " in line]
    assert re.fullmatch(r"#PBS -N [A-Za-z][A-Za-z0-9_+.-]{0,229}", line)


@each_row("key", ["account", "queue", "reservation", "constraint", "begin", "mail"])
@each_row("value", ["a b", "a\nb", "-x", "a'b"])
def test_pbs_values_cannot_become_other_directives(key: str, value: str) -> None:
    with pytest.raises(InvalidJob):
        ask(**{key: value})


def test_pbs_submission_and_terminals() -> None:
    job, site, _ = JOBS["abci"]
    words = PBS.interactive_argv(job, site, ["/bin/kedge", "shell"])
    assert words == [
        "qsub", "-I", "-N", "train", "-l", "select=2", "-l", "walltime=1:00:00", "-q", "rt_HF", "-P", "grp",
    ]  # fmt: skip
    job, site, _ = JOBS["abci"]
    assert PBS.submit_argv("/r/script.sh", job, site) == ["qsub", "/r/script.sh"]
    outside = replace(site, account_on_command_line=True)
    assert PBS.submit_argv("/r/script.sh", job, outside) == ["qsub", "-P", "grp", "/r/script.sh"]
    assert PBS.parse_submit("1234.pbs1\n") == "1234.pbs1"
    assert PBS.parse_submit("INFO: points left: 12\n1234[].pbs1.example.org\n") == "1234[].pbs1.example.org"
    with pytest.raises(KedgeError):
        PBS.parse_submit("qsub: Unauthorized Request \n")


@with_rows(
    *(("2036-01-02T03:04:05", "203601020304.05"), ("2036-01-02T03:04", "203601020304")),
    *(("2036-01-02 03:04", "203601020304"), ("2036-01-02", "203601020000"), ("01020304", "01020304")),
)
def test_pbs_begins_when_slurm_would(said: str, written: str) -> None:
    assert f"#PBS -a {written}\n" in PBS.render(replace(BASE, begin=said), SITE, PLACE)


def test_pbs_launcher_of_another_runtime_reaches_nodes_without_ssh() -> None:
    job = replace(BASE, nodes=2, tasks_per_node=2, parallel=Parallel.MPI, runtime="apptainer")
    text = PBS.render(job, SITE, PLACE)
    assert 'exec pbs_tmrsh "$host" /bin/sh -c "$*"' in text
    assert 'export OMPI_MCA_plm_rsh_agent="/bin/sh $node_shell"' in text
    assert "pbs_tmrsh" not in PBS.render(replace(job, nodes=1), SITE, PLACE)
    assert "pbs_tmrsh" not in PBS.render(replace(job, runtime="kedge"), SITE, PLACE), "kedge launch does that"


def test_pbs_cancels_and_queries() -> None:
    assert PBS.cancel_argv(["12.pbs1", "13[].pbs1_4"]) == ["qdel", "12.pbs1", "13[4].pbs1"]
    assert PBS.cancel_argv(["12.pbs1"], "USR1") == ["qsig", "-s", "USR1", "12.pbs1"]
    assert PBS.list_query("ada").argv == ("qstat", "-f", "-w", "-t", "-u", "ada")
    history = PBS.history_query(["1.pbs1", "2[].pbs1"], 0.0)
    assert history.argv == ("qstat", "-x", "-f", "-w", "-t", "1.pbs1", "2[].pbs1")
    assert history.may_fail
    detail = PBS.detail_query("1.pbs1")
    assert (detail.argv, detail.may_fail) == (("qstat", "-f", "-w", "-t", "1.pbs1"), True)
    assert PBS.parse_submit("welcome\n7.pbs1\n8[].pbs1\n") == "8[].pbs1"
    reserved = ask(reservation="R1", queue="gpu")
    assert ("#PBS -q R1" in reserved, [line for line in reserved if " -v " in line]) == (True, [])
