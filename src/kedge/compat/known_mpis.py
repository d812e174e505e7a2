# SPDX-License-Identifier: BSD-3-Clause
"""What was read of the MPIs of an image or of this host, kept in the user's cache.

To read an image's MPI takes up to a second: libraries of tens of megabytes are inflated and searched. A cache that
others share is not used: the facts decide what is started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from kedge.base.frozen import as_dict, list_names
from kedge.base.release import VERSION
from kedge.cluster.mpi import MpiFacts, MpiImage
from kedge.errors import KedgeError
from kedge.image.store.file_facts import FileFacts
from kedge.image.store.layout import Layout
from kedge.system.settings import Settings

_RULES = 1  # counts up when images are read in another way


def recall_image(path: str, key: str, environ: Mapping[str, str], read: Callable[[], MpiImage]) -> MpiImage:
    """The image's MPIs as they were read under this key, else as they are read now; without a key always now."""
    facts = _open(path, environ) if key else None
    known = facts.find(f"{VERSION} {_RULES}\n{key}") if facts else None
    with contextlib.suppress(TypeError, AttributeError):  # a row of another kind
        if known is not None:
            mpis = tuple(_make(MpiFacts, each) for each in known["mpis"])
            return cast("MpiImage", _make(MpiImage, known, mpis=mpis))
    image = read()
    if facts:
        facts.keep(f"{VERSION} {_RULES}\n{key}", as_dict(image))
    return image


def recall_host(
    name: str, key: str, environ: Mapping[str, str], read: Callable[[], tuple[MpiFacts, ...]]
) -> tuple[MpiFacts, ...]:
    """Return the remembered MPIs of a host, or read them."""
    return recall_image(f"host:{name}", key, environ, lambda: MpiImage(name, read())).mpis


def describe_file(path: str) -> str:
    """A file and its state, for a key: path, size, inode, and the time that every change moves; empty where none is."""
    try:
        place = Path(path).absolute()
        status = place.stat()
    except (OSError, ValueError):
        return ""
    return f"{place} {status.st_size} {status.st_ctime_ns} {status.st_ino}"


def _open(subject: str, environ: Mapping[str, str]) -> FileFacts | None:
    try:
        settings = Settings.load({}, environ)
    except KedgeError:
        return None
    return None if settings.shared_cache else FileFacts(Layout(settings.cache_directory), subject)


def _make(kind: type[Any], fields: dict[str, Any], **changes: Any) -> Any:
    """Return a value of what JSON made of it."""
    return kind(**{name: _freeze(fields[name]) for name in list_names(kind) if name in fields} | changes)


def _freeze(value: Any) -> Any:
    return tuple(_freeze(each) for each in value) if isinstance(value, list) else value
