# SPDX-License-Identifier: BSD-3-Clause
"""For tests that choose among their rows: those with a reason of their own always, all of them in `make test-all`."""

from __future__ import annotations

import pytest

EVERY = pytest.mark.parametrize("is_every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "every"])
