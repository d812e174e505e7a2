# SPDX-License-Identifier: BSD-3-Clause
"""Logs of real runs, made with Slurm 22.05, Grid Engine 8.1.9, Open MPI 4.1.4, MPICH 4.0.2 and torch 2.4.1.

Each log in `logs/` was written by a job or program that was started in a wrong way; those that end with `ok` ran well,
and nothing may be found in them. The expected names are in their order: causes before consequences.
"""

from __future__ import annotations

from pathlib import Path

from kedge.compat.failures.catalogue import CONSEQUENCE, GENERAL
from kedge.compat.failures.find_clues import search_pieces
from tests.builders.rows import each_row

LOGS = Path(__file__).with_name("logs")
EXPECTED = {
    "ge-group": "gridengine-refused", "ge-inherit": "inherited-task",
    "ge-mpich-segv": "segmentation-fault hydra-lost launch-aborted", "ge-noqmaster": "gridengine-unreachable",
    "ge-ompi-kill": "killed rank-exited launch-aborted mpi-peer-gone", "ge-ompi-mpich": "singletons",
    "ge-ompi-ok": "", "ge-pe": "gridengine-refused", "ge-qacct": "", "ge-qrsh-now": "not-now",
    "ge-queue": "gridengine-refused", "ge-resource": "gridengine-refused", "ge-slots": "no-slots",
    "ge-verify": "gridengine-refused", "ge-vmem": "memory-error", "mpich-abort": "mpi-abort",
    "mpich-badrank": "mpi-usage", "mpich-host": "ssh-host hydra-lost", "mpich-kill": "killed launch-aborted",
    "mpich-nofinal": "killed launch-aborted", "mpich-nosuch": "mpi-no-program", "mpich-ok": "",
    "mpich-segv": "segmentation-fault launch-aborted", "mpich-trunc": "mpi-usage", "ompi-abort": "mpi-abort",
    "ompi-badrank": "mpi-usage errors-are-fatal", "ompi-btl": "mpi-component mpi-init errors-are-fatal",
    "ompi-exit": "rank-exited launch-aborted", "ompi-host": "ssh-host daemons",
    "ompi-kill": "killed rank-exited launch-aborted", "ompi-mpich": "singletons", "ompi-nofinal": "rank-exited",
    "ompi-nosuch": "mpi-no-program", "ompi-ok": "", "ompi-prefix": "opal-prefix",
    "ompi-prefix2": "opal-prefix mpi-init errors-are-fatal", "ompi-root": "as-root",
    "ompi-segv": "segmentation-fault rank-exited launch-aborted", "ompi-slots": "no-slots",
    "ompi-trunc": "mpi-usage errors-are-fatal", "ompi-ucx": "mpi-component",
    "slurm-arch": "other-architecture rank-exited", "slurm-badmpi": "mpi-type", "slurm-cancel": "cancelled",
    "slurm-chdir": "no-such-file", "slurm-dosline": "dos-lines",
    "slurm-exit": "shared-memory-denied mpi-init killed rank-exited cancelled", "slurm-full": "full-disk rank-exited",
    "slurm-glibc": "old-glibc rank-exited", "slurm-gpus": "step-resources",
    "slurm-kill": "killed rank-exited cancelled", "slurm-memory": "job-memory killed cancelled",
    "slurm-more-tasks": "step-resources", "slurm-mpirun-mpich": "singletons", "slurm-mpirun-ok": "",
    "slurm-mpirun-segv": "segmentation-fault rank-exited launch-aborted mpi-peer-gone",
    "slurm-nomodule": "no-module rank-exited",
    "slurm-none-ompi": "no-slurm-pmi pmix-unreachable mpi-init rank-exited errors-are-fatal",
    "slurm-nosuch": "no-such-program rank-exited", "slurm-notfound": "command-not-found",
    "slurm-permission": "script-denied", "slurm-pmi2-mpich-ok": "",
    "slurm-pmi2-ompi": "no-slurm-pmi pmix-unreachable mpi-init rank-exited errors-are-fatal",
    "slurm-pmix-mpich": "singletons", "slurm-pmix-ompi-ok": "", "slurm-pyxis": "no-pyxis", "slurm-sacct": "",
    "slurm-sb-dos": "dos-lines", "slurm-sb-gpus": "refused-request", "slurm-sb-mem": "refused-request",
    "slurm-sb-noshebang": "no-shebang", "slurm-sb-part": "refused-request", "slurm-sb-pyxis": "no-pyxis",
    "slurm-segv": "segmentation-fault time-limit rank-exited", "slurm-srun-memory": "job-memory killed cancelled",
    "slurm-timelimit": "time-limit", "slurm-ulimit": "threads", "torch-cuda": "torch-without-cuda torchrun-child",
    "torch-env": "missing-rank-variables", "torch-file": "no-such-file torchrun-child peer-gone",
    "torch-iface": "gloo-interface torchrun-child", "torch-kill": "killed torchrun-child",
    "torch-name": "master-name", "torch-nccl": "no-nccl torchrun-child", "torch-ok": "", "torch-port": "port-taken",
    "torch-raise": "python-exception torchrun-child peer-gone", "torch-rdzv": "rendezvous-timeout",
    "torch-segv": "segmentation-fault torchrun-child", "train-ok": "",
}  # fmt: skip
# what ranks of a run name as the one that failed first
FIRST_RANKS = {"torch-file": "1", "torch-raise": "1", "ompi-segv": "1", "slurm-segv": "1", "slurm-kill": "1"}


def test_logs_have_an_expectation_each() -> None:
    assert sorted(path.stem for path in LOGS.glob("*.log")) == sorted(EXPECTED)
    clue = search_pieces([(LOGS / "ompi-exit.log").read_bytes()])[0]
    assert (clue.level, clue.rank) == (CONSEQUENCE, "1")
    assert search_pieces([(LOGS / "torch-raise.log").read_bytes()])[0].level == GENERAL


@each_row("name", EXPECTED)
def test_log_of_a_real_run_is_explained(name: str) -> None:
    clues = search_pieces([(LOGS / f"{name}.log").read_bytes()])
    assert " ".join(clue.name for clue in clues) == EXPECTED[name]
    lines = (LOGS / f"{name}.log").read_text().splitlines()
    for clue in clues:
        assert clue.line.split()[-1] in " ".join(lines[clue.number - 1 : clue.number + 20]), clue


@each_row("name", [name for name in EXPECTED if name.endswith("ok")])
def test_log_of_a_run_that_went_well_has_nothing(name: str) -> None:
    assert search_pieces([(LOGS / f"{name}.log").read_bytes()], notes=True) == ()


@each_row("name", FIRST_RANKS)
def test_log_names_the_rank_that_failed_first(name: str) -> None:
    first = search_pieces([(LOGS / f"{name}.log").read_bytes()])[0]
    assert first.rank == FIRST_RANKS[name]


@each_row("name", [*EXPECTED][::4])
def test_log_is_explained_alike_in_small_pieces(name: str) -> None:
    data = (LOGS / f"{name}.log").read_bytes()
    pieces = [data[place : place + 997] for place in range(0, len(data), 997)]
    assert search_pieces(pieces, notes=True) == search_pieces([data], notes=True)
