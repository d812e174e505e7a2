# SPDX-License-Identifier: BSD-3-Clause
"""Repeats a recorded run, or says what differs now: image, architecture, driver, GPUs, directories, hidden values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedge.base.frozen import JsonValue, frozen
from kedge.base.image_argument import find_path
from kedge.base.secret_text import HIDDEN
from kedge.container.flags import collect_binds
from kedge.container.options import RunOptions
from kedge.errors import KedgeError, RunDiffers
from kedge.jobs.runs.image_facts import describe_image
from kedge.jobs.runs.run_facts import choose_variables
from kedge.jobs.runs.run_record import is_words
from kedge.system.host.gpu_probe import GpuProbe, probe_gpus

_VERBS = ("exec", "run", "launch")
# Set by this host, its scheduler or a launcher: the values of another time or place would be wrong now.
_OF_THE_PLACE = (
    *("PATH", "LD_", "PYTHON", "TMPDIR", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "CUDA_VISIBLE_DEVICES"),
    *("KEDGE_JOB_", "KEDGE_JOBDIR", "KEDGE_LAUNCH_", "KEDGE_NODEDIR", "KEDGE_CACHEDIR", "NVIDIA_VISIBLE_DEVICES"),
    "OMPI_MCA_orte",
)
_BINDS = {"-B": "bind", "--bind": "bind", "--mount": "mount"}


@frozen
class Difference(JsonValue):
    """Something that is not as it was."""

    what: str  # image, architecture, driver, gpus, directory, bind, variable
    then: str
    now: str


@frozen
class Rerun:
    """How a recorded run is repeated."""

    words: tuple[str, ...]  # behind `kedge`
    directory: str
    environ: dict[str, str]
    differences: tuple[Difference, ...]
    hidden: tuple[str, ...] = ()  # words of the command that the record hides


def plan_rerun(record: Mapping[str, Any], environ: Mapping[str, str]) -> Rerun:
    """Compare a record with this host, now; changes nothing."""
    verb, image = record["verb"], record["image"]
    if verb not in _VERBS or not isinstance(image.get("name"), str):
        raise RunDiffers(f"the record is of '{verb}', which kedge cannot repeat", hint="use the kedge that wrote it")
    variables = {name: value for name, value in record["environment"].items() if is_words([name, value])}
    name = _pin(image)
    words = (verb, *record["options"], name, *record["command"])
    differences = [
        *_compare_image(image, environ),
        *_compare_host(record),
        *_compare_gpus(record, probe_gpus),
        *_find_missing(record, variables),
        *_find_unset(variables, environ),
    ]
    return Rerun(
        words,
        record["directory"],
        _restore(variables, environ),
        tuple(differences),
        tuple(word for word in words if HIDDEN in word),
    )


def refuse_differences(plan: Rerun, *, anyway: bool) -> None:
    """Raise where the run would be another, unless the user wants it all the same, or cannot be made at all."""
    if plan.hidden:
        raise RunDiffers(
            f"the record hides a secret in the command: {plan.hidden[0]}",
            hint="'kedge rerun --dry-run RECORD' prints the command: copy it, and fill in the secret",
        )
    if plan.differences and not anyway:
        listed = "; ".join(f"{each.what}: {each.then} then, {each.now} now" for each in plan.differences)
        raise RunDiffers(
            f"this is not the recorded run any more: {listed}",
            context={"differences": str(len(plan.differences))},
            hint="run it all the same: kedge rerun --anyway RECORD",
        )


def _pin(image: Mapping[str, Any]) -> str:
    """A tag with the digest that it had: registries move tags."""
    name, digest = str(image["name"]), image.get("digest")
    is_tag = name.startswith("docker://") and "@" not in name
    return f"{name}@{digest}" if is_tag and isinstance(digest, str) and digest.startswith("sha256:") else name


def _compare_image(image: Mapping[str, Any], environ: Mapping[str, str]) -> list[Difference]:
    path = find_path(image["name"])
    if not path:  # its digest is part of the name, or nothing is known of it
        return []
    if isinstance(image.get("path"), str):
        path = image["path"]
    if not os.path.lexists(path):
        return [Difference("image", path, "missing")]
    try:
        now = describe_image(path, environ)
    except (KedgeError, OSError) as problem:
        return [Difference("image", path, str(problem))]
    for name in ("fingerprint", "digest"):
        if image.get(name) and now[name] != image[name]:
            return [Difference("image", f"{name} {_shorten(image[name])}", _shorten(now[name]))]
    return []


def _compare_host(record: Mapping[str, Any]) -> list[Difference]:
    then, now = record["host"].get("machine"), os.uname().machine
    return [Difference("architecture", str(then), now)] if then and then != now else []


def _compare_gpus(record: Mapping[str, Any], probe: Any) -> list[Difference]:
    gpus = record.get("gpus")
    then = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    if not record.get("driver") and not then:
        return []
    probed: GpuProbe = probe()
    if not probed.gpus:
        return [Difference("gpus", _count(then), probed.problem or "none")]
    found = []
    if record.get("driver") and record["driver"] != probed.driver:
        found.append(Difference("driver", str(record["driver"]), probed.driver))
    here = [gpu.name for gpu in probed.gpus]
    if any(here.count(name) < then.count(name) for name in then):
        found.append(Difference("gpus", _count(then), _count(here)))
    return found


def _find_missing(record: Mapping[str, Any], variables: Mapping[str, str]) -> list[Difference]:
    """The directory that it ran in, and sources of binds."""
    directory = record["directory"]
    found = [] if Path(directory).is_dir() else [Difference("directory", directory, "missing")]
    options = RunOptions(**_read_binds(record["options"]))
    try:
        binds = collect_binds(options, variables, directory)
    except KedgeError as problem:
        return [*found, Difference("bind", "valid", problem.message)]
    return [
        *found,
        *(Difference("bind", bind.source, "missing") for bind in binds if not os.path.lexists(bind.source)),
    ]


def _read_binds(words: list[str]) -> dict[str, object]:
    read: dict[str, list[str]] = {"bind": [], "mount": []}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _BINDS and (equals or index + 1 < len(words)):
            read[_BINDS[name]].append(value if equals else words[index + 1])
        elif word.startswith("-B") and word != "-B":
            read["bind"].append(word[2:].removeprefix("="))
    return dict(read)


def _find_unset(variables: Mapping[str, str], environ: Mapping[str, str]) -> list[Difference]:
    hidden = (name for name, value in variables.items() if value == HIDDEN)
    return [Difference("variable", f"{name} set", "not set") for name in hidden if name not in environ]


def _restore(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return this environment with the recorded variables in it; secrets stay as they are here."""
    kept = {name: value for name, value in environ.items() if not _is_restored(name)}
    kept |= {name: environ[name] for name, value in variables.items() if value == HIDDEN and name in environ}
    return kept | {name: value for name, value in variables.items() if _is_restored(name) and value != HIDDEN}


def _is_restored(name: str) -> bool:
    return bool(choose_variables({name: ""})) and not name.startswith(_OF_THE_PLACE)


def _shorten(digest: object) -> str:
    return str(digest)[:19]


def _count(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "none"
