# SPDX-License-Identifier: BSD-3-Clause
"""The words of every launcher, for a launch and for a script, and how they label lines and say which rank failed."""

from __future__ import annotations

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import LAUNCHERS, Job, Parallel
from kedge.cluster.job_rules import check_job
from kedge.cluster.launchers.known import PROGRAMS, find_launch_program, list_launchers
from kedge.cluster.launchers.open_mpi import list_settings
from kedge.cluster.launchers.own import label_line, tell_end
from kedge.cluster.launchers.program import RankEnd, ShellText, StartRequest, flatten, glue
from kedge.cluster.schedulers.script_body import kedge_launch_words, needs_master, torchrun_words
from kedge.cluster.schedulers.slurm.write_script import DIALECT
from kedge.cluster.site import Site
from kedge.errors import InvalidJob, LaunchRefused
from tests.builders.rows import each_row, with_rows

EVEN = StartRequest(4, 2, 2, ends_together=True, is_labelled=True)
UNEVEN = StartRequest(3, 2, 0, hosts=(("a", 2), ("b", 1)), ends_together=True, is_labelled=True)


def list_words(name: str, request: StartRequest, family: str = "") -> str:
    return " ".join(flatten(find_launch_program(name, family).list_words(request)))


@with_rows(
    ("srun", "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --kill-on-bad-exit=1 --label"),
    ("ibrun", "ibrun -n 4"),
    ("mpirun", "mpirun -np 4 --map-by ppr:2:node --tag-output"),
    ("mpiexec", "mpiexec -n 4 -ppn 2 -prepend-rank -genvall"),
    ("local", ""),
)
def test_words_of_a_launch(name: str, words: str) -> None:
    assert list_words(name, EVEN) == words


def test_launchers_have_words_of_their_own() -> None:
    words = "mpirun -np 4 --map-by ppr:2:node --output tag-fullname"
    assert list_words("mpirun", replace(EVEN, version="5.0.7")) == words
    assert find_launch_program("mpirun", "").split_label("[prterun-vm-1@1,2]<stdout>:  x") == (2, " x")
    # Open MPI's aborts if it is started as /bin/mpirun: what is above bin becomes its prefix.
    assert list_words("mpirun", replace(EVEN, program="/bin/mpirun")).startswith("mpirun -np")
    assert list_words("mpirun", replace(EVEN, program="/opt/bin/mpirun")).startswith("/opt/bin/mpirun -np")
    assert list_words("mpirun", StartRequest(1, 1, 1, variables=("A", "B"))).endswith("-x A -x B")
    assert list_words("qrsh", StartRequest(2, 1, 2, hosts=(("ge02", 2),))) == "qrsh -inherit -V ge02"
    request = StartRequest(2, 1, 2, mpi_type="pmi2", cpus_per_task="4", options=("--overlap",), is_counted=False)
    assert list_words("srun", request) == "srun --mpi=pmi2 --cpus-per-task=4 --overlap"
    assert isinstance(glue("--cpus-per-task=", ShellText('"$N"')), ShellText)
    assert not isinstance(glue("--cpus-per-task=", "4"), ShellText)


@with_rows(
    ("srun", "", "srun --nodes=2 --ntasks=3 --kill-on-bad-exit=1 --label"),
    ("mpirun", "Open MPI", "mpirun -np 3 --host a:2,b:1 --map-by slot --tag-output"),
    ("mpirun", "MPICH", "mpiexec -n 3 -hosts a:2,b:1 -prepend-rank -genvall"),
    ("mpiexec", "Intel MPI", "mpiexec -n 3 -machine a:2,b:1 -prepend-rank -genvall"),
)
def test_words_where_nodes_differ(name: str, family: str, words: str) -> None:
    assert list_words(name, UNEVEN, family) == words


@each_row(("cpus", "is_bound"), [("", True), ("1", True), ("4", False)])
def test_open_mpi_binds_to_one_core_only_ranks_that_have_one(cpus: str, is_bound: bool) -> None:
    words = list_words("mpirun", StartRequest(2, 1, 2, cpus_per_task=cpus, is_labelled=True))
    assert ("--bind-to none" not in words) == is_bound


def test_every_launcher_that_a_job_can_name_is_there() -> None:
    assert {*PROGRAMS, "none"} == set(LAUNCHERS)
    with pytest.raises(LaunchRefused, match="does not know the launcher 'aprun'"):
        find_launch_program("aprun")
    assert list_launchers("library") == ("mpirun", "mpiexec", "orterun", "mpiexec.hydra")
    assert "pbsdsh" in list_launchers("nodes")


def test_open_mpi_starts_without_ssh_on_one_host_and_as_root() -> None:
    alone = dict(list_settings({}, is_alone=True, has_ssh=False, is_root=False))
    assert alone == {"OMPI_MCA_plm_rsh_agent": "false", "PRTE_MCA_plm_ssh_agent": "false"}
    assert not list_settings({"OMPI_MCA_plm": "isolated"}, is_alone=True, has_ssh=False, is_root=False)
    assert not list_settings({}, is_alone=False, has_ssh=False, is_root=False)
    as_root = list_settings({"PRTE_ALLOW_RUN_AS_ROOT": "1"}, is_alone=True, has_ssh=True, is_root=True)
    assert [name for name, _ in as_root] == [
        *("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"),
    ]


