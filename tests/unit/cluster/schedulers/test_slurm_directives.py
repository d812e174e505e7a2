# SPDX-License-Identifier: BSD-3-Clause
"""What sbatch is asked: nothing unasked for, in the site's words, with the user's own above all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.base.frozen import replace
from kedge.cluster.job import Dependency, DependencyKind, IndexRange, Job, JobArray, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.choose import SCHEDULERS, find_backend
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from kedge.cluster.schedulers.slurm.options import find_name, parse_directives, quote_word, split_words
from kedge.cluster.schedulers.slurm.write_options import format_size, format_time
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob, KedgeError, NoScheduler, RequestRefused, SchedulerFailed
from tests.builders.rows import each_row, with_rows

SITE = Site("generic-slurm", "Slurm", "slurm")
TACC = Site("tacc", "TACC", "slurm", requires=("nodes", "tasks", "time"), gpu_directive="", memory_directive="")
PLACE = ScriptContext("/records/KEY", "/bin/kedge", "", "", "/home/ada", "/home/ada/{name}-{id}.out", "")
GIBI = 1 << 30


def read_directives(job: Job, site: Site = SITE, place: ScriptContext = PLACE) -> list[str]:
    """What stands behind #SBATCH; the name, the output and its mode are in every script."""
    lines = SLURM.render(job, site, place).splitlines()
    assert lines[0] == "#!/bin/bash"
    found = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert lines[1 : 1 + len(found)] == [f"#SBATCH {each}" for each in found], "directives end at the first other line"
    usual = ("--job-name=kedge", "--output=/home/ada/%x-%j.out", "--open-mode=append")
    return [each for each in found if not each.startswith(usual)]


def test_slurm_asks_for_what_was_asked_and_nothing_else() -> None:
    assert read_directives(Job(command=("true",))) == []
    job = Job(
        command=("true",), parallel=Parallel.MPI, nodes=2, tasks=8, tasks_per_node=4, cpus_per_task=3, gpus_per_node=4,
        gpu_type="a100", memory=96 * GIBI, time=93784, exclusive=True, account="proj", queue="gpu", qos="high",
        reservation="course", constraint="a100&nvlink", begin="now+1hour", mail="ada@x.org", mail_on=("begin", "end"),
    )  # fmt: skip
    assert read_directives(job) == [
        "--account=proj", "--partition=gpu", "--qos=high", "--reservation=course", "--nodes=2", "--ntasks=8",
        "--ntasks-per-node=4", "--cpus-per-task=3", "--gpus-per-node=a100:4", "--mem=96G", "--time=1-02:03:04",
        "--exclusive", "--constraint=a100&nvlink", "--begin=now+1hour", "--mail-user=ada@x.org",
        "--mail-type=BEGIN,END",
    ]  # fmt: skip
    assert read_directives(Job(command=("x",), mail="a@b")) == ["--mail-user=a@b", "--mail-type=END,FAIL"]


@with_rows(
    (None, "", "gpu", ["--gpus-per-node=2"]),
    (None, "h100", "gpu", ["--gpus-per-node=h100:2"]),
    ("--gres=gpu:{type}:{count}", "", "", ["--gres=gpu:2"]),
    ("--gres=gpu:{type}:{count}", "", "gpu", ["--gres=gpu:a100:2"]),
    ("--gres=gpu:{type}:{count}", "h100", "gpu", ["--gres=gpu:h100:2"]),
    ("--gres=gpu:{count}", "h100", "gpu", ["--gres=gpu:h100:2"]),
    ("--gpus-per-node={count} --gpu-bind=none", "", "gpu", ["--gpus-per-node=2", "--gpu-bind=none"]),
    ("", "h100", "gpu", []),
)
def test_slurm_asks_for_gpus_in_the_words_of_the_site(directive, kind, queue, expected) -> None:
    site = replace(SITE, gpu_directive=directive, queues=(Queue("gpu", gpu_type="a100"),))
    job = Job(command=("x",), gpus_per_node=2, gpu_type=kind, queue=queue)
    assert [each for each in read_directives(job, site) if not each.startswith("--partition")] == expected


