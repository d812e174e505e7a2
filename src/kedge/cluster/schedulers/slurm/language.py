# SPDX-License-Identifier: BSD-3-Clause
"""How sbatch reads scripts: tried against 22.05."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from kedge.cluster.schedulers.directive import CutOption, Directive
from kedge.cluster.schedulers.language import Language, LineEnd
from kedge.cluster.schedulers.quantities import POWERS, parse_array, parse_count, parse_dependencies
from kedge.cluster.schedulers.script_request import Reader, ScriptRequest, overlook, put_count, put_parsed, put_text
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.options import FLAGS, LETTERS, OPTIONAL, OPTIONS, RENAMED, SYNONYMS, VALUES

# The values that sbatch takes for each option, tried against sbatch 22.05; what only a cluster knows is left to it.
#
# Each check gives what is wrong with a value, or nothing. Names of partitions, features and the like are not looked at.

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
_MAIL_WORDS = """
none begin end fail requeue all stage_out time_limit time_limit_90 time_limit_80 time_limit_50 array_tasks
invalid_depend
"""
MAIL_TYPES = frozenset(_MAIL_WORDS.split())
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


# What the options of sbatch ask for.

_MAIL = {"begin": "begin", "end": "end", "fail": "fail"}
_PATTERNS = {"%j": "{id}", "%A": "{id}", "%J": "{id}", "%x": "{name}", "%a": "{index}", "%%": "%"}
_SEVERAL_TYPES = "kedge has no word for GPUs of several types"


def _read_nodes(request: ScriptRequest, directive: Directive, value: str) -> None:
    """`2`, `2-4`; `2k` and `0` are taken by sbatch, too, and a job of kedge's has no word for them."""
    least, dash, _ = value.partition("-")
    request.put("nodes", parse_count(least), directive)
    if dash:
        request.leave(directive, f"only the smaller number of nodes, {least}, is kept")


def _read_gres(request: ScriptRequest, directive: Directive, value: str) -> None:
    """`gpu:2`, `gpu:a100:2`, `gpu`; other things stay as they are."""
    parts = [part.removeprefix("gres:").removeprefix("gres/") for part in value.split(",")]
    gpus = [part for part in parts if part.partition(":")[0] == "gpu"]
    if len(gpus) > 1:
        raise ValueError(_SEVERAL_TYPES)
    for part in gpus:
        _put_gpus(request, directive, "gpus_per_node", part.split(":")[1:])
    if others := [part for part in parts if part not in gpus and part.lower() != "none"]:
        request.leave(directive, words=f"--gres={','.join(others)}")


def _put_gpus(request: ScriptRequest, directive: Directive, key: str, words: list[str]) -> None:
    if words and words[-1].isdecimal():
        count, words = int(words[-1][:9]), words[:-1]
    else:
        count = 1
    request.put(key, count, directive)
    if words:
        request.put("gpu_type", words[0], directive)


def _read_gpus(key: str) -> Reader:
    def read(request: ScriptRequest, directive: Directive, value: str) -> None:
        if "," in value:
            raise ValueError(_SEVERAL_TYPES)
        if value:
            _put_gpus(request, directive, key, value.removeprefix("gpu:").split(":"))

    return read


def _read_memory(request: ScriptRequest, directive: Directive, value: str) -> None:
    size = parse_memory(value)
    if size:
        request.put("memory", size, directive)
    else:  # all that the node has
        request.leave(directive, "it means all memory of the node")


def _read_time(request: ScriptRequest, directive: Directive, value: str) -> None:
    seconds = 0 if value.lower() in ENDLESS_TIMES else parse_time(value)
    if seconds:
        request.put("time", seconds, directive)
    else:
        request.asked.pop("time", None)
        request.leave(directive, "it asks for time without end")


