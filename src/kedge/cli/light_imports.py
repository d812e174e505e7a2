# SPDX-License-Identifier: BSD-3-Clause
"""Imports what every verb needs, without modules that Python's own load for what kedge does not ask of them.

argparse loads gettext to translate its messages, for which Python comes with no catalogue; pathlib loads urllib.parse,
and with it ipaddress, for `Path.as_uri`. Both are 4 ms of every verb. While such a module is imported a stand-in has
the place of what it loads; afterwards anybody who imports that gets the real one. urllib3 loads importlib.metadata, and
with it zipfile and csv, to find the version of a library that kedge does not have: 12 ms. There the stand-in
stays, because nobody knows when urllib3 is imported, and gives its place to the real module when that is used.
"""

from __future__ import annotations

import sys

from kedge.module_archive import load_together  # loaded already, by the package

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

COMMAND = "command"  # the archive with the modules of all verbs
RECORD = "record"  # with those of a start that is recorded
VERBS = ("submit", "explain")  # those with an archive of what they need besides


def import_for_verb(words: list[str]) -> None:
    """Load the modules of a command from its archives, where there are any, and Python's own lightly."""
    # whoever wants help may well want nothing else
    verbs = [word for word in words[:1] if word in VERBS and not {"-h", "--help", "--help-all"}.intersection(words)]

    def load() -> None:
        for kind in (COMMAND, *verbs):
            load_together(kind)

    import_lightly(load)


def import_for_record() -> None:
    """The same for a start that is recorded, which needs no argparse."""
    import_lightly(lambda: load_together(RECORD), ("pathlib",))


def import_lightly(load: Callable[[], None] = lambda: None, modules: tuple[str, ...] = ("argparse", "pathlib")) -> None:
    """Import argparse and pathlib, and before them what `load` loads; for the command alone, before anything else."""
    stand_ins = [
        _make_stand_in("gettext", gettext=str, ngettext=_choose_text),
        _make_stand_in("urllib.parse", quote_from_bytes=_quote_later),
    ]
    placed = [each for each in stand_ins if each.__name__ not in sys.modules]
    sys.modules.update((each.__name__, each) for each in placed)
    try:
        load()
        for name in modules:
            __import__(name)
    finally:
        for each in placed:
            if sys.modules.get(each.__name__) is each:
                del sys.modules[each.__name__]
    _import_later("importlib.metadata", "version")


def _make_stand_in(name: str, **members: object) -> ModuleType:
    """A module with a few names; who asks it for another gets the real module's, which then has its place."""
    kind: type[ModuleType] = type(sys)
    stand_in = kind(name)

    def find(attribute: str) -> object:
        if attribute == "__path__":  # every `from … import` asks for it, and those that have none are no packages
            raise AttributeError(attribute)
        return getattr(_load_real(stand_in), attribute)

    stand_in.__dict__.update(members, __getattr__=find)
    return stand_in


def _load_real(stand_in: ModuleType) -> ModuleType:
    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    __import__(name)
    return sys.modules[name]


def _choose_text(singular: str, plural: str, count: int) -> str:
    return singular if count == 1 else plural


def _quote_later(text: bytes) -> str:
    """What pathlib has of urllib.parse, imported when it is called."""
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(text)


def _import_later(name: str, function: str) -> None:
    """Put a stand-in in the place of a module, for whenever it is imported; the function is the real one's."""
    if name in sys.modules:
        return
    stand_in = _make_stand_in(name)

    def call(*given: object) -> object:
        return getattr(_load_real(stand_in), function)(*given)

    stand_in.__dict__[function] = call
    package, _, last = name.rpartition(".")
    __import__(package)
    stand_in.__path__ = [f"{each}/{last}" for each in sys.modules[package].__path__]
    sys.modules[name] = stand_in
    setattr(sys.modules[package], last, stand_in)
