# SPDX-License-Identifier: BSD-3-Clause
"""Which C library this machine has: libraries of its driver that go into a container were linked against it."""

from __future__ import annotations

import os


def read_glibc() -> str:
    """`2.36`; empty where the C library is another one, such as musl."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""
    name, _, version = library.partition(" ")
    return version if name == "glibc" else ""
