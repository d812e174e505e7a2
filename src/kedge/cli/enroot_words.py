# SPDX-License-Identifier: BSD-3-Clause
"""Files that `kedge shim install` of kedge 0.1 wrote ask for this module."""

from __future__ import annotations

from kedge.cli.shims.enroot_words import main

__all__ = ["main"]
