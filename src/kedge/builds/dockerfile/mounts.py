# SPDX-License-Identifier: BSD-3-Clause
"""What `RUN --mount` asks for: fields with commas between them, some only for some types."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.builds.dockerfile.syntax import DockerfileNode
from kedge.builds.step_values import CopyOrigin, StepMount, refuse_recipe

_TYPES = ("bind", "cache", "tmpfs", "secret", "ssh")
_SHARING = ("shared", "private", "locked")
_NAMES = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly", "rw": "readwrite"}
_TEXTS = ("from", "source", "target", "id", "env")
_KEYS = (*_TEXTS, "type", "readonly", "readwrite", "sharing", "required", "size", "mode", "uid", "gid", *_NAMES)
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def split_fields(text: str, node: DockerfileNode) -> list[str]:
    """The fields of a value, as CSV has them: quotes around a field let it hold commas."""
    if not text:
        _refuse(node, "--mount has no value", "write --mount=type=TYPE,target=PATH")
    fields: list[str] = []
    position = 0
    while True:
        match = re.compile(r'"((?:[^"]|"")*)"(?=,|\Z)|([^",]*)(?=,|\Z)').match(text, position)
        if not match:
            _refuse(node, f"the quotes in --mount={text} do not match", None)
        fields.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        position = match.end() + 1
        if position > len(text):
            return fields


def check_mount(text: str, node: DockerfileNode) -> str:
    """Where the mount comes from, which must be known before variables are; empty if it does not say."""
    origin = ""
    for part in split_fields(text, node):
        key, _, value = part.partition("=")
        if key.lower() == "from":
            origin = value
    if 0 <= origin.find("$") < len(origin) - 1:
        hint = "add a stage with FROM, where global ARG values work, and name that stage"
        _refuse(node, "'from' of a mount cannot have variables", hint)
    return origin


@dataclass(slots=True)
class _Fields:
    """The fields of one mount while they are read."""

    node: DockerfileNode
    kind: str = "bind"
    readonly: bool | None = None
    is_required: bool = False
    sharing: str = ""
    size: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    texts: dict[str, str] = field(default_factory=dict)  # from, source, target, id, env

    def set_switch(self, key: str) -> None:
        """A field without a value."""
        if key in ("readonly", "readwrite"):
            self.readonly = key == "readonly"
        elif key == "z":  # Podman's, for SELinux: no label is changed here
            pass
        elif key == "required":
            self._set_required("true")
        else:
            _refuse(self.node, f"'{key}' in --mount has no value", f"write {key}=VALUE")

    def set_value(self, key: str, value: str) -> None:
        """A field with a value; those of another type are refused."""
        match key:
            case "type":
                self.kind = self._choose("type", value, _TYPES)
            case "sharing":
                self.sharing = self._choose("sharing", value, _SHARING)
            case "readonly" | "readwrite":
                self.readonly = self._read_truth(key, value) == (key == "readonly")
            case "required":
                self._set_required(value)
            case "size":
                self._set_size(value)
            case "mode":
                self.mode = self._read_number(key, value, 8)
            case "uid":
                self.uid = self._read_number(key, value, 10)
            case "gid":
                self.gid = self._read_number(key, value, 10)
            case _ if key in _TEXTS:
                self.texts[key] = value
            case _:
                hint = propose(key, _KEYS) or f"known are {', '.join(_KEYS)}"
                _refuse(self.node, f"--mount does not know '{key}'", hint, key)

    def _choose(self, key: str, value: str, known: tuple[str, ...]) -> str:
        if value.lower() not in known:
            hint = propose(value, known) or f"use {', '.join(known)}"
            _refuse(self.node, f"{key}={value} in --mount is unknown", hint, value)
        return value.lower()

    def _set_required(self, value: str) -> None:
        if self.kind not in ("secret", "ssh"):
            _refuse(self.node, f"'required' is not for mounts of type {self.kind}", "put type=secret or type=ssh first")
        self.is_required = self._read_truth("required", value)

    def _set_size(self, value: str) -> None:
        size = read_bytes(value)
        if self.kind != "tmpfs":
            _refuse(self.node, f"'size' is not for mounts of type {self.kind}", "put type=tmpfs first")
        if size is None:
            _refuse(self.node, f"size={value} is not a size", "write it like size=64m", "size=")
        self.size = size

    def _read_truth(self, key: str, value: str) -> bool:
        if value not in _TRUE + _FALSE:
            _refuse(self.node, f"{key}={value} is neither true nor false", None, f"{key}=")
        return value in _TRUE

    def _read_number(self, key: str, value: str, base: int) -> int:
        if not re.fullmatch("[0-7]{1,11}" if base == 8 else "[0-9]{1,10}", value) or int(value, base) >= 1 << 32:
            shown = "an octal number" if base == 8 else "a number"
            _refuse(self.node, f"{key}={value} is not {shown}", None, f"{key}=")
        return int(value, base)

    def check(self) -> None:
        """Fields that do not go together."""
        if self.kind in ("bind", "tmpfs") and (self.mode, self.uid, self.gid) != (None, None, None):
            _refuse(self.node, f"mode, uid and gid are not for mounts of type {self.kind}", "remove them")
        if self.sharing and self.kind != "cache":
            _refuse(self.node, f"'sharing' is not for mounts of type {self.kind}", "remove it")
        if self.kind != "secret":
            return
        if self.texts.get("from"):
            _refuse(self.node, "a secret has no 'from'", "remove it")
        if not any(self.texts.get(key) for key in ("source", "target", "id")):
            _refuse(self.node, "a secret needs an id", "write --mount=type=secret,id=NAME")
        if self.texts.get("source") and self.texts.get("id"):
            _refuse(self.node, "a secret has either 'id' or 'source'", "keep the id")


@frozen
class MountContext:
    """What a mount is read with."""

    node: DockerfileNode
    expand: Callable[[str], str]
    find_origin: Callable[[str], CopyOrigin]
    directory: str = "/"


def read_mount(text: str, context: MountContext) -> StepMount:
    """The mount, variables put in; raises InvalidRecipe."""
    fields = _Fields(context.node)
    for part in split_fields(text, context.node):
        key, sign, value = part.partition("=")
        name = _NAMES.get(key.lower(), key.lower())
        if sign:
            fields.set_value(name, context.expand(value))
        else:
            fields.set_switch(name)
    fields.check()
    return _complete(fields, context)


def _complete(fields: _Fields, context: MountContext) -> StepMount:
    """The defaults that the type of a mount has."""
    texts = fields.texts
    target, source = texts.get("target", ""), texts.get("source", "")
    identity = texts.get("id", "")
    if fields.kind == "secret":
        identity = source or identity or posixpath.basename(target)
        target = target or ("" if "env" in texts else f"/run/secrets/{posixpath.basename(identity)}")
    elif fields.kind == "ssh":
        identity = identity or "default"
    else:
        target = posixpath.normpath(posixpath.join("/", context.directory, target))
        target = "/" + target.lstrip("/")
        if target == "/":
            _refuse(context.node, "a mount cannot be on '/'", "name another directory with target=PATH")
        identity = identity or (posixpath.normpath(texts.get("target", "")) if fields.kind == "cache" else "")
    origin = texts.get("from", "")
    writable = fields.kind in ("cache", "tmpfs")
    return StepMount(
        kind=fields.kind,
        target=target,
        source="" if fields.kind in ("secret", "ssh") else source,
        origin=context.find_origin(origin) if origin else CopyOrigin(),
        id=identity,
        is_required=fields.is_required,
        is_readonly=not writable if fields.readonly is None else fields.readonly,
        mode=fields.mode,
        uid=fields.uid or 0,
        gid=fields.gid or 0,
        size=fields.size,
        sharing=fields.sharing or "shared",
        variable=(texts["env"] or identity) if "env" in texts else "",
    )


def _refuse(node: DockerfileNode, message: str, hint: str | None = None, part: str = "--mount") -> NoReturn:
    raise refuse_recipe(node.find(part), message, hint)


# Durations and sizes as Go writes them: `1m30s`, `1.5h`, `64m`.

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\xb5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile("([0-9]{1,40}(?:\\.[0-9]{0,40})?|\\.[0-9]{1,40})(ns|us|\xb5s|\u03bcs|ms|s|m|h)")
_SIZE = re.compile(r"([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}) ?(?:b|([kmgtp])(?:b|ib)?)?", re.IGNORECASE)


def read_nanoseconds(text: str) -> int | None:
    """The time in nanoseconds, or None if the text is no duration."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    parts = list(_PART.finditer(rest))
    if not parts or "".join(part[0] for part in parts) != rest:
        return None
    time = sign * sum(_multiply(part[1], _UNITS[part[2]]) for part in parts)
    return time if abs(time) < 1 << 63 else None


def read_bytes(text: str) -> int | None:
    """The size in bytes, with units of 1024, or None if the text is no size."""
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    power = " kmgtp".index((match[2] or " ").lower())
    return _multiply(match[1], 1024**power)


def _multiply(number: str, unit: int) -> int:
    """A decimal number of units, cut off behind the point."""
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    return int(f"{whole}{fraction}") * unit // scale
