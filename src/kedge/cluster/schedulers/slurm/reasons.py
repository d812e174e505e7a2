# SPDX-License-Identifier: BSD-3-Clause
"""Why a job waits, in sentences: https://slurm.schedmd.com/job_reason_codes.html, with what a user can do about it."""

from __future__ import annotations

import re

from kedge.cluster.job_state import JobStatus, State

_ANEW = "cancel it with 'kedge cancel {id}' and submit it again"
# the reason as squeue prints it, without what follows a comma; {id} and {queue} are put in
_SENTENCES = {
    "None": "the scheduler has not considered it yet",
    "WaitingForScheduling": "the scheduler has not considered it yet",
    "Priority": "jobs with a higher priority start first; 'squeue --start -j {id}' shows its expected start",
    "Resources": "it waits until enough nodes are free; 'squeue --start -j {id}' shows its expected start",
    "Licenses": "it waits for a licence in use by others; 'scontrol show licenses' shows them",
    "BeginTime": "its start time (--begin) is not reached, or it was requeued a moment ago",
    "Dependency": "it waits for another job: 'scontrol show job {id}' names it under Dependency",
    "DependencyNeverSatisfied": f"a job it depends on did not end as required, so it never starts: {_ANEW}",
    "JobHeldUser": "you hold it; release it with 'scontrol release {id}'",
    "JobHeldAdmin": "an administrator holds it; ask the site's support",
    "job requeued in held state": "it was requeued and is held; release it with 'scontrol release {id}'",
    "launch failed requeued held": (
        "a node could not start it, so it was requeued and is held; try again with 'scontrol release {id}'"
    ),
    "JobArrayTaskLimit": "its array runs as many tasks at once as it allows (the number after % in --array)",
    "ArrayTaskLimit": "its array runs as many tasks at once as it allows (the number after % in --array)",
    "PartitionTimeLimit": (
        "it requests more time than the partition {queue} allows: "
        "'scontrol update JobId={id} TimeLimit=TIME' lowers it; 'sinfo -o \"%P %l\"' shows the limits"
    ),
    "PartitionNodeLimit": (
        "it requests more nodes than the partition {queue} allows or has up: "
        "'scontrol update JobId={id} NumNodes=N' lowers it; 'scontrol show partition {queue}' shows the limits"
    ),
    "PartitionDown": "the partition {queue} is down; wait, or submit to another with --partition",
    "PartitionInactive": "the partition {queue} is inactive; wait, or submit to another with --partition",
    "PartitionConfig": f"the partition {{queue}} cannot serve this request: {_ANEW}, smaller or to another partition",
    "BadConstraints": f"no node has what it requests (memory, CPUs, GPUs or features): {_ANEW}, requesting less",
    "FeatureNotAvail": "no available node has the features of --constraint; 'sinfo -o \"%N %f\"' lists them",
    "NodeDown": "a node it needs is down",
    "NodeNotAvail": "a node it needs is not available",
    "Nodes required for job are DOWN": (
        "the nodes it needs are down, drained or reserved for other jobs; 'sinfo -R' shows which and why"
    ),
    "Reservation": "it waits for its reservation to start; 'scontrol show reservation' shows when",
    "ReservationDeleted": f"its reservation was deleted: {_ANEW}, without --reservation",
    "InvalidAccount": f"the account is unknown, or you may not use it: {_ANEW}, with another --account",
    "AccountNotAllowed": f"the partition {{queue}} does not accept this account: {_ANEW}, with another of them",
    "InvalidQOS": f"the QOS is unknown, or you may not use it: {_ANEW}, with another --qos",
    "QOSNotAllowed": f"the partition {{queue}} does not accept this QOS: {_ANEW}, with another --qos",
    "QOSUsageThreshold": "the account's recent usage is too high for this QOS; wait, or change --qos",
    "QOSJobLimit": "this QOS has reached its limit of running jobs; it starts when one of them ends",
    "QOSResourceLimit": "the jobs of this QOS use all its resources; it starts when one of them ends",
    "QOSTimeLimit": f"it requests more time than its QOS allows: {_ANEW}, with less --time",
    "AssociationJobLimit": "you have reached the account's limit of running jobs; it starts when one of them ends",
    "AssociationResourceLimit": "your jobs use all resources of the account; it starts when one of them ends",
    "AssociationTimeLimit": f"it requests more time than the account allows: {_ANEW}, with less --time",
    "MaxMemPerLimit": f"it requests more memory than the site allows: {_ANEW}, with less --mem",
    "Cleaning": "it was requeued, and Slurm is still cleaning up its last run",
    "Prolog": "the node is being prepared (the site's prolog runs)",
    "BurstBufferResources": "it waits for space in the burst buffer",
    "BurstBufferStageIn": "its files are being copied to the burst buffer",
    "FrontEndDown": "the front-end node that starts such jobs is down",
    "DeadLine": "it cannot complete before its deadline",
    "JobHoldMaxRequeue": ("it was requeued too often and is held; try again with 'scontrol release {id}'"),
    "AdminHeld": "an administrator holds it; ask the site's support",
    "SchedDefer": "the scheduler defers new jobs at the moment",
    "OutOfMemory": "it ran out of memory",
}
# reasons that do not go away by themselves: the request would have to change, or somebody has to release the job
_STUCK = frozenset(
    (
        "AccountNotAllowed", "AssociationTimeLimit", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount",
        "InvalidQOS", "JobHoldMaxRequeue", "MaxMemPerLimit", "PartitionConfig", "PartitionTimeLimit", "QOSNotAllowed",
        "QOSTimeLimit", "ReservationDeleted", "launch failed requeued held",
    )
)  # fmt: skip
_MAINTENANCE = (
    "nodes it needs are reserved, usually for maintenance: 'scontrol show reservation' shows until when; "
    "a shorter --time lets it run before the reservation starts"
)
_UNAVAILABLE = "nodes it needs are not available ({nodes}); 'sinfo -R' shows why"
# QOSMaxJobsPerUserLimit, AssocGrpGRES, QOSMinGRES, MaxCpuPerAccount …
_LIMIT = re.compile(r"(QOS|Assoc)?(Max|Min|Grp)(\w+?)(Per(?:User|Account|Job|Node|Acct)|PU|PA)?(?:Limit|NotSatisfied)?")
_OWNERS = {"QOS": "its QOS", "Assoc": "the account", None: "the QOS"}
_RESOURCES = {
    "Job": "running jobs", "Jobs": "running jobs", "SubmitJobs": "submitted jobs", "SubmitJob": "submitted jobs",
    "Cpu": "CPUs", "CPUs": "CPUs", "CpuMinutes": "CPU minutes", "CPUMinutes": "CPU minutes",
    "CPURunMinutes": "CPU minutes of running jobs", "CpuRunMinutes": "CPU minutes of running jobs",
    "CPUMins": "CPU minutes", "GRES": "GPUs or other devices", "GRESMinutes": "GPU minutes",
    "GRESRunMinutes": "GPU minutes of running jobs", "Mem": "memory", "Memory": "memory",
    "MemMinutes": "memory minutes", "MemRunMinutes": "memory minutes of running jobs", "Node": "nodes",
    "Nodes": "nodes", "NodeMinutes": "node minutes", "NodeRunMinutes": "node minutes of running jobs",
    "Wall": "hours of run time", "WallDuration": "run time", "Time": "run time", "Billing": "billing units",
    "BillingMinutes": "billing minutes", "BillingRunMinutes": "billing minutes of running jobs", "License": "licences",
    "BB": "burst buffer", "Energy": "energy",
}  # fmt: skip
_COUNTED = ("Job", "Jobs", "SubmitJob", "SubmitJobs")
_SPENT = ("CpuMinutes", "CPUMinutes", "CPUMins", "GRESMinutes", "MemMinutes", "NodeMinutes", "BillingMinutes")


