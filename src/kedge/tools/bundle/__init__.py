# SPDX-License-Identifier: BSD-3-Clause
"""All of kedge in one file: the interpreter, its library, kedge and its packages, with the head that unpacks them."""

from __future__ import annotations

from kedge.tools.bundle.gather import gather_files
from kedge.tools.bundle.write_bundle import WrittenBundle, find_head, write_bundle

__all__ = ["WrittenBundle", "find_head", "gather_files", "write_bundle"]
