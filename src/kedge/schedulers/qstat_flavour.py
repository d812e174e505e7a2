# SPDX-License-Identifier: BSD-3-Clause
"""Whose `qstat` it is: Grid Engine, PBS and TORQUE all have programs of that name."""

from __future__ import annotations

import re

_FLAVOURS = (
    ("gridengine", re.compile(r"^\s*(?:[A-Z]*GE|OGS/GE|OCS) +\d|^\s*usage: qstat \[options\]", re.MULTILINE)),
    ("pbs", re.compile(r"pbs_version\s*=|^\s*qstat \[-f\] \[-J\]", re.MULTILINE)),
    ("torque", re.compile(r"^\s*Version: \d|TORQUE|\[-W site_specific\]", re.MULTILINE)),
)


def read_qstat_flavour(text: str) -> str:
    """`gridengine`, `pbs` or `torque` by what `qstat -help` or `qstat --version` printed; empty: none of them."""
    return next((name for name, mark in _FLAVOURS if mark.search(text)), "")
