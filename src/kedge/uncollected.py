# SPDX-License-Identifier: BSD-3-Clause
"""Keeps Python from looking for garbage where hundreds of thousands of objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for circular garbage meanwhile: a tree of files has none, and each search looks at all of it again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
