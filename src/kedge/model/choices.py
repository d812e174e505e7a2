# SPDX-License-Identifier: BSD-3-Clause
"""Words that users choose among, for flags, settings and functions alike. Lean: starts read some of them."""

from __future__ import annotations

ROOTS = ("auto", "unpack", "squashfuse", "kernel")  # where an image's files come from
PULL_POLICIES = ("auto", "missing", "newer", "always", "never")  # when a registry is asked
