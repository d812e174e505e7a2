# SPDX-License-Identifier: BSD-3-Clause
"""Marks that say "I am reading this": eviction passes over what carries one of a living process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

from kedge.image.store.layout import Layout
from kedge.image.store.lease import PULSE, read_clock
from kedge.system.owned_names import own_name, owner_is_gone

_TOUCH_EVERY = 60.0  # seconds
_STALE_AFTER = 600.0  # a mark of another host that was not touched for so long has no reader


class Use:
    """A mark on one blob or image, from its making until `end`; a context manager."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._path: Path | None = None
        self._pulse = -1
        try:
            self._path = layout.folder("using") / own_name(name)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, layout.file_mode))
            self._pulse = PULSE.add(self._touch, _TOUCH_EVERY)
        except Exception:  # a read-only cache is used without marks
            self._path = None
        except BaseException:  # a signal: nobody has this mark yet who could take it away
            self.end()
            raise

    def _touch(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def end(self) -> None:
        """Take the mark away; may be called twice."""
        path = self._path
        if path is None:
            return
        try:
            PULSE.remove(self._pulse)
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            self._path = None

    def __enter__(self) -> Use:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def find_used(layout: Layout) -> set[str]:
    """The names that living processes have marked; marks of dead ones are removed."""
    used: set[str] = set()
    folder = layout.root / "using"
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return used
    now: float | None = None
    for entry in entries:
        gone = owner_is_gone(entry.name)
        if gone is None:
            now = read_clock(folder) if now is None else now
            with contextlib.suppress(OSError):
                gone = now - entry.stat().st_mtime > _STALE_AFTER
        if gone:
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()
        else:
            used.add(entry.name.split(".")[0])
    return used
