# SPDX-License-Identifier: BSD-3-Clause
"""Keys of build steps: two steps with one key make the same change, whenever and wherever they run.

A key covers the state that the step begins with and what the step means. It never covers times, the place in the
recipe, the order of files on a disk, or the value of a secret.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from kedge.builds.step_values import (
    CopyStep,
    DirectoryStep,
    HostScriptStep,
    RunStep,
    Step,
    StepMount,
    WriteFilesStep,
)

_FORMAT = 2  # raise it when the same step makes another layer


def state_key(base: str, layers: Iterable[str]) -> str:
    """The key of a state: the digest of its base, and those of the layers above it, lowest first."""
    return _hash(["state", _FORMAT, base, *layers])


def step_key(state: str, step: Step, inputs: Mapping[str, str], platform: str = "") -> str:
    """The key of a step in a state.

    `inputs` are digests of what the step reads beside the state: copied files, origins of mounts, options of the build.
    """
    return _hash(["step", _FORMAT, state, platform, _describe(step), sorted(inputs.items())])


def _describe(step: Step) -> object:
    """What the step means, without its place and text."""
    match step:
        case RunStep():
            return _describe_run(step)
        case CopyStep():
            return _describe_copy(step)
        case DirectoryStep():
            return ["directory", step.path, step.user]
        case HostScriptStep():
            return ["host", step.section, list(step.argv), _hash_bytes(step.script)]
        case WriteFilesStep():
            files = [[file.path, _hash_bytes(file.data), file.mode, file.way] for file in step.files]
            return ["files", files, sorted(step.directories), sorted(step.links)]
        case _:
            return ["config"]


def _describe_run(step: RunStep) -> object:
    # Without `step.proxies`: how this host reaches the network says nothing about what is fetched there. A proxy that
    # the recipe or its base names decides that, and counts.
    environment = [[name, value] for name, value in step.environment]
    mounts = [_describe_mount(mount) for mount in step.mounts]
    script = [step.script.name, _hash_bytes(step.script.data)] if step.script else []
    words = [list(step.argv), sorted(environment), step.directory, step.user]
    return ["run", step.section, *words, mounts, step.network, _hash_bytes(step.stdin), script]


def _describe_mount(mount: StepMount) -> object:
    """A mount by what the program sees; what a cache holds and what a secret says is no part of it."""
    place = [mount.kind, mount.target, mount.source, mount.id, mount.variable]
    return [*place, mount.is_readonly, mount.mode, mount.uid, mount.gid, mount.size]


def _describe_copy(step: CopyStep) -> object:
    inline = [[file.name, _hash_bytes(file.data)] for file in step.inline]
    flags = [step.is_link, step.keeps_parents, step.is_addition, step.unpacks, step.keeps_git, step.is_definition]
    words = [list(step.sources), step.destination, step.owner, step.mode, list(step.excluded), step.checksum]
    return ["copy", *words, inline, flags]


def _hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if data else ""


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
