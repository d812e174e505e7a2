# SPDX-License-Identifier: BSD-3-Clause
"""What the options of sbatch ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.cluster.schedulers.directive import Directive
from kedge.cluster.schedulers.quantities import parse_array, parse_count, parse_dependencies
from kedge.cluster.schedulers.script_request import Reader, ScriptRequest, overlook, put_count, put_parsed, put_text
from kedge.cluster.schedulers.slurm.option_values import ENDLESS_TIMES, parse_memory, parse_time

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
