# SPDX-License-Identifier: BSD-3-Clause
"""The C library of a tree, and the directories in which its loader looks for libraries by default."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kedge.compat.traits import Fact

if TYPE_CHECKING:
    from kedge.system.views import View

TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu", "powerpc64le-linux-gnu")
LIBRARY_FOLDERS = (
    *(f"/usr/lib/{triplet}" for triplet in TRIPLETS),
    *(f"/lib/{triplet}" for triplet in TRIPLETS),
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
)
MUSL = "musl"
_SEARCHED = 4 << 20  # bytes of a C library that are searched for its version
_RELEASE = re.compile(rb"GNU C Library[^\n]{0,120}release version (\d+\.\d+)")


def read_c_library(view: View) -> Fact:
    """The version of glibc, or `musl`; unknown where there is neither."""
    for folder in LIBRARY_FOLDERS:
        path = f"{folder}/libc.so.6"
        if view.kind(path) != "f":
            continue
        named = re.match(r"libc-(\d+\.\d+)\.so\Z", view.resolve(path).rpartition("/")[2])
        release = None if named else _RELEASE.search(view.read(path, _SEARCHED) or b"")
        version = named[1] if named else release[1].decode() if release else ""
        if version:
            return Fact(version, f"file {path}")
    for name in view.names("/lib"):
        if name.startswith("ld-musl-"):
            return Fact(MUSL, f"file /lib/{name}")
    return Fact()
