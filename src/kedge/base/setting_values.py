# SPDX-License-Identifier: BSD-3-Clause
"""Values of settings: each kind is read from TOML or text, or refused with what is expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from kedge.base.frozen import frozen

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

_UNITS = frozenset("KMGTP")
ROOTS = ("auto", "unpack", "squashfuse", "kernel")  # where an image's files come from
PULL_POLICIES = ("auto", "missing", "newer", "always", "never")  # when a registry is asked


class LinkMode(StrEnum):
    """How a pulled image may share its bytes with the cache."""

    AUTO = "auto"  # shared blocks; else one copy, which is the user's, where both would be on one file system
    COPY = "copy"  # the cache keeps its own
    HARDLINK = "hardlink"  # one file with two names: who changes the one changes the other


@frozen
class ValueRefused:
    """What the value should have been."""

    expected: str


def _parse_flag(value: object) -> bool | ValueRefused:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    flag = words.get(value.lower()) if isinstance(value, str) else None
    return ValueRefused("it must be true or false") if flag is None else flag


def _parse_count(value: object, lowest: int = 1) -> int | ValueRefused:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= 10**9:
        return ValueRefused(f"it must be a whole number, {lowest} or more")
    return value


def _parse_threads(value: object) -> int | ValueRefused | None:
    if value == "auto":
        return None
    count = _parse_count(value)
    return ValueRefused("it must be a whole number, 1 or more, or 'auto'") if isinstance(count, ValueRefused) else count


def _parse_size(value: object) -> int | ValueRefused | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        if value.lower() == "none":
            return None
        number, unit = value[:-1], value[-1:]
        if unit in _UNITS and number.isascii() and number.isdigit() and len(number) <= 12:  # most are so
            return int(number) << 10 * " KMGTP".index(unit)
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([KMGTP]?)(iB|B)?", value.strip(), re.IGNORECASE)
        if match:
            base = 1000 if (match.group(3) or "").upper() == "B" else 1024
            return int(float(match.group(1)) * base ** " KMGTP".index(match.group(2).upper() or " "))
    return ValueRefused("it must be a size such as 500M, 20G or 2T, or 'none'")


def _parse_codec(value: object) -> str | ValueRefused:
    expected = ValueRefused(
        "it must be gzip, zstd, lz4 or none; a level follows a colon: zstd:19 (1 to 22), gzip:9 (1 to 9)"
    )
    if value in ("zstd", "gzip", "lz4", "none"):
        return str(value)
    match = re.fullmatch(r"(zstd|gzip|lz4|none)(?::([0-9]{1,2}))?", value) if isinstance(value, str) else None
    if match is None:
        return expected
    highest = {"zstd": 22, "gzip": 9}.get(match.group(1), 0)
    if match.group(2) is not None and not 1 <= int(match.group(2)) <= highest:
        return expected
    return match.group(0)


def _parse_link_mode(value: object) -> LinkMode | ValueRefused:
    if isinstance(value, str) and value in set(LinkMode):
        return LinkMode(value)
    return ValueRefused(f"it must be {', '.join(list(LinkMode)[:-1])} or {list(LinkMode)[-1]}")


def _parse_url(value: object) -> str | ValueRefused:
    if isinstance(value, str) and re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", value):
        return value.rstrip("/")
    return ValueRefused("it must be an address such as https://library.example.org, without a user name")


def _parse_text(value: object) -> str | ValueRefused:
    if isinstance(value, str) and value and value.isprintable():
        return value
    return ValueRefused("it must be text")


def _parse_root(value: object) -> str | ValueRefused:
    return value if isinstance(value, str) and value in ROOTS else ValueRefused(f"it must be one of {', '.join(ROOTS)}")


PARSERS: dict[str, Callable[[object], Any]] = {
    "yes or no": _parse_flag,
    "count": _parse_count,
    "count or zero": lambda value: _parse_count(value, 0),
    "count or auto": _parse_threads,
    "size": _parse_size,
    "codec": _parse_codec,
    "link mode": _parse_link_mode,
    "url": _parse_url,
    "text": _parse_text,
    "root": _parse_root,
    "presence": bool,
}
