# SPDX-License-Identifier: BSD-3-Clause
"""The flags of instructions: which there are, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kedge.base.nearest import propose
from kedge.builds.dockerfile.syntax import DockerfileNode
from kedge.builds.step_values import refuse_recipe


class FlagKind(Enum):
    """What a flag takes."""

    SWITCH = "true or false"
    TEXT = "a value"
    LIST = "a value, several times"


_NO_FLAGS = "it takes no flags; write -- before words that begin with --"
_TRUTH = {"true": True, "": True, "false": False}


class InstructionFlags:
    """The flags of one instruction."""

    def __init__(self, node: DockerfileNode, kinds: Mapping[str, FlagKind]) -> None:
        self._node = node
        self._kinds = kinds
        self._values: dict[str, list[str]] = {}
        for flag in node.flags:
            self._add(flag)

    def _add(self, flag: str) -> None:
        word, sign, value = flag.partition("=")
        name = word[2:]
        place = self._node.find(word)
        kind = self._kinds.get(name)
        if kind is None:
            known = [f"--{name}" for name in self._kinds]
            hint = propose(word, known) or (f"it takes {', '.join(known)}" if known else _NO_FLAGS)
            raise refuse_recipe(place, f"{self._node.keyword} has no flag {word}", hint)
        if name in self._values and kind is not FlagKind.LIST:
            raise refuse_recipe(place, f"{word} is given twice", "keep one of them")
        if (sign and not value and kind is FlagKind.SWITCH) or (not sign and kind is not FlagKind.SWITCH):
            raise refuse_recipe(place, f"{word} has no value", f"write {word}=VALUE")
        if kind is FlagKind.SWITCH and value.lower() not in _TRUTH:
            raise refuse_recipe(place, f"{word}={value} is neither true nor false", f"write {word} or {word}=false")
        self._values.setdefault(name, []).append(value)

    def text(self, name: str) -> str:
        """The value of a flag; empty if it is not given."""
        return self._values.get(name, [""])[0]

    def all(self, name: str) -> tuple[str, ...]:
        """The values of a flag that may be given several times."""
        return tuple(self._values.get(name, ()))

    def switch(self, name: str) -> bool | None:
        """Whether a switch is on; None if it is not given."""
        return _TRUTH[self._values[name][0].lower()] if name in self._values else None
