# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for what is to happen, not for a time in which it may have happened."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60  # seconds: for a machine that does much else


def wait_until(what: str, is_so: Callable[[], object], *, timeout: float = PATIENCE, every: float = 0.05) -> None:
    """Wait for something; the test fails with `what` when it does not come.

    Between two looks is twice the time that a look takes, at least: most looks start programs.
    """
    begun = time.monotonic()
    end = begun + timeout
    while not is_so():
        looked = time.monotonic()
        assert looked <= end, f"after {timeout:g} s still not: {what}"
        time.sleep(max(every, min(2 * (looked - begun), 2)))
        begun = time.monotonic()
