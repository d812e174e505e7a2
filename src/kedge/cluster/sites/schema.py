# SPDX-License-Identifier: BSD-3-Clause
"""The keys of a profile, taken from the fields of `Site` and `Queue`, and how the value of each is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kedge.base.duration import parse_duration, shorten_duration
from kedge.base.frozen import frozen, list_defaults
from kedge.base.toml_text import write_key, write_list, write_text
from kedge.cluster.job import LAUNCHERS, RUNTIMES
from kedge.cluster.memory import shorten_memory
from kedge.cluster.schedulers.choose import SCHEDULERS
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

_REQUIRED = ("account", "queue", "time", "nodes", "tasks", "memory")
REFUSED = ("memory", "gpus", "arrays", "export", "exclusive", "nodelist")
_SIZES = {"memory_per_node", "local_disk", "default_memory_per_cpu"}
_TIMES = {"max_time", "max_interactive_time", "default_time"}
_WORDS = {
    "scheduler": SCHEDULERS,
    "requires": _REQUIRED,
    "refuses": REFUSED,
    "arch": ("amd64", "arm64", "ppc64le"),
    "runtime": RUNTIMES,
    "launcher": LAUNCHERS,
    "pull": ("now", "in-job"),
}


class Unusable(Exception):
    """A value that cannot be what its key needs; the text says what would."""


def parse_size(value: object) -> int:
    """Bytes, from `384G` or `990000M`."""
    from kedge.cluster.memory import parse_memory  # late: few profiles say it

    try:
        return parse_memory(_parse_text(value))
    except (InvalidJob, Unusable):
        raise Unusable("it must be a size such as '384G' or '990000M'") from None


def parse_time(value: object) -> int:
    """Seconds, from `20m`, `48h`, `7d`, `12:00:00` or `7-00:00:00`."""
    try:
        return parse_duration(_parse_text(value))
    except (InvalidJob, Unusable):
        raise Unusable("it must be a time such as '20m', '48h', '7d' or '12:00:00'") from None


def _parse_text(value: object) -> str:
    """Text of one line."""
    if not isinstance(value, str) or not (value == "" or value.isprintable()):
        raise Unusable("it must be one line of text, in quotes")
    return value


def _parse_version(value: object) -> str:
    """The version of a driver: `535.104.05`, or as much of it as is known: `535`; empty: unknown."""
    text = _parse_text(value)
    if not re.fullmatch(r"([0-9]{2,4}(\.[0-9]{1,4}){0,2})?", text):
        raise Unusable("it must be the version of a driver, such as '535' or '535.104.05'")
    return text


def _parse_flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Unusable("it must be true or false")
    return value


def parse_count(value: object) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
        raise Unusable("it must be a whole number, without quotes")
    return value


def parse_list(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise Unusable("it must be a list of texts, as in ['a', 'b']")
    try:
        return tuple(_parse_text(each) for each in value)
    except Unusable:
        raise Unusable("it must be a list of one-line texts, as in ['a', 'b']") from None


def parse_table(value: object) -> tuple[tuple[str, str], ...]:
    """A table whose values are texts."""
    if not isinstance(value, dict):
        raise Unusable("it must be a table of texts")
    for name, each in value.items():
        if not isinstance(each, str) or not each.isprintable():
            raise Unusable(f"'{name}' in it must be one line of text, in quotes")
    return tuple(value.items())


_BY_TYPE: dict[str, Callable[[object], Any]] = {
    "str": _parse_text,
    "str | None": _parse_text,
    "bool": _parse_flag,
    "bool | None": _parse_flag,
    "int | None": parse_count,
    "tuple[str, ...]": parse_list,
    "tuple[tuple[str, str], ...]": parse_table,
}


@frozen
class Key:
    """One key: how its value is read, and the words it may be, where they are fixed."""

    name: str
    parse: Callable[[object], Any]
    words: tuple[str, ...] = ()

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it may be; empty: any."""
        if self.name != "interactive":
            return self.words
        from kedge.cluster.schedulers.choose import list_facts  # late: few profiles have it

        return tuple(command for facts in list_facts() for command in facts.interactive)

    def read(self, value: object) -> Any:
        """The value, or Unusable."""
        parsed = self.parse(value)
        if self.name in ("hostnames", "variables"):
            _check_patterns(parsed)
        wrong = [word for word in _listed(parsed) if self.choices and word not in self.choices]
        if wrong:
            raise Unusable(f"'{wrong[0]}' is not one of: {', '.join(self.choices)}")
        return parsed


def _listed(parsed: object) -> tuple[str, ...]:
    if isinstance(parsed, tuple):
        return tuple(each for each in parsed if isinstance(each, str))
    return (parsed,) if isinstance(parsed, str) and parsed else ()


def _check_patterns(parsed: tuple[Any, ...]) -> None:
    for each in parsed:
        pattern = each if isinstance(each, str) else each[1]
        try:
            re.compile(pattern)
        except re.error as problem:
            raise Unusable(f"'{pattern}' is not a regular expression: {problem}") from None


def _make_keys(kind: type[Site] | type[Queue], absent: tuple[str, ...]) -> dict[str, Key]:
    keys = {}
    for name, annotation in kind.__annotations__.items():
        if name in absent:
            continue
        parse = _BY_TYPE.get(annotation)
        if name in _SIZES:
            parse = parse_size
        elif name in _TIMES:
            parse = parse_time
        elif name == "driver":
            parse = _parse_version
        if parse is not None:
            keys[name] = Key(name, parse, _WORDS.get(name, ()))
    return keys


SITE_KEYS = _make_keys(Site, ("name", "origin"))  # the file gives these two
QUEUE_KEYS = _make_keys(Queue, ())


# A site as the text of a profile; what is neutral is left out, so that the text says what is particular.


def write_profile(site: Site, *, opening: tuple[str, ...] = ()) -> str:
    """The text; `opening` are comments above it."""
    blocks = [[f"# {line}" for line in opening]] if opening else []
    blocks.append(list(_write_keys(site, SITE_KEYS)))
    for key in SITE_KEYS.values():
        table = getattr(site, key.name)
        if key.parse is parse_table and table:
            blocks.append([f"[{key.name}]", *(f"{write_key(name)} = {write_text(value)}" for name, value in table)])
    blocks += [["[[queues]]", *_write_keys(queue, QUEUE_KEYS)] for queue in site.queues]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _write_keys(thing: Site | Queue, keys: dict[str, Key]) -> Iterator[str]:
    defaults = list_defaults(type(thing))
    for key in keys.values():
        value = getattr(thing, key.name)
        if value != defaults.get(key.name) and key.parse is not parse_table:
            yield f"{key.name} = {_write_value(key, value)}"


def _write_value(key: Key, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if key.parse is parse_size:
            return write_text(shorten_memory(value))
        return write_text(shorten_duration(value)) if key.parse is parse_time else str(value)
    if isinstance(value, tuple):
        return write_list(value)
    return write_text(str(value))