@with_rows(
    *(("srun", "0: hello", (0, "hello")), ("srun", " 12: a: b", (12, "a: b")), ("srun", "3: ", (3, ""))),
    ("srun", "srun: error: n1: task 0: Killed", (None, "srun: error: n1: task 0: Killed")),
    ("mpirun", "[1,3]<stdout>:hello", (3, "hello")),
    ("mpirun", "[1,10]<stderr>:  x\n", (10, "  x\n")),
    ("mpirun", "[1,0]<stdout>:a line[1,0]<stdout>:\n", (0, "a line\n")),
    ("mpirun", "[1,0]<stdout>:of[1,0]<stdout>: two[1,1]<stdout>:\n", (0, "of two[1,1]<stdout>:\n")),
    ("mpirun", "[prterun-vm-4711@1,2]<stdout>:  five", (2, " five")),
    ("mpirun", "[prterun-vm-4711@1,2]<stdout>: five", (2, "five")),
    ("mpirun", "mpirun noticed that", (None, "mpirun noticed that")),
    ("mpiexec", "[7] hello", (7, "hello")),
    ("mpiexec", "[proxy:0:0@vm] gone", (None, "[proxy:0:0@vm] gone")),
    ("ibrun", "0: hello", (None, "0: hello")),
    ("local", "5: hello: you", (5, "hello: you")),
)
def test_labels_are_taken_off(name: str, line: str, split: tuple[int | None, str]) -> None:
    assert find_launch_program(name).split_label(line) == split


@with_rows(
    ("srun", "srun: error: gpu02: task 3: Exited with exit code 7", RankEnd(3, 7, "gpu02")),
    ("srun", "srun: error: n1: tasks 0-3: Exited with exit code 1", RankEnd(0, 1, "n1")),
    ("srun", "srun: error: n1: task 1: Killed", RankEnd(1, 137, "n1")),
    ("srun", "srun: error: n1: task 1: Segmentation fault (core dumped)", RankEnd(1, 139, "n1")),
    ("srun", "srun: error: n1: task 2: Out Of Memory", RankEnd(2, 137, "n1")),
    ("srun", "srun: job 12 queued and waiting for resources", None),
    ("mpirun", "  Process name: [[8430,1],1]", RankEnd(1)),
    ("mpirun", "  Process name: [prterun-vm-99@1,4]", RankEnd(4)),
    ("mpirun", "  Exit code:    5", RankEnd(status=5)),
    (
        "mpirun",
        "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 6 (Aborted).",
        RankEnd(2, 134, "vm"),
    ),
    ("mpirun", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", RankEnd(3)),
    ("mpirun", "with errorcode 9.", RankEnd(status=9)),
    ("mpiexec", "=   PID 19578 RUNNING AT vm", RankEnd(None, None, "vm", 19578)),
    ("mpiexec", "=   RANK 1 PID 77 RUNNING AT n1", RankEnd(1, None, "n1", 77)),
    ("mpiexec", "=   EXIT CODE: 3", RankEnd(status=3)),
    ("mpiexec", "=   KILLED BY SIGNAL: 9 (Killed)", RankEnd(status=137)),
    ("mpiexec", "Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort", RankEnd(1, 5)),
    ("mpiexec", "=   CLEANING UP REMAINING PROCESSES", None),
    ("ibrun", "=   EXIT CODE: 3", RankEnd(status=3)),
)
def test_ends_are_read(name: str, line: str, end: RankEnd | None) -> None:
    assert find_launch_program(name).read_end(line) == end


def test_own_lines_are_read_as_they_are_written() -> None:
    program = find_launch_program("local")
    assert program.split_label(label_line(4, "x")) == (4, "x")
    assert program.read_end(tell_end(4, 137, "n1")) == RankEnd(4, 137, "n1")


SITE = Site("generic-slurm", "Slurm", "slurm", gpu_directive="--gpus-per-node={count}")
JOB = Job(name="train", image="/a.sif", command=("train.py",), parallel=Parallel.TORCHRUN, gpus_per_node=4)


@each_row(("processes", "words"), [(None, []), (2, ["--processes 2"])])
def test_launch_words_have_the_processes_of_the_job(processes: int | None, words: list[str]) -> None:
    job = replace(JOB, processes=processes)
    assert kedge_launch_words(job, SITE, DIALECT)[3:] == words
    assert f"--nproc_per_node={processes or 4}" in torchrun_words(job, SITE, DIALECT, ["torchrun"])


RUN, LAUNCH = ["python", "-m", "torch.distributed.run"], ["python", "-m", "torch.distributed.launch", "--use_env"]


def test_an_older_pytorch_is_started_by_what_it_has() -> None:
    assert torchrun_words(JOB, SITE, DIALECT, RUN) == [*RUN, "--standalone", "--nproc_per_node=4", "train.py"]
    assert not needs_master(JOB, RUN)
    # before 1.9 nothing finds a free port
    assert needs_master(JOB, LAUNCH)
    words = torchrun_words(JOB, SITE, DIALECT, LAUNCH)
    assert "--standalone" not in words
    assert words[-4:] == ["--master_addr=127.0.0.1", '--master_port="$MASTER_PORT"', "--nproc_per_node=4", "train.py"]
    script = torchrun_words(replace(JOB, nodes=2), SITE, DIALECT, LAUNCH)[2]
    assert script.startswith("'exec python -m torch.distributed.launch --use_env --nnodes=2 --nproc_per_node=4 ")


def test_launch_words_of_processes_need_torchrun() -> None:
    assert check_job(replace(JOB, processes=2))
    with pytest.raises(InvalidJob, match="processes: only torchrun starts several processes per task"):
        check_job(replace(JOB, processes=2, parallel=Parallel.MPI))