def test_slurm_memory_nodes_tasks_and_time_in_the_words_of_the_site() -> None:
    job = Job(command=("x",), memory=1500 << 20)
    assert read_directives(job) == ["--mem=1500M"]
    assert read_directives(job, replace(SITE, memory_directive="--mem-per-node={size}")) == ["--mem-per-node=1500M"]
    assert read_directives(job, replace(SITE, memory_directive="")) == []
    assert read_directives(job, replace(SITE, refuses=("memory",))) == []
    assert read_directives(Job(command=("x",), memory=0)) == ["--mem=0"], "all of the node"
    assert read_directives(Job(command=("x",), memory_per_cpu=GIBI)) == ["--mem-per-cpu=1G"]
    assert read_directives(Job(command=("x",), memory_per_gpu=GIBI)) == ["--mem-per-gpu=1G"]
    job = Job(command=("x",), gpus_per_node=4, memory=GIBI, time=600)
    assert read_directives(job, TACC) == ["--nodes=1", "--ntasks=1", "--time=00:10:00"]
    per_node = replace(job, parallel=Parallel.MPI, nodes=2, tasks_per_node=4)
    assert read_directives(per_node, TACC) == ["--nodes=2", "--ntasks-per-node=4", "--time=00:10:00"]
    torchrun = replace(job, parallel=Parallel.TORCHRUN, tasks_per_node=4)
    assert read_directives(torchrun, TACC) == ["--nodes=1", "--ntasks-per-node=1", "--time=00:10:00"]
    job = Job(command=("train.py",), parallel=Parallel.TORCHRUN, nodes=2, gpus_per_node=4)
    assert "--ntasks-per-node=1" in read_directives(job)
    assert read_directives(replace(job, nodes=None)) == ["--gpus-per-node=4"]


def test_slurm_array_and_dependencies() -> None:
    job = Job(
        command=("x",),
        array=JobArray((IndexRange(1, 1), IndexRange(4, 10, 2)), 3),
        dependencies=(
            Dependency(DependencyKind.AFTER_OK, "11"),
            Dependency(DependencyKind.AFTER_OK, "12_3"),
            Dependency(DependencyKind.AFTER_ANY, "13"),
        ),
    )
    place = replace(PLACE, output="/o/{name}-{id}_{index}.out", error="/o/{id}.err")
    assert read_directives(job, place=place) == [
        "--array=1,4-10:2%3", "--dependency=afterok:11:12_3,afterany:13", "--output=/o/%x-%A_%a.out",
        "--error=/o/%A.err",
    ]  # fmt: skip
    with pytest.raises(RequestRefused, match="not accept job arrays"):
        SLURM.render(job, replace(SITE, refuses=("arrays",)), PLACE)


@with_rows("-t 30", "-t30", "--time=30", "--time 30", "#SBATCH --time=30", "#SBATCH -t 30 # half an hour", "--tim=30")
def test_slurm_directive_of_the_user_replaces_ours(own: str) -> None:
    found = read_directives(Job(command=("x",), time=600, nodes=2, directives=(own,)))
    assert (len(found), found[0]) == (2, "--nodes=2")
    assert "30" in found[1]


@with_rows(
    ("--tasks-per-node=2", "--ntasks-per-node"),
    *(("-p dev", "--partition"), ("-N1-2", "--nodes"), ("--mem-per-cpu=2G", "--mem")),
    *(("--gres=gpu:a100:1", "--gpus-per-node"), ("-G 8", "--gpus-per-node"), ("-Aother", "--account")),
    ("-o here.txt", "--output"),
)
def test_slurm_directive_replaces_what_excludes_it(own: str, replaced: str) -> None:
    job = Job(
        command=("x",), queue="gpu", nodes=2, tasks_per_node=4, memory=GIBI, gpus_per_node=4, account="p", time=60,
        parallel=Parallel.TASKS, directives=(own,),
    )  # fmt: skip
    found = SLURM.render(job, SITE, PLACE).splitlines()
    assert f"#SBATCH {own}" in found
    assert not [line for line in found if line.startswith(f"#SBATCH {replaced}=")]
    assert "#SBATCH --time=00:01:00" in found


def test_slurm_directives_of_sites_and_users_yield_to_those_above() -> None:
    job = Job(command=("x",), gpus_per_node=2, directives=("--gres=lustre:1", "--licenses=walrus:1 --nice"))
    assert read_directives(job) == ["--gpus-per-node=2", "--gres=lustre:1", "--licenses=walrus:1", "--nice"]
    site = replace(SITE, directives=("--licenses=walrus:1", "--mem-per-cpu=300M --time=1:00:00"))
    assert read_directives(Job(command=("x",)), site) == ["--licenses=walrus:1", "--mem-per-cpu=300M", "--time=1:00:00"]
    assert read_directives(Job(command=("x",), memory=GIBI, directives=("-L horse",)), site) == [
        "--mem=1G", "--time=1:00:00", "-L horse",
    ]  # fmt: skip
    site = replace(SITE, drop_directives=("export",))
    assert read_directives(Job(command=("x",), directives=("--export=NONE",)), site) == ["--export=NONE"]


@each_row("drop", ["mem", "--mem", "--mem=4G", "#SBATCH --mem"])
def test_slurm_drops_what_it_is_told_to(drop: str) -> None:
    job = Job(command=("x",), memory=GIBI, time=60)
    assert read_directives(replace(job, drop_directives=(drop,))) == ["--time=00:01:00"]
    assert read_directives(job, replace(SITE, drop_directives=(drop,))) == ["--time=00:01:00"]
    assert read_directives(replace(job, drop_directives=("t", drop))) == []


