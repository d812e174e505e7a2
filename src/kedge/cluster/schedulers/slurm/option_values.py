# SPDX-License-Identifier: BSD-3-Clause
"""The values that sbatch takes for each option, tried against sbatch 22.05; what only a cluster knows is left to it.

Each check gives what is wrong with a value, or nothing. Names of partitions, features and the like are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kedge.cluster.schedulers.quantities import POWERS, parse_array

Check = Callable[[str], str]
_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+))?(?::(?P<ds>\d+))?|(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?)\Z"
)
ENDLESS_TIMES = ("infinite", "unlimited", "-1")
_NODES = re.compile(r"-?(\d+)([km]?)(?:-(\d+)([km]?))?", re.I)
_SCALE = {"": 1, "k": 1024, "m": 1024 * 1024}
# a type of GPU may have any name, but not that of a broken number
_GPUS = re.compile(r"(?:[^:,\s]+:)?\d+|(?!\d*\.\d*\Z)[^:,\s]+")
_GRES = re.compile(r"(?:gres[:/])?[A-Za-z_][\w/-]*(?::[^:,=\s]+){0,2}")
_BROKEN_COUNT = re.compile(r":\d*\.\d*\Z")
_JOBS = r"(?::\d+(?:_(?:\d+|\*))?(?:\+\d+)?)+"
_DEPENDENCY = re.compile(
    rf"singleton|\d+|(?:after|afterany|afterburstbuffer|aftercorr|afternotok|afterok|expand){_JOBS}", re.I
)
_MAIL = """
none begin end fail requeue all stage_out time_limit time_limit_90 time_limit_80 time_limit_50 array_tasks
invalid_depend
"""
MAIL_TYPES = frozenset(_MAIL.split())
_LEVEL = r"(?:block|cyclic|fcyclic|\*)"
_DISTRIBUTION = re.compile(
    rf"(?:(?:block|cyclic|arbitrary|\*)(?::{_LEVEL}){{0,2}}|plane=[1-9]\d*)(?:,(?:no)?pack)?|(?:no)?pack", re.I
)
_SIGNALS = "HUP INT QUIT ABRT KILL ALRM TERM USR1 USR2 URG CONT STOP TSTP TTIN TTOU XCPU"
_SIGNAL = re.compile(rf"(?:[BR]{{1,2}}:)?(?:\d+|(?:SIG)?(?:{'|'.join(_SIGNALS.split())}))(?:@(\d*))?", re.I)
_BEGIN = re.compile(
    r"(?:(?:now|today|tomorrow|midnight|noon|elevenses|fika|teatime)\b|\d)(?!.*\+\s*\d+\s*(?!min|hour|day|week|sec|$)[a-z])",
    re.I,
)
_FREQUENCY = r"(?:low|medium|high|highm1|\d+)"
_GOVERNORS = "conservative|ondemand|performance|powersave|schedutil|userspace"
_CPU_FREQUENCY = re.compile(rf"(?:{_FREQUENCY}(?:-{_FREQUENCY})?(?::(?:{_GOVERNORS}))?|{_GOVERNORS})", re.I)
_GPU_BIND = re.compile(
    r"(?:verbose,|v,)?(?:closest|none|single:\d+|per_task:\d+|map_gpu:[\d,*x]+|mask_gpu:[\da-fA-Fx,*]+)", re.I
)
_GPU_FREQUENCY = re.compile(rf"(?:(?:memory=)?{_FREQUENCY}|verbose)(?:,(?:(?:memory=)?{_FREQUENCY}|verbose))*", re.I)
_LIMITS = "AS CORE CPU DATA FSIZE MEMLOCK NOFILE NPROC RSS STACK ALL NONE"


def parse_time(text: str) -> int:
    """Seconds: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"'{text}' is not a time: write minutes, H:MM:SS or D-HH:MM:SS")
    if match["days"]:
        hours, minutes, seconds = (int(match[name] or 0) for name in ("dh", "dm", "ds"))
        return int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds
    first, second, third = match["a"], match["b"], match["c"]
    if third is not None:
        return int(first) * 3600 + int(second) * 60 + int(third)
    return int(first) * 60 + int(second or 0)


