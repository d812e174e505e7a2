# SPDX-License-Identifier: BSD-3-Clause
"""The clock: certificates have dates, and hosts that share a file system compare file times."""

from __future__ import annotations

import os
import tempfile
import time

from kedge.answers.doctor.finding import FAIL, OK, WARNING, Finding
from kedge.answers.doctor.storage.cache_home import find_existing
from kedge.answers.doctor.surroundings import Surroundings

_DOCS = "kedge help doctor clock"
_EARLIEST, _LATEST = 2025, 2050  # this program is not older, and no root certificate of today lives longer
_SKEW = 30.0  # seconds; a lease of another host is taken over after a minute


def check_clock(surroundings: Surroundings) -> list[Finding]:
    """Check the year, and the time that the cache's file system gives a new file."""
    year = judge_year(time.gmtime().tm_year)
    if year.level != OK:
        return [year]
    return [judge_skew(measure_skew(str(find_existing(surroundings.settings.cache_directory))))]


def judge_year(year: int) -> Finding:
    """Check whether the date is plausible."""
    if _EARLIEST <= year <= _LATEST:
        return Finding("clock", OK, str(year))
    return Finding(
        "clock",
        FAIL,
        f"the clock of this host is wrong: its year is {year}",
        why="registry certificates are not yet valid or expired at that date: every download fails with a TLS error",
        fix="an administrator can set it: chronyc makestep, or timedatectl set-ntp true",
        docs=_DOCS,
    )


def measure_skew(directory: str) -> float | None:
    """Seconds by which the file system's clock is ahead of ours; None if kedge cannot create a file."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"0")
            file.flush()
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return None


def judge_skew(seconds: float | None) -> Finding:
    """Check whether the server of a shared file system has another time."""
    if seconds is None:
        return Finding("clock", OK, "the date is plausible")
    if abs(seconds) < _SKEW:
        return Finding("clock", OK, "agrees with the file system of the cache")
    direction = "ahead of" if seconds > 0 else "behind"
    return Finding(
        "clock",
        WARNING,
        f"the clock of the cache's file system is {abs(seconds):.0f} s {direction} this host's",
        why="kedge, make and rsync then take files that other hosts wrote for old or abandoned",
        fix="tell the administrators: the clocks of this node and of the file server differ",
        docs=_DOCS,
    )
