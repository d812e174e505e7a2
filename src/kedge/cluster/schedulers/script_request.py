# SPDX-License-Identifier: BSD-3-Clause
"""What a script asks its scheduler for, in the words of a job's description; and what those words cannot say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from kedge.cluster.schedulers.directive import Directive, show_option
from kedge.cluster.schedulers.quantities import parse_count


@dataclass(frozen=True, slots=True)
class _AskedValue:
    """One thing asked for."""

    value: Any
    directive: Directive

    @property
    def line(self) -> int:
        """Where."""
        return self.directive.line


@dataclass(frozen=True, slots=True)
class Left:
    """A directive, or a part of one, that a job's description has no word for."""

    line: int
    words: str  # the option as it could be given again; empty when that makes no sense
    why: str
    is_refused: bool = False  # the scheduler would not take it either


@dataclass(slots=True)
class ScriptRequest:
    """Keys are those of a job, and `gpus` for all nodes together, `gpus_per_task`, `resource:NAME`."""

    scheduler: str
    asked: dict[str, _AskedValue] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)

    def put(self, key: str, value: object, directive: Directive) -> None:
        """Remember a value; a later one replaces it, as schedulers do."""
        self.asked[key] = _AskedValue(value, directive)

    def leave(self, directive: Directive, why: str = "", *, words: str | None = None, is_refused: bool = False) -> None:
        """Remember what has no place."""
        shown = show_option(directive) if words is None else words
        self.left.append(Left(directive.line, shown, why or "kedge has no word for it", is_refused))

    def get(self, key: str) -> Any:
        """The value, or None."""
        found = self.asked.get(key)
        return None if found is None else found.value

    def number(self, key: str) -> int | None:
        """The value of a key that holds a number."""
        return cast("int | None", self.get(key))

    def line(self, *keys: str) -> int:
        """Where one of these is asked for; 1 when none is."""
        return next((self.asked[key].line for key in keys if key in self.asked), 1)

    @property
    def nodes(self) -> int:
        """How many nodes it gets when nothing else decides."""
        return self.number("nodes") or 1

    @property
    def gpus_per_node(self) -> int | None:
        """GPUs of each node, when that is certain; None when nothing is asked."""
        if (given := self.number("gpus_per_node")) is not None:
            return given
        total = self.number("gpus")
        per_task = self.number("gpus_per_task")
        if total is None and per_task is not None:
            return per_task * self.tasks_per_node
        if total is None:
            return None
        return -(-total // self.nodes)

    @property
    def tasks_per_node(self) -> int:
        """Tasks of each node."""
        if (given := self.number("tasks_per_node")) is not None:
            return given
        return -(-(self.number("tasks") or self.nodes) // self.nodes)

    @property
    def wants_gpus(self) -> bool:
        """Whether the request asks for GPUs."""
        return bool(self.gpus_per_node)


Reader = Callable[[ScriptRequest, Directive, str], None]


def put_text(key: str) -> Reader:
    """A reader that keeps the text."""
    return lambda request, directive, value: request.put(key, value, directive)


def put_count(key: str) -> Reader:
    """A reader that keeps a number."""
    return lambda request, directive, value: request.put(key, parse_count(value), directive)


def put_parsed(key: str, parse: Callable[[str], object]) -> Reader:
    """A reader that keeps what `parse` makes of the text."""
    return lambda request, directive, value: request.put(key, parse(value), directive)


def overlook(_request: ScriptRequest, _directive: Directive, _value: str) -> None:
    """A reader for what changes nothing, because every script of kedge's does it anyway."""