def parse_memory(text: str) -> int:
    """Bytes: a whole number of megabytes, or with K, M, G or T behind it, and a B if one likes."""
    match = re.fullmatch(r"(\d+)(?:([KMGT])B?)?", text, re.I)
    if match is None:
        raise ValueError(f"'{text}' is not an amount of memory: write a whole number with K, M, G or T, such as 32G")
    return int(match[1]) << 10 * POWERS[(match[2] or "m").lower()]


def check_value(option: str, value: str) -> str:
    """Why sbatch refuses this value of an option; empty where it takes it, or where only a cluster can tell."""
    check = CHECKS.get(option)
    return check(value) if check else ""


def _fits(pattern: str | re.Pattern[str], what: str) -> Check:
    compiled = re.compile(pattern, re.I) if isinstance(pattern, str) else pattern
    return lambda value: "" if compiled.fullmatch(value) else f"'{value}' is not {what}"


def _one_of(words: str, what: str) -> Check:
    known = words.lower().split()
    return lambda value: "" if value.lower() in known else f"'{value}' is not {what}: write {_list(words.split())}"


def _all_of(words: str, what: str) -> Check:
    known = words.lower().split()

    def check(value: str) -> str:
        wrong = [part for part in value.split(",") if part.strip().lower() not in known]
        return f"'{wrong[0]}' is not {what}: write {_list(words.split())}" if wrong else ""

    return check


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


def _parsed(parse: Callable[[str], object]) -> Check:
    def check(value: str) -> str:
        try:
            parse(value)
        except ValueError as problem:
            return str(problem)
        return ""

    return check


def _check_time(value: str) -> str:
    return "" if value.lower() in ENDLESS_TIMES else _parsed(parse_time)(value)


def _check_nodes(value: str) -> str:
    for part in value.split(","):  # of which Slurm before 23.02 takes one only
        match = _NODES.fullmatch(part)
        if match is None:
            return f"'{value}' is not a number of nodes: write 2, or 2-4 for a range"
        least, most = (int(match[at]) * _SCALE[match[at + 1].lower()] if match[at] else None for at in (1, 3))
        if least is not None and most is not None and most < least:
            return f"the most nodes, {most}, are fewer than the least, {least}"
    return ""


def _check_gpus(value: str) -> str:
    wrong = [part for part in value.split(",") if not _GPUS.fullmatch(part)] if value else []
    return f"'{value}' is not a number of GPUs: write 2 or a100:2" if wrong else ""


def _check_gres(value: str) -> str:
    """Which kinds a cluster has, only it knows; `gpu` all of them call alike."""
    for part in value.split(","):
        name = part.partition(":")[0]
        if (
            not _GRES.fullmatch(part)
            or _BROKEN_COUNT.search(part)
            or (name != "gpu" and name.lower() in ("gpu", "gpus"))
        ):
            return f"'{part}' is not a resource: write gpu:2 or gpu:a100:2"
    return ""


def _check_array(value: str) -> str:
    indices, _, limit = value.partition("%")
    if limit.strip("]") and not limit.strip("]").isdecimal():
        return f"'%{limit}' does not say how many tasks may run at once"
    parts = [part for part in indices.strip("[]").split(",") if part]
    return _parsed(parse_array)(",".join(parts)) if parts else ""


def _check_dependency(value: str) -> str:
    wrong = [part for part in re.split(r"[,?]", value) if not _DEPENDENCY.fullmatch(part)] if value else []
    return f"'{wrong[0]}' is not a dependency: write afterok:12345 or singleton" if wrong else ""


def _check_mail(value: str) -> str:
    if {word.strip().lower() for word in value.split(",")} & MAIL_TYPES:
        return ""
    return f"'{value}' is not a reason for mail: write BEGIN, END, FAIL, ALL or NONE"


def _check_distribution(value: str) -> str:
    return "" if _DISTRIBUTION.fullmatch(value) else f"'{value}' is not a distribution: write block, cyclic or plane=4"


