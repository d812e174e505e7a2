# SPDX-License-Identifier: BSD-3-Clause
"""Images that a job holds until it releases them: a link for each; eviction does not remove their images.

held/<owner>/<name>   a symbolic link to an image of the cache, or where the cache keeps nothing, the image itself

Not a hard link: that would move the change time of the image, by which the cache sees that nobody touched it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from kedge.image.store.layout import Layout
from kedge.system.files import explained
from kedge.system.owned_names import own_name

_FORGOTTEN_AFTER = 30 * 86400.0  # seconds; its owner, a job on a node, was killed together with the node


class Holds:
    """The held images of one cache; an owner is any short text."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def place(self, owner: str, name: str) -> Path:
        """Where the owner's image of that name stands; the directory is made."""
        self._sweep()
        return self._layout.folder("held", _clean(owner)) / _clean(name)

    def hold(self, image: Path, owner: str, name: str) -> Path:
        """Another name for an image of the cache; the image itself where none can be made: it may be another user's."""
        target = self.place(owner, name)
        temporary = target.parent / own_name("link")
        try:
            temporary.symlink_to(os.path.relpath(image, target.parent))  # the cache may be mounted elsewhere on a node
            temporary.replace(target)
        except OSError:
            return image
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        return target

    def release(self, owner: str) -> bool:
        """Let go of all that the owner holds; whether there was anything. May be called again and again."""
        folder = self._layout.root / "held" / _clean(owner)
        if not folder.is_dir():
            return False
        with explained(folder), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        return True

    def _sweep(self) -> None:
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._layout.root / "held"):
                if time.time() - entry.stat().st_mtime > _FORGOTTEN_AFTER:
                    shutil.rmtree(entry.path, ignore_errors=True)


def find_held(layout: Layout) -> set[str]:
    """The names of the images that are held."""
    held: set[str] = set()
    with contextlib.suppress(OSError):
        for owner in os.scandir(layout.root / "held"):
            with contextlib.suppress(OSError):
                links = [entry.path for entry in os.scandir(owner.path) if entry.is_symlink()]
                held.update(Path(link).readlink().stem for link in links)
    return held


def _clean(text: str) -> str:
    """A file name; never one of the two that mean directories."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "_", text).lstrip(".")[:200] or "_"
