# SPDX-License-Identifier: BSD-3-Clause
"""Reads a command line by a table of its options, for shims of programs with plain options: no bundles of letters."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Given:
    """Options by their long names, in order, and the words behind them."""

    def __init__(self) -> None:
        self.options: list[tuple[str, str]] = []
        self.names: list[str] = []

    def get(self, name: str) -> str:
        """The last value; empty where it was not given."""
        return next((value for option, value in reversed(self.options) if option == name), "")

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return any(option == name for option, _ in self.options)


def read_options(
    verb: str,
    words: Sequence[str],
    *,
    values: Mapping[str, str] | None = None,
    switches: Mapping[str, str] | None = None,
    names: int | None = None,
) -> Given:
    """Options up to the first other word or `--`; `names` is how many words must follow, None: one or more."""
    values, switches = values or {}, switches or {}
    given = Given()
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        position += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in switches and not equals:
            given.options.append((switches[name], ""))
        elif name in values and (equals or position < len(words)):
            if not equals:
                value = words[position]
                position += 1
            given.options.append((values[name], value))
        else:
            raise _refuse(verb, word, name in values, [*values, *switches])
    given.names = list(words[position:])
    if (names is None and not given.names) or (names is not None and len(given.names) != names):
        from kedge.errors import UsageError  # late: only for an error

        wanted = "a name" if names is None else f"{names} {'name' if names == 1 else 'names'} after its options"
        found = f", not {len(given.names)}" if names is not None else ""
        raise UsageError(f"'{verb}' takes {wanted}{found}", hint=f"to see its options: {verb} --help")
    return given


def _refuse(verb: str, word: str, wants_value: bool, known: list[str]) -> Exception:
    from kedge.base.nearest import propose
    from kedge.errors import UsageError  # late, both: only for an error

    if wants_value:
        return UsageError(f"'{verb} {word}' needs a value")
    hint = propose(word, known) or f"options of '{verb}': {' '.join(known) or 'none'}"
    return UsageError(f"'{verb} {word}' is not supported", hint=hint)
