# SPDX-License-Identifier: BSD-3-Clause
"""What the options of Grid Engine's qsub ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.cluster.job import Dependency, DependencyKind
from kedge.cluster.schedulers.directive import Directive
from kedge.cluster.schedulers.quantities import POWERS, parse_array, parse_clock, parse_count
from kedge.cluster.schedulers.script_request import Reader, ScriptRequest, overlook, put_count, put_text

_GPUS = ("gpu", "gpus", "ngpus", "ngpu", "cuda", "gpu_card", "gpu_cards")
_MEMORY = ("h_vmem", "mem_free", "mem", "m_mem_free", "h_data", "virtual_free", "s_vmem", "mem_req", "memory")
_MAIL = {"b": "begin", "e": "end", "a": "fail"}
_PSEUDO = {"$JOB_ID": "{id}", "$JOB_NAME": "{name}", "$TASK_ID": "{index}"}
_SHARED_MEMORY = re.compile(r"smp|shm|shared|threads?|openmp|omp|orte_smp|multi_?thread|onenode|serial", re.I)


def _parse_memory(text: str) -> int:
    """Bytes, or with k, K, m, M, g, G behind it: small letters are powers of 1000, capitals of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", text)
    if match is None:
        raise ValueError(f"'{text}' is not an amount of memory: write a number with K, M or G, such as 4G")
    base = 1000 if match[2].islower() else 1024
    return int(float(match[1]) * float(base ** POWERS[match[2].lower()]))


def _read_resources(request: ScriptRequest, directive: Directive, value: str) -> None:
    for part in value.split(","):
        name, equals, wanted = part.partition("=")
        if name == "h_rt":
            request.put("time", parse_clock(wanted, needs_all=True), directive)
        elif name in _MEMORY:
            request.put("memory_per_cpu", _parse_memory(wanted), directive)
        elif name in _GPUS:
            request.put("gpus_per_node", parse_count(wanted or "1"), directive)
        elif name in ("exclusive", "excl") and wanted.lower() in ("", "true", "1"):
            request.put("exclusive", True, directive)
        elif equals and wanted.isdecimal():
            request.put(f"resource:{name}", wanted, directive)
        else:
            request.leave(directive, words=f"-l {part}")


def _read_environment(request: ScriptRequest, directive: Directive, value: str) -> None:
    """`-pe smp 8` is one task with 8 CPUs, any other environment is so many tasks."""
    name, _, slots = value.partition(" ")
    number = parse_count(slots.partition("-")[0])
    if _SHARED_MEMORY.search(name):
        request.put("cpus_per_task", number, directive)
    else:
        request.put("tasks", number, directive)
    request.put("parallel_environment", name, directive)
    if "-" in slots:
        request.leave(directive, f"only the smaller number of slots, {number}, is kept", words="")


def _read_array(request: ScriptRequest, directive: Directive, value: str) -> None:
    request.put("array", parse_array(value), directive)


def _read_hold(request: ScriptRequest, directive: Directive, value: str) -> None:
    found = tuple(Dependency(DependencyKind.AFTER_ANY, job) for job in value.split(",") if job)
    if not found:
        raise ValueError("-hold_jid wants the ids of jobs")
    request.put("dependencies", found, directive)


def _read_mail(request: ScriptRequest, directive: Directive, value: str) -> None:
    request.put("mail_on", tuple(_MAIL[letter] for letter in _MAIL if letter in value), directive)


def _read_join(request: ScriptRequest, directive: Directive, value: str) -> None:
    request.put("join", value.lower() in ("y", "yes"), directive)


def _read_path(key: str) -> Reader:
    def read(request: ScriptRequest, directive: Directive, value: str) -> None:
        path = value.rpartition(":")[2]  # HOST:PATH is allowed, and the host is not looked at any more
        path = re.sub(r"\$\w+", lambda found: _PSEUDO.get(found.group(), found.group()), path)
        if "$" in path or path.startswith("~"):
            request.leave(directive, "kedge's patterns for output are {name}, {id} and {index}")
        elif path.endswith("/") or ("." not in path.rpartition("/")[2] and "{" not in path):
            request.put(key, f"{path.rstrip('/')}/{{name}}-{{id}}.{'out' if key == 'output' else 'err'}", directive)
        else:
            request.put(key, path, directive)

    return read


def _read_variables(request: ScriptRequest, directive: Directive, value: str) -> None:
    known = dict(request.get("environment") or ())
    for part in value.split(","):
        name, equals, wanted = part.partition("=")
        if equals:
            known[name] = wanted
        else:
            request.leave(directive, "it takes the value from where it was submitted", words=f"-v {name}")
    if known:
        request.put("environment", tuple(known.items()), directive)


def _note_shell(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value.rpartition("/")[2] not in ("bash", "sh"):
        request.leave(directive, "kedge's scripts are bash")


def _note_directory(request: ScriptRequest, directive: Directive, _value: str) -> None:
    request.put("cwd", True, directive)


def _read_directory(request: ScriptRequest, directive: Directive, value: str) -> None:
    request.put("cwd", True, directive)
    request.put("directory", value, directive)


READERS: Mapping[str, Reader] = {
    "-N": put_text("name"),
    "-l": _read_resources,
    "-pe": _read_environment,
    "-q": put_text("queue"),
    "-P": put_text("account"),
    "-A": put_text("account"),
    "-t": _read_array,
    "-tc": put_count("array_limit"),
    "-hold_jid": _read_hold,
    "-M": put_text("mail"),
    "-m": _read_mail,
    "-j": _read_join,
    "-o": _read_path("output"),
    "-e": _read_path("error"),
    "-cwd": _note_directory,
    "-wd": _read_directory,
    "-a": put_text("begin"),
    "-ar": put_text("reservation"),
    "-v": _read_variables,
    "-S": _note_shell,
    "-terse": overlook,
}
