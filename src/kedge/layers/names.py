# SPDX-License-Identifier: BSD-3-Clause
"""Names of tar members made safe: relative, without `..`, bounded in length and depth; others are refused by name."""

from __future__ import annotations

from kedge.errors import HostileImage

MAXIMUM_PATH = 4096  # bytes, Linux's PATH_MAX
MAXIMUM_COMPONENT = 255  # bytes, NAME_MAX of every Linux file system and of SquashFS
_SHOWN = 160


def show_name(raw: bytes) -> str:
    """A name as messages print it: shortened, and without control characters that a terminal would obey."""
    text = raw[:_SHOWN].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(raw) <= _SHOWN else f"{text}… ({len(raw)} bytes)"


def split_name(raw: bytes, where: str, maximum_depth: int) -> list[bytes]:
    """The components of a member's name; the root (`/`, `./`) has none. Raises HostileImage naming layer and path."""
    stripped = raw.strip(b"/")
    if raw[:1] == b"/" and stripped:
        raise _refuse(raw, where, "is absolute")
    return split_target(stripped, where, maximum_depth)


def split_target(raw: bytes, where: str, maximum_depth: int) -> list[bytes]:
    """Like `split_name` for the target of a hard link, where a leading slash is common and means the image's root."""
    if len(raw) > MAXIMUM_PATH:
        raise _refuse(raw, where, f"is longer than {MAXIMUM_PATH} bytes")
    if b"\0" in raw:
        raise _refuse(raw, where, "contains a NUL byte")
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise _refuse(raw, where, "contains '..'")
    if any(len(part) > MAXIMUM_COMPONENT for part in parts):
        raise _refuse(raw, where, f"has a component of more than {MAXIMUM_COMPONENT} bytes")
    if len(parts) > maximum_depth:
        raise _refuse(raw, where, f"is more than {maximum_depth} folders deep")
    return parts


def _refuse(raw: bytes, where: str, why: str) -> HostileImage:
    return HostileImage(
        f"{where}: the name '{show_name(raw)}' {why}",
        context={"layer": where, "path": show_name(raw)},
        hint="no honest image has such a name; do not use this image",
    )
