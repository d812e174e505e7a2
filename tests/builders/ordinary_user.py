# SPDX-License-Identifier: BSD-3-Clause
"""Runs a test as an ordinary user where root runs the tests: what root is not refused would go untested there."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.requirements import open_way

USER = 61_777  # nobody's


def as_ordinary_user(test: Callable[..., None]) -> Callable[..., None]:
    """The test in a process of its own, whose user owns the directories that the test was given."""

    @functools.wraps(test)
    def run(**given: object) -> None:
        if os.getuid() != 0:
            test(**given)
            return
        for folder in (each for each in given.values() if isinstance(each, Path)):
            open_way(folder)
            os.chown(folder, USER, USER)
        child = os.fork()
        if child == 0:
            _run_as_user(lambda: test(**given))
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            pytest.fail("it failed as an ordinary user; the reason is above")

    return run


def _run_as_user(body: Callable[[], None]) -> None:
    status = 1
    try:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        body()
        status = 0
    except BaseException:  # whatever it is: this process must not go on with the tests of its parent
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
