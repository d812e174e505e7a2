# SPDX-License-Identifier: BSD-3-Clause
"""Words of a batch script: quoted so that people can read them."""

from __future__ import annotations

import shlex

from kedge.patterns import late_pattern

_SPECIAL = late_pattern(r'([$`"\\])')


def quote(text: str) -> str:
    """The text as one word: bare where it can be, in double quotes where it holds single ones, else in single ones."""
    if "'" not in text:
        return shlex.quote(text)
    return '"' + _SPECIAL.sub(r"\\\1", text) + '"'