def _check_signal(value: str) -> str:
    match = _SIGNAL.fullmatch(value)
    if match is None or int(match[1] or 0) > 65535:
        return f"'{value}' is not a signal: write USR1@60, or B:USR1@60 for the script itself"
    return ""


_count = _fits(r"\+?0*[1-9]\d{0,8}", "a number above zero")
_whole = _fits(r"\+?\d{1,9}", "a whole number")
_memory = _parsed(parse_memory)

CHECKS: Mapping[str, Check] = {
    "--acctg-freq": _fits(r"(?:(?:task|energy|network|filesystem)=)?\d+(?:,\w+=\d+)*", "a frequency: write task=30"),
    "--array": _check_array,
    "--begin": lambda value: "" if _BEGIN.match(value) else f"'{value}' is not a time: write 16:00 or now+1hour",
    "--core-spec": _whole,
    "--cores-per-socket": _count,
    "--cpu-freq": _fits(_CPU_FREQUENCY, "a frequency: write low, medium, high or kilohertz"),
    "--cpus-per-gpu": _count,
    "--cpus-per-task": _count,
    "--deadline": lambda value: "" if _BEGIN.match(value) else f"'{value}' is not a time: write 16:00 or now+1hour",
    "--delay-boot": _check_time,
    "--dependency": _check_dependency,
    "--distribution": _check_distribution,
    "--exclusive": _fits(r"user|mcs|topo|", "a way to be exclusive: write --exclusive, or --exclusive=user"),
    "--extra-node-info": _fits(
        r"(?:\d+|\*)(?::(?:\d+|\*)){0,2}", "a number of sockets, cores and threads: write 2:8:1"
    ),
    "--get-user-env": _fits(r"\d*[SL]?", "a timeout and a mode: write 10L"),
    "--gpu-bind": _fits(_GPU_BIND, "a binding: write none, closest, single:1 or map_gpu:0,1"),
    "--gpu-freq": _fits(_GPU_FREQUENCY, "a frequency: write low, medium, high or megahertz"),
    "--gpus": _check_gpus,
    "--gpus-per-node": _check_gpus,
    "--gpus-per-socket": _check_gpus,
    "--gpus-per-task": _check_gpus,
    "--gres": _check_gres,
    "--gres-flags": _all_of(
        "disable-binding enforce-binding multiple-tasks-per-sharing one-task-per-sharing allow-task-sharing", "a flag"
    ),
    "--hint": _all_of("compute_bound memory_bound multithread nomultithread", "a hint"),
    "--kill-on-invalid-dep": _one_of("yes no", "an answer"),
    "--mail-type": _check_mail,
    "--mem": _memory,
    "--mem-bind": _fits(
        r"(?:(?:q|quiet|v|verbose|no|none|rank|local|sort|nosort|prefer|(?:map_mem|mask_mem):[\dxa-f,*]+)(?:,|\Z))+",
        "a binding: write local or none",
    ),
    "--mem-per-cpu": _memory,
    "--mem-per-gpu": _memory,
    "--mincpus": _count,
    "--no-kill": _fits(r"off|", "an answer: write --no-kill, or --no-kill=off"),
    "--nodes": _check_nodes,
    "--ntasks": _count,
    "--ntasks-per-core": _count,
    "--ntasks-per-gpu": _count,
    "--ntasks-per-node": _count,
    "--ntasks-per-socket": _count,
    "--open-mode": _fits(r"[at].*", "a mode: write append or truncate"),
    "--priority": _fits(r"TOP|\+?\d+|[^-].*", "a priority"),
    "--profile": _all_of("all none energy task filesystem lustre network", "a profile"),
    "--propagate": _fits(rf"(?:(?:{'|'.join(_LIMITS.split())})(?:,|\Z))*", "a list of limits: write STACK,CORE"),
    "--signal": _check_signal,
    "--sockets-per-node": _count,
    "--switches": _fits(r"\d+(?:@.*)?", "a number of switches"),
    "--thread-spec": _whole,
    "--threads-per-core": _count,
    "--time": _check_time,
    "--time-min": _check_time,
    "--tmp": _memory,
    "--wait-all-nodes": _fits(r"[01]", "0 or 1"),
}
