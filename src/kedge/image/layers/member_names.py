# SPDX-License-Identifier: BSD-3-Clause
"""Names of tar members made safe: a path from the image's root, `..` resolved, bounded in length.

Names that lead above the root, or are longer than Linux allows, are refused.
"""

from __future__ import annotations

from kedge.errors import HostileImage
from kedge.image.layers.whiteouts import WHITEOUT_PREFIX

MAXIMUM_PATH = 4096  # bytes, Linux's PATH_MAX
MAXIMUM_COMPONENT = 255  # bytes, NAME_MAX of every Linux file system and of SquashFS
_SHOWN = 160


def show_name(raw: bytes) -> str:
    """A name as messages print it: shortened, and without control characters that a terminal would obey."""
    text = raw[:_SHOWN].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(raw) <= _SHOWN else f"{text}… ({len(raw)} bytes)"


def split_name(raw: bytes, where: str) -> list[bytes]:
    """The components of a member's name or a hard link's target; the root (`/`, `./`) has none.

    A leading slash means the image's root, and `..` takes back the component before it, as Apptainer and umoci read
    them. Raises HostileImage naming layer and path.
    """
    if len(raw) > MAXIMUM_PATH and len(_unmark(raw)) > MAXIMUM_PATH:
        raise _refuse(raw, where, f"is longer than {MAXIMUM_PATH} bytes")
    if b"\0" in raw:
        raise _refuse(raw, where, "contains a NUL byte")
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        parts = _resolve_dots(parts, raw, where)
    if any(len(part) > MAXIMUM_COMPONENT for part in parts) and any(
        len(part) > MAXIMUM_COMPONENT for part in (*parts[:-1], _unmark(parts[-1]))
    ):
        raise _refuse(raw, where, f"has a component of more than {MAXIMUM_COMPONENT} bytes")
    return parts


def _unmark(raw: bytes) -> bytes:
    """The name that a whiteout deletes: its mark comes on top of what a file system allows."""
    folder, slash, name = raw.rpartition(b"/")
    return folder + slash + name.removeprefix(WHITEOUT_PREFIX)


def _resolve_dots(parts: list[bytes], raw: bytes, where: str) -> list[bytes]:
    kept: list[bytes] = []
    for part in parts:
        if part != b"..":
            kept.append(part)
        elif kept:
            kept.pop()
        else:
            raise _refuse(raw, where, "leads out of the image with '..'")
    return kept


def _refuse(raw: bytes, where: str, why: str) -> HostileImage:
    return HostileImage(
        f"{where}: the name '{show_name(raw)}' {why}",
        context={"layer": where, "path": show_name(raw)},
        hint="legitimate images have no such names: do not use this image",
    )
