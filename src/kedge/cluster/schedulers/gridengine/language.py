# SPDX-License-Identifier: BSD-3-Clause
"""How qsub of Grid Engine reads scripts: tried against 8.1.9."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from kedge.cluster.job import Dependency, DependencyKind
from kedge.cluster.schedulers.directive import CutOption, Directive
from kedge.cluster.schedulers.gridengine import FACTS
from kedge.cluster.schedulers.language import Language
from kedge.cluster.schedulers.quantities import POWERS, parse_array, parse_clock, parse_count
from kedge.cluster.schedulers.script_request import Reader, ScriptRequest, overlook, put_count, put_text

# What the options of Grid Engine's qsub ask for.

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


_OPTIONS = """
a ac adds ar A binding C c ckpt clearp clears dc display dl e hold_jid hold_jid_ad h i j js jsv l m M masterq mods N
o ot P p pe pty q r rdi rou S sc shell si soc stdin sync t tc tcon v w wd
"""
_VALUES = frozenset(_OPTIONS.split())
_TWICE = ("pe",)  # followed by a name and a number
_FLAGS = ("clear", "cwd", "hard", "soft", "notify", "V", "terse", "verify")
_BOOLEAN = ("b", "R", "nostdin", "par", "now")


def _cut(words: deque[str]) -> CutOption:
    word = words.popleft()
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    name = word[1:]
    if name in _TWICE:
        value = " ".join(words.popleft() for _ in range(min(2, len(words))))
        return CutOption(word, value or None, "" if " " in value else f"{word} wants a name and a number")
    if name in _BOOLEAN or name in _VALUES:
        if not words:
            return CutOption(word, None, f"{word} wants a value")
        return CutOption(word, words.popleft())
    if name in _FLAGS:
        return CutOption(word)
    if words and not words[0].startswith("-"):
        return CutOption(word, words.popleft(), "unknown")
    return CutOption(word, None, "unknown")


LANGUAGE = Language(
    FACTS,
    _cut,
    READERS,
    # `#$` is short, and elsewhere begins an ordinary comment, such as `#$HOME is ...`
    pattern=re.compile(r"#\$[ \t]*-[A-Za-z]"),
    has_any_case=True,
    reads_to_end=True,
    reads_inner_texts=True,
    stray_word="Grid Engine takes every line that begins with #$ for options: write '# $' in a comment",
    # ABCI's: its own qsub takes it, and Grid Engine's does not
    command_line_only={"-g": "the group (-g) goes on the command line of qsub, never into the script"},
    refusable={"arrays": ("-t",)},
    queue_options=("-q",),
    resource_option="-l",
    path_options=("-o", "-e", "-wd"),
    path_variables=re.compile(r"\$\{?(HOME|USER|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID)\b\}?|^~(?=/)"),
    has_host_in_paths=True,
    home_warning=("without -cwd or -wd the job runs in the home directory", "add #$ -cwd"),
)
