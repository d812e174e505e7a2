# SPDX-License-Identifier: BSD-3-Clause
"""How qsub of PBS and Torque reads scripts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from kedge.cluster.schedulers.directive import CutOption, Directive
from kedge.cluster.schedulers.language import Language, LineEnd
from kedge.cluster.schedulers.pbs import FACTS
from kedge.cluster.schedulers.quantities import POWERS, parse_array, parse_clock, parse_count, parse_dependencies
from kedge.cluster.schedulers.script_request import Reader, ScriptRequest, put_parsed, put_text

# What the options of PBS' and Torque's qsub ask for.

_MAIL = {"b": "begin", "e": "end", "a": "fail"}
_CHUNK = {"ncpus": "cpus", "mpiprocs": "tasks_per_node", "ngpus": "gpus_per_node", "ompthreads": "cpus_per_task"}
_TORQUE = {"ppn": "tasks_per_node", "gpus": "gpus_per_node"}


def _parse_memory(text: str) -> int:
    """Bytes, or with kb, mb, gb or tb behind it."""
    match = re.fullmatch(r"(\d+)([kmgtp]?)(b|w)?", text, re.I)
    if match is None:
        raise ValueError(f"'{text}' is not an amount of memory: write a whole number with mb or gb, such as 32gb")
    size = int(match[1]) << 10 * POWERS[match[2].lower()]
    return size * 8 if (match[3] or "").lower() == "w" else size


def _read_resources(request: ScriptRequest, directive: Directive, value: str) -> None:
    """`walltime=1:00:00,select=2:ncpus=4:ngpus=1`, `nodes=2:ppn=4`."""
    for part in value.split(","):
        name, _, wanted = part.partition("=")
        if name == "walltime":
            request.put("time", parse_clock(wanted, needs_all=False), directive)
        elif name == "select":
            _read_select(request, directive, wanted)
        elif name == "nodes":
            _read_torque_nodes(request, directive, wanted)
        elif name in ("mem", "pmem", "vmem"):
            key = "memory_per_cpu" if name == "pmem" else "memory"
            request.put(key, _parse_memory(wanted), directive)
        elif name == "ncpus":
            request.put("cpus_per_task", parse_count(wanted), directive)
        elif name in ("ngpus", "gpus"):
            request.put("gpus_per_node", parse_count(wanted), directive)
        elif name == "place" and re.fullmatch(r"(?:(?:scatter|free|pack|vscatter):?)?(?:excl|exclhost)?", wanted):
            if "excl" in wanted:
                request.put("exclusive", True, directive)
        else:
            request.leave(directive, words=f"-l {part}")


def _read_select(request: ScriptRequest, directive: Directive, value: str) -> None:
    chunks = value.split("+")
    if len(chunks) > 1:
        request.leave(directive, "kedge asks for one kind of node: only the first is kept", words="")
    count, *parts = chunks[0].split(":")
    if not count.isdecimal():
        count, parts = "1", [count, *parts]
    request.put("nodes", parse_count(count), directive)
    others = []
    for part in parts:
        name, _, wanted = part.partition("=")
        if name in _CHUNK:
            request.put(_CHUNK[name], parse_count(wanted) if wanted != "0" else 0, directive)
        elif name == "mem":
            request.put("memory", _parse_memory(wanted), directive)
        elif name in ("gpu_model", "gpu_type"):
            request.put("gpu_type", wanted, directive)
        else:
            others.append(part)
    if others:
        request.leave(directive, f"a part of it has no word in kedge: {':'.join(others)}", words="")
    _share_cpus(request, directive)


def _share_cpus(request: ScriptRequest, directive: Directive) -> None:
    """ncpus is what the node's tasks share."""
    cpus, tasks = request.number("cpus"), request.tasks_per_node
    request.asked.pop("cpus", None)
    if cpus and "cpus_per_task" not in request.asked:
        request.put("cpus_per_task", max(1, cpus // max(1, tasks)), directive)


def _read_torque_nodes(request: ScriptRequest, directive: Directive, value: str) -> None:
    count, *parts = value.partition("+")[0].split(":")
    if not count.isdecimal():
        request.leave(directive, "it asks for nodes by their names", words="")
        count = "1"
    request.put("nodes", parse_count(count), directive)
    for part in parts:
        name, equals, wanted = part.partition("=")
        if name in _TORQUE and equals:
            request.put(_TORQUE[name], parse_count(wanted), directive)
        else:
            request.leave(directive, f"a part of it has no word in kedge: {part}", words="")


def _read_more(request: ScriptRequest, directive: Directive, value: str) -> None:
    """-W depend=...,group_list=..."""
    name, _, wanted = value.partition("=")
    if name == "depend":
        request.put("dependencies", parse_dependencies(wanted), directive)
    else:
        request.leave(directive)


def _read_mail(request: ScriptRequest, directive: Directive, value: str) -> None:
    request.put("mail_on", tuple(_MAIL[letter] for letter in _MAIL if letter in value), directive)


def _read_join(request: ScriptRequest, directive: Directive, value: str) -> None:
    request.put("join", value in ("oe", "eo"), directive)


def _read_path(key: str) -> Reader:
    def read(request: ScriptRequest, directive: Directive, value: str) -> None:
        path = value.rpartition(":")[2].replace("^array_index^", "{index}")
        for variable in ("$PBS_JOBID", "${PBS_JOBID}"):
            path = path.replace(variable, "{id}")
        if "$" in path:
            request.leave(directive, "kedge's patterns for output are {name}, {id} and {index}")
        elif path.endswith("/"):
            request.put(key, f"{path}{{name}}-{{id}}.{'out' if key == 'output' else 'err'}", directive)
        else:
            request.put(key, path, directive)

    return read


def _read_variables(request: ScriptRequest, directive: Directive, value: str) -> None:
    pairs = [part.partition("=") for part in value.split(",")]
    request.put("environment", tuple((name, wanted) for name, equals, wanted in pairs if equals), directive)
    for name, equals, _ in pairs:
        if not equals:
            request.leave(directive, "it takes the value from where it was submitted", words=f"-v {name}")


def _note_shell(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value.rpartition("/")[2] not in ("bash", "sh"):
        request.leave(directive, "kedge's scripts are bash")


READERS: Mapping[str, Reader] = {
    "-N": put_text("name"),
    "-l": _read_resources,
    "-q": put_text("queue"),
    "-A": put_text("account"),
    "-P": put_text("account"),
    "-J": put_parsed("array", parse_array),
    "-t": put_parsed("array", parse_array),
    "-W": _read_more,
    "-M": put_text("mail"),
    "-m": _read_mail,
    "-j": _read_join,
    "-o": _read_path("output"),
    "-e": _read_path("error"),
    "-a": put_text("begin"),
    "-d": put_text("directory"),
    "-v": _read_variables,
    "-S": _note_shell,
}


_VALUES = "aAcCdDeFhiJjkKlLmMnNopPqrRStTuvwW"
_FLAGS = "fIVXxzGh"


def _cut(words: deque[str]) -> CutOption:
    word = words.popleft()
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    letter = word[1]
    if letter in _FLAGS and letter not in _VALUES:
        if len(word) > 2:
            words.appendleft(f"-{word[2:]}")
        return CutOption(word[:2])
    if letter in _VALUES:
        if word[2:] or letter == "h":
            return CutOption(word[:2], word[2:] or None)
        value = words.popleft() if words else None
        return CutOption(word[:2], value, "" if value else f"{word[:2]} wants a value")
    value = words.popleft() if words and not words[0].startswith("-") else None
    return CutOption(word, value, "unknown")


LANGUAGE = Language(
    FACTS,
    _cut,
    READERS,
    may_be_indented=True,
    has_comments=False,
    has_escapes=True,
    line_end=LineEnd.JOINED,
    ignores=":",
    refuses_dos=True,
    refusable={"arrays": ("-t", "-J")},
    queue_options=("-q",),
    path_options=("-o", "-e", "-d"),
    path_variables=re.compile(r"\$\{?(HOME|USER|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID|PBS_JOBID|PBS_JOBNAME)\b\}?|^~(?=/)"),
    has_host_in_paths=True,
    home_warning=("a PBS job runs in the home directory", 'begin with: cd "$PBS_O_WORKDIR"'),
)
