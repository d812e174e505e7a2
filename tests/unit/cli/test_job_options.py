# SPDX-License-Identifier: BSD-3-Clause
"""The flags that describe a job: what they make of a job, how they meet a file's values, and that errors name them."""

from __future__ import annotations

import argparse

import pytest

from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import GlobalOptions, Parser, add_globals
from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.job_fields import FIELDS
from kedge.errors import InvalidJob, KedgeError, UsageError
from kedge.system.settings import SETTINGS
from tests.builders.rows import each_row

IMAGE = Job(image="x.sif")


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kedge submit")
    add_job_options(parser)
    parser.add_argument("words", nargs="*")
    add_globals(parser, GlobalOptions())
    return parser


def read(*words: str, base: Job = IMAGE) -> Job:
    return read_job_options(make_parser().parse_args(words), base)


def test_options_say_all_there_is_to_say() -> None:
    job = read(
        *("-J", "my job", "-N2", "-n", "8", "--tasks-per-node=4", "-c", "3", "-G", "a100:4", "--mem", "64G", "-t2h"),
        *("-A", "acc", "--partition", "gpu", "--qos", "q", "--reservation", "r", "-C", "a&b", "--exclusive"),
        *("-a", "0-9%2", "--after", "12", "--dependency", "afterany:3:4", "--begin", "now+1hour", "--mail", "a@b.c"),
        *("--mail-on", "END,fail", "-o", "{name}.out", "-e", "{name}.err", "-B", "a:/a", "--bind=b", "--env", "A=x=y"),
        *("--no-nv", "--option", "--writable-tmpfs", "--runtime", "apptainer", "--module", "cuda", "--setup", "ulimit"),
        *("-D", "/work", "--mpi", "--launcher", "srun", "--pull", "in-job", "--broadcast", "--stage", "never"),
        *("--directive", "--exclude=n1", "--directive=-X", "--drop-directive", "--mem", "--drop-directive", "-t"),
    )  # fmt: skip
    after_any = tuple(Dependency(DependencyKind.AFTER_ANY, id) for id in "34")
    assert job == Job(
        name="my job", image="x.sif", container_options=("--writable-tmpfs",), binds=("a:/a", "b"), nv=False,
        environment=(("A", "x=y"),), runtime="apptainer", modules=("cuda",), setup=("ulimit",), directory="/work",
        parallel=Parallel.MPI, launcher="srun", nodes=2, tasks=8, tasks_per_node=4, cpus_per_task=3, gpus_per_node=4,
        gpu_type="a100", memory=64 << 30, time=7200, exclusive=True, account="acc", queue="gpu", qos="q",
        reservation="r", constraint="a&b", array=JobArray.parse("0-9%2"), begin="now+1hour", mail="a@b.c",
        dependencies=(Dependency(DependencyKind.AFTER_OK, "12"), *after_any), mail_on=("end", "fail"),
        output="{name}.out", error="{name}.err", pull="in-job", broadcast=True, stage="never",
        directives=("--exclude=n1", "-X"), drop_directives=("--mem", "-t"),
    )  # fmt: skip


def test_options_without_flags_leave_the_job_and_last_ones_count() -> None:
    assert read() == IMAGE
    assert vars(make_parser().parse_args([]))["words"] == []
    assert read("-t", "1h", "--time", "2h").time == 7200
    assert read("--nv", "--no-nv").nv is False
    assert read("--gpu-type", "h100", "--gpus", "a100:4").gpu_type == "h100"
    assert read("--gpus", "4", base=Job(image="x", gpu_type="v100")).gpu_type == "v100"


def test_options_override_a_file_and_stay_as_they_are() -> None:
    base = Job(image="x", queue="a", nodes=1, binds=("a",), environment=(("A", "1"),), memory=5, exclusive=True)
    job = read("-p", "b", "--nodes", "2", "-B", "c", "--env", "A=2", "--mem-per-cpu", "1G", "--no-exclusive", base=base)
    assert (job.queue, job.nodes, job.binds, job.environment) == ("b", 2, ("a", "c"), (("A", "2"),))
    assert (job.memory, job.memory_per_cpu, job.exclusive) == (None, 1 << 30, False)
    base = Job(image="x", queue="a", gpus_per_node=4, gpu_type="a100", command=("c",), parallel=Parallel.MPI)
    job = read("--queue", "", "--gpus", "0", "--parallel", "single", base=base)
    assert job == Job(image="x", command=("c",))
    text = "a 'b' \"c\" $(d) `e` \\ \n é #, %s"
    job = read("--name", text, "--env", f"A={text}", "--setup", text)
    assert (job.name, job.environment, job.setup) == (text, (("A", text),), (text,))


@each_row(("words", "message"), [
    (["--time", "90"], "--time: '90' has no unit"),
    (["-t", "1:30"], "-t: '1:30' is 1m30s"),
    (["--partition", "a\nb"], "--partition: "),
    (["--ntasks", "x"], "--ntasks: 'x' is not a whole number"),
    (["-N", "0"], "-N: it cannot be 0"),
    (["--gpus", "all"], "--gpus: 'all' is not a number of GPUs"),
    (["--mem", "64"], "--mem: '64' has no unit"),
    (["--array", "9-0"], "--array: '9-0' counts down"),
    (["--dependency", "singleton:1"], "--dependency: "),
    (["--env", "A"], "--env: 'A' has no value"),
    (["--env", "A-B=1"], "--env: 'A-B' is not a variable name"),
    (["--pull", "later"], "--pull: 'later' is not one of: now, in-job"),
    (["--parallel", ""], "--parallel: "),
    (["--mpi", "--torchrun"], "--mpi and --torchrun contradict each other"),
    (["--mem", "1G", "--mem-per-cpu", "1G"], "--mem-per-cpu: memory already sets"),
    (["--ntasks", "7", "--tasks-per-node", "2"], "--ntasks: 7 tasks cannot be 2"),
    (["--gpu-type", "a100"], "--gpu-type: the number of"),
    (["-o", "%j.out"], "-o: %j is a pattern of Slurm"),
    (["--directive", "a\n#SBATCH b"], "--directive: "),
])  # fmt: skip
def test_options_errors_name_the_flag_as_it_was_written(words: list[str], message: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        read(*words)
    assert caught.value.message.startswith(message)
    assert caught.value.context["flag"].startswith("-")
    assert caught.value.hint


def test_options_mistakes_are_usage_errors() -> None:
    for words, message in ((["--directive"], "expected one argument"), (["--ntask", "3"], "--ntask")):
        with pytest.raises(UsageError, match=message) as caught:
            read(*words)
        assert caught.value.hint
    with pytest.raises(InvalidJob, match="neither an image nor a command"):
        read(base=Job())
    arguments = make_parser().parse_args(["-N", "2"])
    assert read_job_options(arguments, Job(), needs_command=False).nodes == 2
    parser = Parser(prog="kedge alloc")
    add_job_options(parser, without=("array", "output"))
    with pytest.raises(KedgeError, match="--array"):
        parser.parse_args(["--array", "1-2"])


def test_options_help_shows_every_flag_and_sets_no_setting() -> None:
    given = vars(make_parser().parse_args(["--directory", "/work", "--runtime", "kedge"]))
    assert not set(given) & set(SETTINGS)
    text = make_parser().format_help()
    for field in FIELDS:
        for flag in (*field.flags, *(flag for flag, _ in field.constants)):
            assert flag in text
    assert "1-100%10" in text
