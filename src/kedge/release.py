# SPDX-License-Identifier: BSD-3-Clause
"""The version, in a module that everything may import."""

from __future__ import annotations

VERSION = "0.1.0"
