# SPDX-License-Identifier: BSD-3-Clause
"""Why a job waits or failed, in sentences that say what to do."""

from __future__ import annotations

import re

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from tests.builders.rows import each_row, with_rows

# what job_reason_codes.html of Slurm lists, for jobs that wait
_REASONS = """
AccountNotAllowed AssocGrpBB AssocGrpBilling AssocGrpCpuLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit
AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes AssocGrpJobsLimit AssocGrpMemLimit AssocGrpNodeLimit
AssocGrpSubmitJobsLimit AssocGrpWallLimit AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
AssocMaxCpuPerJobLimit AssocMaxGRESPerJob AssocMaxJobsLimit AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit
AssocMaxWallDurationPerJobLimit BadConstraints BeginTime BurstBufferResources BurstBufferStageIn Cleaning Dependency
DependencyNeverSatisfied FrontEndDown InvalidAccount InvalidQOS JobArrayTaskLimit JobHeldAdmin JobHeldUser
JobHoldMaxRequeue Licenses MaxMemPerLimit NodeDown None PartitionConfig PartitionDown PartitionInactive
PartitionNodeLimit PartitionTimeLimit Priority Prolog QOSGrpCpuLimit QOSGrpGRES QOSGrpJobsLimit QOSGrpMemLimit
QOSGrpNodeLimit QOSGrpWallLimit QOSJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerUserLimit QOSMaxGRESPerJob
QOSMaxGRESPerUser QOSMaxGRESPerAccount QOSMaxJobsPerAccountLimit QOSMaxJobsPerUserLimit QOSMaxMemoryPerUser
QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit
QOSMinCpuNotSatisfied QOSMinGRES QOSMinMemory QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold
ReqNodeNotAvail Reservation ReservationDeleted Resources WaitingForScheduling
"""

_STUCK = """
AccountNotAllowed AssociationTimeLimit AssocMaxCpuPerJobLimit AssocMaxGRESPerJob AssocMaxNodePerJobLimit
AssocMaxWallDurationPerJobLimit BadConstraints DependencyNeverSatisfied InvalidAccount InvalidQOS
JobHoldMaxRequeue MaxMemPerLimit PartitionConfig PartitionTimeLimit QOSMaxCpuPerJobLimit QOSMaxGRESPerJob
QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied QOSMinGRES QOSMinMemory
QOSNotAllowed QOSTimeLimit ReservationDeleted
"""


def waiting(reason: str, index: int | None = None) -> str:
    state = State.HELD if "Held" in reason else State.QUEUED
    return SLURM.explain(JobStatus("12", state, "PENDING", index, reason=reason, queue="gpu"))


def ended(state: State, raw: str, reason: str = "", code: int = 0, signal: int | None = None, **more: object) -> str:
    status = JobStatus("12", state, raw, reason=reason, exit_code=code, signal=signal, **more)  # type: ignore[arg-type]
    return SLURM.explain(status)


@each_row("reason", _REASONS.split())
def test_reason_has_a_sentence_of_its_own(reason: str) -> None:
    sentence = waiting(reason)
    assert sentence[0].islower()
    assert not sentence.endswith(".")
    assert "Slurm's reason" not in sentence
    assert "{" not in sentence
    assert not re.search(r"[a-z][A-Z]", re.sub(r"'scontrol [^']*'", "", sentence)), "a word of Slurm's"


@with_rows(
    ("Priority", ("higher priority", "squeue --start -j 12")),
    ("PartitionTimeLimit", ("more time", "the partition gpu", "scontrol update JobId=12 TimeLimit=")),
    ("QOSMaxJobsPerUserLimit", ("your jobs", "running jobs", "QOS")),
    ("QOSMaxGRESPerUser", ("your jobs", "GPUs")),
    ("QOSMinGRES", ("too little (GPUs", "never starts", "--gpus", "kedge cancel 12")),
    ("AssocGrpCPUMinutesLimit", ("CPU minutes", "used up", "--account")),
    ("AssocMaxWallDurationPerJobLimit", ("more run time", "the account", "kedge cancel 12")),
    ("DependencyNeverSatisfied", ("never starts", "kedge cancel 12")),
    ("JobHeldUser", ("scontrol release 12",)),
    ("launch_failed_requeued_held", ("could not start", "scontrol release 12")),
    ("ReqNodeNotAvail, Reserved for maintenance", ("maintenance", "shorter --time")),
    ("ReqNodeNotAvail,_UnavailableNodes:n[1-2]", ("n[1-2]", "sinfo -R")),
    ("ReqNodeNotAvail(Unavailable:n1)", ("reserved",)),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", ("sinfo -R",)),
    ("SomethingNew, of 2030", ("Slurm's reason: SomethingNew, of 2030",)),
)
def test_reason_says_what_helps(reason: str, parts: tuple[str, ...]) -> None:
    sentence = waiting(reason)
    assert all(part in sentence for part in parts), sentence


