# SPDX-License-Identifier: BSD-3-Clause
"""Imports argparse, pathlib and urllib3 without modules that they load for what kedge does not ask of them.

argparse loads gettext to translate its messages, for which Python comes with no catalogue; pathlib loads urllib.parse,
and with it ipaddress, for `Path.as_uri`. Both are 4 ms of every verb. While such a module is imported a stand-in has
the place of what it loads; afterwards anybody who imports that gets the real one. urllib3 loads importlib.metadata, and
with it zipfile and csv, to find the version of a library that kedge does not have: 12 ms. There the stand-in
stays, because nobody knows when urllib3 is imported, and gives its place to the real module when that is used.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def import_lightly() -> None:
    """Import the first two, unless they are there already; for the command alone, before it imports anything else."""
    texts = _make_module("gettext")
    texts.__dict__.update(gettext=str, ngettext=_choose_text)
    _import_beside("argparse", texts)
    addresses = _make_module("urllib.parse")
    addresses.__dict__.update(quote_from_bytes=_quote_later)
    _import_beside("pathlib", addresses)
    _import_later("importlib.metadata", "version")


def _make_module(name: str) -> ModuleType:
    kind: type[ModuleType] = type(sys)
    return kind(name)


def _import_beside(name: str, stand_in: ModuleType) -> None:
    """Import a module while the stand-in has the place of another, if neither is loaded."""
    if name in sys.modules or stand_in.__name__ in sys.modules:
        return
    sys.modules[stand_in.__name__] = stand_in
    try:
        __import__(name)
    except (ImportError, AttributeError):  # this Python's wants more of it; whoever imports it next gets it whole
        sys.modules.pop(name, None)
    finally:
        del sys.modules[stand_in.__name__]


def _choose_text(singular: str, plural: str, count: int) -> str:
    return singular if count == 1 else plural


def _quote_later(text: bytes) -> str:
    """What pathlib has of urllib.parse, imported when it is called."""
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(text)


def _import_later(name: str, *functions: str) -> None:
    """Put a stand-in in the place of a module: these functions, and all else, are the real one's when they are used."""
    if name in sys.modules:
        return
    stand_in = _make_module(name)

    def load() -> ModuleType:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
            __import__(name)
        return sys.modules[name]

    for each in functions:
        stand_in.__dict__[each] = lambda *given, _name=each, **named: getattr(load(), _name)(*given, **named)
    stand_in.__dict__["__getattr__"] = lambda attribute: getattr(load(), attribute)
    package, _, last = name.rpartition(".")
    __import__(package)
    # which `from … import` looks at: its own need not be loaded for that
    stand_in.__path__ = [f"{each}/{last}" for each in sys.modules[package].__path__]
    sys.modules[name] = stand_in
    setattr(sys.modules[package], last, stand_in)