def _read_array(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value:  # an empty one takes nothing away
        request.put("array", parse_array(value), directive)


def _read_exclusive(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value:
        request.leave(directive)
    else:
        request.put("exclusive", True, directive)


def _read_mail(request: ScriptRequest, directive: Directive, value: str) -> None:
    words = {word.strip().lower() for word in value.split(",")}
    if words == {"none"}:
        return
    known = set(_MAIL) if "all" in words else words & set(_MAIL)
    known |= set(request.get("mail_on") or ())  # sbatch adds them up, over several lines too
    request.put("mail_on", tuple(name for name in _MAIL if name in known), directive)
    if others := words - set(_MAIL) - {"all", "none"}:
        request.leave(directive, f"kedge sends no mail for {', '.join(sorted(others))}", words="")


def _read_export(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value.upper() not in ("", "ALL"):
        request.leave(directive)


def _read_pattern(key: str) -> Reader:
    def read(request: ScriptRequest, directive: Directive, value: str) -> None:
        try:
            request.put(key, _convert_pattern(value), directive)
        except ValueError as problem:
            request.leave(directive, str(problem), words="")

    return read


def _convert_pattern(value: str) -> str:
    """`%x-%j.out` as `{name}-{id}.out`; other patterns raise ValueError, because only Slurm knows them."""
    unknown = [part for part in re.findall(r"%\d*[A-Za-z]", value) if part not in _PATTERNS]
    if unknown:
        raise ValueError(f"only Slurm knows what {unknown[0]} stands for")
    return re.sub(r"%%|%[A-Za-z]", lambda found: _PATTERNS[found.group()], value)


READERS: Mapping[str, Reader] = {
    "--job-name": put_text("name"),
    "--nodes": _read_nodes,
    "--ntasks": put_count("tasks"),
    "--ntasks-per-node": put_count("tasks_per_node"),
    "--cpus-per-task": put_count("cpus_per_task"),
    "--gres": _read_gres,
    "--gpus": _read_gpus("gpus"),
    "--gpus-per-node": _read_gpus("gpus_per_node"),
    "--gpus-per-task": _read_gpus("gpus_per_task"),
    "--mem": _read_memory,
    "--mem-per-cpu": put_parsed("memory_per_cpu", parse_memory),
    "--mem-per-gpu": put_parsed("memory_per_gpu", parse_memory),
    "--time": _read_time,
    "--exclusive": _read_exclusive,
    "--account": put_text("account"),
    "--partition": put_text("queue"),
    "--qos": put_text("qos"),
    "--reservation": put_text("reservation"),
    "--constraint": put_text("constraint"),
    "--array": _read_array,
    "--dependency": put_parsed("dependencies", parse_dependencies),
    "--begin": put_text("begin"),
    "--mail-user": put_text("mail"),
    "--mail-type": _read_mail,
    "--output": _read_pattern("output"),
    "--error": _read_pattern("error"),
    "--chdir": put_text("directory"),
    "--export": _read_export,
    "--parsable": overlook,
    "--quiet": overlook,
}


# what plain sbatch 22.05 does not know: a plugin of the site adds it, or a later Slurm
_ADDED = {
    **dict.fromkeys(("--image", "--volume", "--module", "--entrypoint"), "Shifter's plugin"),
    "--environment": "the plugin of CSCS' container engine",
    **dict.fromkeys((name for name in OPTIONS if "container-" in name), "Pyxis"),
    "--tres-per-task": "Slurm 23.11",
    **dict.fromkeys(("--oom-kill-step", "--segment", "--stepmgr"), "Slurm 24.05"),
    **dict.fromkeys(("--extra", "--resv-ports", "--tres-bind", "--tres-per-job"), "a later Slurm than 22.05"),
}
# options of srun that people give to sbatch
_SRUN_OPTIONS = """
--accel-bind --bcast --cpu-bind --cpu_bind --disable-status --epilog --exact --immediate --jobid --kill-on-bad-exit
--label --mpi --msg-timeout --multi-prog --overlap --prolog --pty --relative --slurmd-debug --task-epilog
--task-prolog --threads --unbuffered --x11
"""
_SRUN_REMEDY = "give it to srun, in the line that starts the program"


def _resolve_name(name: str) -> tuple[str, str]:
    """The full name of a long option that may be abbreviated, and what is wrong with it otherwise."""
    if name in OPTIONS:
        return SYNONYMS.get(name, name), ""
    fitting = [known for known in OPTIONS if known.startswith(name)]
    own = [known for known in fitting if known not in _ADDED]
    fitting = own if len(own) == 1 else fitting  # what a plugin adds makes no beginning of a name doubtful
    if len(fitting) == 1:
        return SYNONYMS.get(fitting[0], fitting[0]), ""
    if fitting:
        return name, f"{name} is short for several options: {', '.join(sorted(fitting)[:4])}"
    return name, "unknown"


def _cut(words: deque[str]) -> CutOption:
    word = words.popleft()
    if word.startswith("--"):
        return _cut_long(word, words)
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    name = LETTERS.get(word[1])
    if name is None:
        return CutOption(word[:2], word[2:] or None, "unknown")
    if name in VALUES:
        value = word[2:] or (words.popleft() if words else None)
        return CutOption(name, value, "" if value else f"{word[:2]} wants a value")
    if name in OPTIONAL:
        return CutOption(name, word[2:] or None)
    if len(word) > 2:  # flags in a bunch, as in -HQ
        words.appendleft(f"-{word[2:]}")
    return CutOption(name)


def _cut_long(word: str, words: deque[str]) -> CutOption:
    name, equals, value = word.partition("=")
    full, problem = _resolve_name(name)
    if equals and full in FLAGS:
        return CutOption(full, value, problem or f"{name} takes no value")
    if equals:
        return CutOption(full, value, problem)
    if problem == "unknown" and words and not words[0].startswith("-"):
        return CutOption(full, words.popleft(), problem)
    if full in VALUES:
        if not words:
            return CutOption(full, None, problem or f"{name} wants a value")
        return CutOption(full, words.popleft(), problem)
    return CutOption(full, None, problem)


LANGUAGE = Language(
    FACTS,
    _cut,
    READERS,
    check_value,
    readers_refuse=False,  # which is what the checks of values are for
    line_end=LineEnd.DROPPED,
    also_reads=("pbs", "lsf"),
    ignore_others="#SBATCH --ignore-pbs",
    separators=("hetjob", "packjob"),
    needs_shebang=True,
    refuses_dos=True,
    added=_ADDED,
    remedies={
        **dict.fromkeys(_SRUN_OPTIONS.split(), _SRUN_REMEDY),
        **{old: f"write {new}" for old, new in RENAMED.items()},
    },
    long_options=tuple(OPTIONS),
    refusable={
        "memory": ("--mem", "--mem-per-cpu", "--mem-per-gpu"),
        "gpus": ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"),
        "arrays": ("--array",),
        "export": ("--export",),
        "exclusive": ("--exclusive",),
        "nodelist": ("--nodelist", "--nodefile"),
    },
    queue_options=("--partition",),
    repeatable=("--mail-type", "--comment", "--signal", "--exclude"),  # mail adds up
    path_options=("--output", "--error", "--input"),
    path_remedy="use sbatch's own patterns (%j the id, %x the name, %u the user), or write the path out",
    task_in_output=re.compile(r"%\d*[aAjJ]"),
    has_tasks=True,
    has_gpu_options=True,
)
