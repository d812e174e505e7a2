# SPDX-License-Identifier: BSD-3-Clause
"""What becomes of one option with one runtime: honoured (and how), ignored with a note, refused, or kedge's own.

The rules of a runtime make its command line, its notes and refusals, and the table in the documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kedge.container.options import FLAGS, VENDORS, RunOptions, Switch, Vendor, list_switches

HONOURED, IGNORED, REFUSED, OWN = "honoured", "ignored", "refused", "own"

# options that only stand for others, which have rules of their own
_STANDS_FOR_OTHERS = {
    "containall": ("contain", "pid", "ipc", "cleanenv"),
    "compat": ("contain", "pid", "ipc", "cleanenv", "no_init", "no_umask", "no_eval", "writable_tmpfs"),
    "hostname": ("uts",),
    "network": ("net",),
}


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One field of the table."""

    how: str
    text: str  # the runtime's own words for it, or why not
    words: Callable[[Any], list[str]] | None = None  # from the option's value to words of the command line


def flag(*words: str, since: str = "") -> FieldRule:
    """Passed on as a flag without a value."""
    text = f"`{' '.join(words)}`" + (f" ({since} and newer)" if since else "")
    return FieldRule(HONOURED, text, lambda _: list(words))


def valued(word: str, text: str = "") -> FieldRule:
    """Passed on with its value."""
    return FieldRule(HONOURED, text or f"`{word}`", lambda value: [word, str(value)])


def each(word: str, text: str = "") -> FieldRule:
    """Passed on once for every value."""
    return FieldRule(HONOURED, text or f"`{word}`", lambda values: [part for value in values for part in (word, value)])


def honoured(text: str) -> FieldRule:
    """Done by other means than one flag; the runtime's file sees to it."""
    return FieldRule(HONOURED, text)


def ignored(reason: str) -> FieldRule:
    """Said, and left out."""
    return FieldRule(IGNORED, reason)


def refused(reason: str) -> FieldRule:
    """Return a rule that refuses: without the option something else would run than was asked for."""
    return FieldRule(REFUSED, reason)


def rule_gpus(on: Callable[[Vendor, Switch], FieldRule], off: Callable[[Vendor], FieldRule]) -> dict[str, FieldRule]:
    """The rules for the flags of all GPU vendors: `on` for those that ask for GPUs, `off` for those that overrule."""
    rules: dict[str, FieldRule] = {}
    for vendor in VENDORS:
        rules |= {switch.attribute: on(vendor, switch) for switch in vendor.on}
        rules[vendor.off.attribute] = off(vendor)
    return rules


NOT_ADDED = honoured("never added by default")
EXPANDED = honoured("expanded into its options")
_OWN = FieldRule(OWN, "kedge's own")
# what kedge sees to itself, whatever the runtime
OWN_RULES = {
    name: _OWN
    for name in (
        *("image", "arguments", "command_name", "instance", "pid_file", "runtime", "pull", "pull_words"),
        *("run_record", "record_to", "dry_run", "force", "json", "step"),
        *("verbose", "silent", "debug", "nocolor", "shim", "given", "notes", "warnings"),
    )
} | {"record": refused("only kedge's own shell records commands")}


def option_names() -> tuple[str, ...]:
    """Every attribute of RunOptions, in the order it has there; those of GPU vendors before other devices."""
    names = list(RunOptions.__annotations__)
    place = names.index("device")
    names[place:place] = [switch.attribute for switch in list_switches()]
    return tuple(names)


def flag_name(name: str) -> str:
    """The flag that sets an attribute."""
    return next((f"--{flag.names[0]}" for flag in FLAGS if flag.attribute == name), f"--{name.replace('_', '-')}")


def is_given(options: RunOptions, name: str) -> bool:
    """Whether an option has another value than without being asked for."""
    return bool(getattr(options, name) != getattr(_DEFAULTS, name))


def show_option(options: RunOptions, name: str) -> str:
    """The option as the user knows it: the flag or variable that set it, also where it came with another."""
    if name in options.given:
        return options.given[name]
    for parent, children in _STANDS_FOR_OTHERS.items():
        if name in children and is_given(options, parent):
            return f"{flag_name(name)} (part of {options.given.get(parent, flag_name(parent))})"
    return flag_name(name)


_DEFAULTS = RunOptions()
