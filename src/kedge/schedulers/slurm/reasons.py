# SPDX-License-Identifier: BSD-3-Clause
"""Why a job waits, in sentences: https://slurm.schedmd.com/job_reason_codes.html, with what a user can do about it."""

from __future__ import annotations

import re

from kedge.model.job_state import JobStatus, State

_ANEW = "cancel it with 'kedge cancel {id}' and submit it anew"
# the reason as squeue prints it, without what follows a comma; {id} and {queue} are put in
_SENTENCES = {
    "None": "the scheduler has not looked at it yet",
    "WaitingForScheduling": "the scheduler has not looked at it yet",
    "Priority": "jobs with a higher priority come first; 'squeue --start -j {id}' says when it is expected to begin",
    "Resources": "it is next, and waits until enough nodes are free; 'squeue --start -j {id}' says when",
    "Licenses": "it waits for a licence that others use now; 'scontrol show licenses' shows them",
    "BeginTime": "it was asked to begin later, or was put back into the queue and waits a moment",
    "Dependency": "it waits for another job: 'scontrol show job {id}' names it under Dependency",
    "DependencyNeverSatisfied": f"a job it waits for ended in another way than asked, so it never begins: {_ANEW}",
    "JobHeldUser": "you hold it; 'scontrol release {id}' lets it go",
    "JobHeldAdmin": "an administrator holds it; ask the site's support why",
    "job requeued in held state": "it was put back into the queue and is held; 'scontrol release {id}' lets it go",
    "launch failed requeued held": (
        "a node could not start it, so it was put back and is held; 'scontrol release {id}' tries again"
    ),
    "JobArrayTaskLimit": "as many tasks of the array run as it allows at once (the number behind % in --array)",
    "ArrayTaskLimit": "as many tasks of the array run as it allows at once (the number behind % in --array)",
    "PartitionTimeLimit": (
        "it asks for more time than the queue {queue} allows: "
        "'scontrol update JobId={id} TimeLimit=TIME' lowers it; 'sinfo -o \"%P %l\"' shows what is allowed"
    ),
    "PartitionNodeLimit": (
        "it asks for more nodes than the queue {queue} gives, or has at work: "
        "'scontrol update JobId={id} NumNodes=N' lowers it; 'scontrol show partition {queue}' shows the limits"
    ),
    "PartitionDown": "the queue {queue} is switched off; wait, or submit it to another with --queue",
    "PartitionInactive": "the queue {queue} starts no jobs now; wait, or submit it to another with --queue",
    "PartitionConfig": f"the queue {{queue}} does not serve such a request: {_ANEW}, smaller or to another queue",
    "BadConstraints": f"no node can ever serve it (memory, CPUs, GPUs or features): {_ANEW}, asking for less",
    "FeatureNotAvail": "no node that is at work has the features of --constraint; 'sinfo -o \"%N %f\"' lists them",
    "NodeDown": "a node it needs is down",
    "NodeNotAvail": "a node it needs is not to be had now",
    "Nodes required for job are DOWN": (
        "the nodes it needs are down, drained, or kept for other jobs; 'sinfo -R' says which and why"
    ),
    "Reservation": "it waits until its reservation begins; 'scontrol show reservation' says when",
    "ReservationDeleted": f"its reservation was removed: {_ANEW}, without --reservation",
    "InvalidAccount": f"the account is not known or may not be used here: {_ANEW}, with another --account",
    "AccountNotAllowed": f"the queue {{queue}} does not take this account: {_ANEW}, with another --account or --queue",
    "InvalidQOS": f"the quality of service is not known or may not be used: {_ANEW}, with another --qos",
    "QOSNotAllowed": f"the queue {{queue}} does not take this quality of service: {_ANEW}, with another --qos",
    "QOSUsageThreshold": "the account has used too much lately for this quality of service; wait, or change --qos",
    "QOSJobLimit": "as many jobs run in this quality of service as it allows; it begins when one of them ends",
    "QOSResourceLimit": "jobs of this quality of service use all that it may have; it begins when one of them ends",
    "QOSTimeLimit": f"it asks for more time than its quality of service allows: {_ANEW}, with less --time",
    "AssociationJobLimit": "as many of your jobs run as the account allows; it begins when one of them ends",
    "AssociationResourceLimit": "your jobs use all that the account may have; it begins when one of them ends",
    "AssociationTimeLimit": f"it asks for more time than the account allows: {_ANEW}, with less --time",
    "MaxMemPerLimit": f"it asks for more memory than the site allows: {_ANEW}, with less --mem",
    "Cleaning": "it is put back into the queue, and its last run is still being tidied up",
    "Prolog": "the node is made ready for it (the site's prolog runs)",
    "BurstBufferResources": "it waits for room in the burst buffer",
    "BurstBufferStageIn": "its files are copied into the burst buffer",
    "FrontEndDown": "the machine that starts such jobs is down",
    "DeadLine": "it cannot end before the deadline it was given",
    "JobHoldMaxRequeue": (
        "it was put back into the queue too often and is held; 'scontrol release {id}' tries once more"
    ),
    "AdminHeld": "an administrator holds it; ask the site's support why",
    "SchedDefer": "the scheduler puts off new jobs for now",
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
    "nodes it needs are reserved, mostly for maintenance: 'scontrol show reservation' says until when; "
    "a job that ends before it begins can run now (less --time)"
)
_UNAVAILABLE = "nodes it needs are not at work now ({nodes}); 'sinfo -R' says why"
# QOSMaxJobsPerUserLimit, AssocGrpGRES, QOSMinGRES, MaxCpuPerAccount …
_LIMIT = re.compile(r"(QOS|Assoc)?(Max|Min|Grp)(\w+?)(Per(?:User|Account|Job|Node|Acct)|PU|PA)?(?:Limit|NotSatisfied)?")
_OWNERS = {"QOS": "its quality of service", "Assoc": "the account", None: "the quality of service"}
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
        return f"Slurm says why: {reason}"
    queue = status.queue or "it is in"
    return sentence.replace("{id}", _name(status)).replace("{queue}", queue)


def is_stuck(status: JobStatus) -> bool:
    """Whether it waits for what cannot happen by itself."""
    if status.state not in (State.QUEUED, State.HELD):
        return False
    _, code = _read_reason(status)
    limit = _LIMIT.fullmatch(code)
    return code in _STUCK or (limit is not None and _is_of_one_job(limit))


def _read_reason(status: JobStatus) -> tuple[str, str]:
    """All of it, and the code at its beginning."""
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
        return f"it asks for too little ({resource}) for {of}, and so never begins: {_ANEW}, with {more}"
    if what in _SPENT or (kind == "Grp" and what == "Wall"):
        return f"the {resource} granted to {of} are used up; ask the project's owner, or use another --account"
    if kind == "Grp":
        return f"all jobs of {of} together have reached its limit of {resource}; it begins when some of them end"
    if whose in ("PerAccount", "PerAcct", "PA"):
        return f"the account's jobs have reached the limit of {resource} that {of} sets; it begins when some end"
    if whose in ("PerUser", "PU") or what in _COUNTED:
        return f"your jobs have reached the limit of {resource} that {of} sets; it begins when some of them end"
    return f"it asks for more {resource} than {of} allows a job: {_ANEW}, asking for less"
