# SPDX-License-Identifier: BSD-3-Clause
"""Imports argparse and pathlib without modules that they load for what kedge does not ask of them.

argparse loads gettext to translate its messages, for which Python comes with no catalogue; pathlib loads urllib.parse,
and with it ipaddress, for `Path.as_uri`. Both are 4 ms of every verb. While such a module is imported a stand-in has
the place of what it loads; afterwards anybody who imports that gets the real one.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def import_lightly() -> None:
    """Import both, unless they are there already; for the command alone, before it imports anything else."""
    texts = _make_module("gettext")
    texts.__dict__.update(gettext=str, ngettext=_choose_text)
    _import_beside("argparse", texts)
    addresses = _make_module("urllib.parse")
    addresses.__dict__.update(quote_from_bytes=_quote_later)
    _import_beside("pathlib", addresses)


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