def explain_waiting(status: JobStatus) -> str:
    """Why it waits, and what would help."""
    reason, code = _read_reason(status)
    if code.startswith("ReqNodeNotAvail"):
        return _explain_unavailable(reason)
    sentence = _SENTENCES.get(code or "None") or _explain_limit(code)
    if sentence is None:
        return f"Slurm's reason: {reason}"
    queue = status.queue or "it is in"
    return sentence.replace("{id}", _name(status)).replace("{queue}", queue)


def is_stuck(status: JobStatus) -> bool:
    """Whether a job waits for what cannot happen by itself."""
    if status.state not in (State.QUEUED, State.HELD):
        return False
    _, code = _read_reason(status)
    limit = _LIMIT.fullmatch(code)
    return code in _STUCK or (limit is not None and _is_of_one_job(limit))


def _read_reason(status: JobStatus) -> tuple[str, str]:
    """Return the whole reason, and the code at its beginning."""
    reason = status.reason.replace("_", " ").strip("() ")
    return reason, reason.split(",", 1)[0].strip()


def _is_of_one_job(limit: re.Match[str]) -> bool:
    """Whether the job alone is beyond a limit, so that the end of no other job helps."""
    _, kind, what, whose = limit.groups()
    return kind == "Min" or (
        kind == "Max" and whose in (None, "PerJob", "PerNode") and what not in (*_COUNTED, *_SPENT)
    )


def _name(status: JobStatus) -> str:
    """What scontrol takes: a task of an array, or the job with all that wait."""
    return status.id if status.index is None else f"{status.id}_{status.index}"


def _explain_unavailable(reason: str) -> str:
    nodes = re.search(r"UnavailableNodes:(\S+)", reason)
    if nodes and "Reserved for maintenance" not in reason:
        return _UNAVAILABLE.replace("{nodes}", nodes[1].rstrip(","))
    return _MAINTENANCE


def _explain_limit(code: str) -> str | None:
    match = _LIMIT.fullmatch(code)
    if match is None:
        return None
    owner, kind, what, whose = match.groups()
    resource = _RESOURCES.get(what, what)
    of = _OWNERS[owner]
    if kind == "Min":
        more = "--gpus" if what == "GRES" else "more"
        return f"it requests too little ({resource}) for {of}, so it never starts: {_ANEW}, with {more}"
    if what in _SPENT or (kind == "Grp" and what == "Wall"):
        return f"the {resource} of {of} are used up; ask the project's owner, or use another --account"
    if kind == "Grp":
        return f"the jobs of {of} have reached its limit of {resource}; it starts when some of them end"
    if whose in ("PerAccount", "PerAcct", "PA"):
        return f"the account's jobs have reached the limit of {resource} set by {of}; it starts when some end"
    if whose in ("PerUser", "PU") or what in _COUNTED:
        return f"your jobs have reached the limit of {resource} set by {of}; it starts when some of them end"
    return f"it requests more {resource} than {of} allows per job: {_ANEW}, requesting less"
