# SPDX-License-Identifier: BSD-3-Clause
"""Remembers beside a writable overlay directory which image it was used with: `kedge commit` needs both.

The note is a symbolic link whose text is the image: one call to read it, and nobody follows it. Only starts with such
an overlay pay for it, and none fails for it.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.mounts.overlay_options import OverlayLayer

_NAME = ".kedge-base"


def remember_base(layers: list[OverlayLayer], image: str) -> None:
    """Note the image beside the directory that takes the changes, if it is a directory of the user's."""
    for layer in layers:
        if layer.writable and layer.kind == "folder":
            note = f"{layer.path}/{_NAME}"
            with contextlib.suppress(OSError):
                if read_base(layer.path) == image:
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(note)
                os.symlink(image, note)


def read_base(folder: str) -> str:
    """The image that an overlay directory was used with last; empty where it is not known."""
    try:
        return os.readlink(f"{folder}/{_NAME}")
    except OSError:
        return ""