def test_reason_that_never_goes_away_is_known() -> None:
    """All others end by themselves, or when who holds the job lets it go."""
    stuck = [each for each in _REASONS.split() if SLURM.is_stuck(JobStatus("12", State.QUEUED, "PENDING", reason=each))]
    assert stuck == _STUCK.split()
    assert SLURM.is_stuck(JobStatus("12", State.HELD, "PENDING", reason="launch_failed_requeued_held"))
    assert not SLURM.is_stuck(JobStatus("12", State.RUNNING, "RUNNING", reason="BadConstraints"))
    assert not SLURM.is_stuck(JobStatus("12", State.CANCELLED, "CANCELLED", reason="DependencyNeverSatisfied"))
    assert "scontrol release 12_3" in waiting("JobHeldUser", 3)


@with_rows(
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 3), ("exit code 3",)),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 126), ("exit code 126", "executable")),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 127), ("exit code 127", "not found")),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 137), ("exit code 137", "SIGKILL", "--mem")),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 139), ("exit code 139", "SIGSEGV")),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 143), ("exit code 143", "SIGTERM")),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 255), ("exit code 255", "container")),
    (ended(State.FAILED, "FAILED", "NonZeroExitCode", 200), ("exit code 200; its output",)),
    (ended(State.FAILED, "FAILED", "JobLaunchFailure", 0, 9), ("SIGKILL",)),
    (ended(State.FAILED, "FAILED", "JobLaunchFailure", 0, 53), ("output file", "directory")),
    (ended(State.FAILED, "FAILED", "RaisedSignal:11", 0, 11), ("SIGSEGV",)),
    (ended(State.FAILED, "FAILED", "", 0, 60), ("signal 60",)),
    (ended(State.FAILED, "FAILED", "JobLaunchFailure"), ("could not start it",)),
    (ended(State.FAILED, "FAILED", "BadConstraints", 0, 1), ("never started", "request less")),
    (ended(State.FAILED, "FAILED"), ("failed",)),
    (ended(State.TIMEOUT, "TIMEOUT", "TimeLimit", 0, 15, time_limit=5400), ("time limit of 1:30:00", "--time")),
    (ended(State.TIMEOUT, "TIMEOUT"), ("time limit;", "--time")),
    (ended(State.TIMEOUT, "DEADLINE"), ("deadline",)),
    (ended(State.OUT_OF_MEMORY, "OUT_OF_MEMORY", "OutOfMemory", 0, 125), ("memory limit", "--mem")),
    (ended(State.NODE_FAILED, "NODE_FAIL", nodes="n[1-2]"), ("n[1-2]", "again")),
    (ended(State.PREEMPTED, "PREEMPTED"), ("preempted it",)),
    (ended(State.CANCELLED, "CANCELLED by 1000"), ("user id 1000",)),
    (ended(State.CANCELLED, "CANCELLED"), ("it was cancelled",)),
    (ended(State.UNKNOWN, "DREAMING"), ("'DREAMING'", "scontrol show job 12")),
)
def test_ending_is_explained(sentence: str, parts: tuple[str, ...]) -> None:
    assert all(part in sentence for part in parts), sentence
    assert not sentence.endswith(".")


@each_row("state", [State.DONE, State.RUNNING, State.COMPLETING, State.LOST])
def test_nothing_is_said_where_nothing_is_wrong(state: State) -> None:
    assert ended(state, "") == ""