@each_row("own", ["mem=4G", "", "#SBATCH", "--comment='open", "--a=b\n--c=d"])
def test_slurm_refuses_what_is_no_directive(own: str) -> None:
    with pytest.raises(InvalidJob):
        SLURM.render(Job(command=("x",), directives=(own,)), SITE, PLACE)


def test_slurm_output_is_a_pattern_that_logs_find() -> None:
    script = SLURM.render(Job(name='a "b"\nc\\', command=("x",)), SITE, PLACE)
    assert '#SBATCH --job-name="a \\"b\\" c\\\\"' in script.splitlines()
    assert "#SBATCH --output=/home/ada/a__b__c_-%j.out" in script.splitlines()
    assert "KEDGE_JOB_NAME='a \"b\"\nc\\'" in script
    place = replace(PLACE, output="/a%j b/{name}.{id}")
    assert read_directives(Job(command=("x",)), place=place) == ['--output="/a%%j b/%x.%j"']
    with pytest.raises(RequestRefused, match="backslash"):
        SLURM.render(Job(command=("x",)), SITE, replace(PLACE, output="/a\\b"))
    renamed = Job(command=("x",), directives=("-J other",))
    assert "--output=/home/ada/kedge-%j.out" in read_directives(renamed)
    nameless = replace(SITE, drop_directives=("job-name",))
    assert read_directives(Job(command=("x",)), nameless) == ["--output=/home/ada/kedge-%j.out"]


def test_slurm_account_goes_to_the_command_line_where_the_site_wants_it() -> None:
    site = replace(SITE, account_on_command_line=True)
    job = Job(command=("x",), account="proj")
    assert read_directives(job, site) == []
    assert SLURM.submit_argv("job.sh", job, site) == ["sbatch", "--parsable", "--account=proj", "job.sh"]
    assert SLURM.submit_argv("job.sh", job, SITE) == ["sbatch", "--parsable", "job.sh"]
    assert SLURM.submit_argv("job.sh", replace(job, drop_directives=("-A",)), site)[2:] == ["job.sh"]
    own = replace(job, directives=("-A other",))
    assert read_directives(own, site) == ["-A other"]
    assert SLURM.submit_argv("job.sh", own, site)[2:] == ["job.sh"]
    assert read_directives(Job(command=("x",)), replace(SITE, account="p")) == ["--account=p"]


@with_rows(
    ("123\n", "123"),
    ("123;cluster-a.b\n", "123"),
    ("*** Welcome to 2 clusters ***\n--> Verifying quota...OK\n4711\n", "4711"),
    *(("Submitted batch job 88\n", "88"), ("Submitted batch job 88 on cluster big\n", "88"), ("12\r\n", "12")),
)
def test_slurm_id_is_found_among_banners(printed: str, id: str) -> None:
    assert SLURM.parse_submit(printed) == id


@each_row("printed", ["", "sbatch: error: no", "job 12 is good", "-5", "12abc"])
def test_slurm_id_that_is_not_there_is_an_error(printed: str) -> None:
    with pytest.raises(SchedulerFailed):
        SLURM.parse_submit(printed)


def test_slurm_backend_and_its_words() -> None:
    assert SLURM.cancel_argv(["1", "2_3"]) == ["scancel", "1", "2_3"]
    assert SLURM.cancel_argv(["1"], "USR1") == ["scancel", "--signal=USR1", "--full", "1"]
    names = {"-t", "-t30", "--time", "--time=30", "time", "t", "#SBATCH --time=3", "--time 30"}
    assert {find_name(each) for each in names} == {"time"}
    assert find_name("--tasks-per-node") == "ntasks-per-node"
    assert find_name("--cpus") == "cpus-per-task", "sbatch takes what is unambiguous"
    assert find_name("--unheard-of=1") == "unheard-of"
    assert find_name("") == ""
    assert [format_size(each) for each in (0, 1, 1 << 20, 3 << 30, 1 << 40, (1 << 30) + 1)] == [
        "0", "1M", "1M", "3G", "1T", "1025M",
    ]  # fmt: skip
    assert [format_time(each) for each in (1, 60, 86399, 86400, 604800)] == [
        "00:00:01", "00:01:00", "23:59:59", "1-00:00:00", "7-00:00:00",
    ]  # fmt: skip
    assert find_backend("slurm") is SLURM
    assert SLURM.name == "slurm"
    assert "slurm" in SCHEDULERS
    with pytest.raises(NoScheduler, match="torque"):
        find_backend("torque")


@given(st.text(max_size=80).filter(lambda text: not any(ord(each) < 32 or ord(each) == 127 for each in text)))
def test_slurm_quoted_words_are_read_back(text: str) -> None:
    assert split_words(quote_word(text)) == [text]
    assert split_words(f"--x {quote_word('--comment=' + text)} y") == ["--x", f"--comment={text}", "y"]


@given(st.text(max_size=80))
def test_slurm_directives_are_read_or_refused(text: str) -> None:
    try:
        found = parse_directives(text)
    except KedgeError:
        return
    assert all(each.words[0].startswith("-") and each.name for each in found)
