# SPDX-License-Identifier: BSD-3-Clause
"""How a pulled image and the cache's may share their bytes, as the setting `link_mode` says it."""

from __future__ import annotations

from enum import StrEnum


class LinkMode(StrEnum):
    """What the user asks for."""

    AUTO = "auto"  # shared blocks; else one copy, which is the user's, where both would be on one file system
    COPY = "copy"  # the cache keeps its own
    HARDLINK = "hardlink"  # one file with two names: who changes the one changes the other
