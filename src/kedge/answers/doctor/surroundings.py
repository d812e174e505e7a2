# SPDX-License-Identifier: BSD-3-Clause
"""The input of checks, passed to each of them, so that tests can describe a host instead of needing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen

if TYPE_CHECKING:
    from kedge.cluster.site import Site
    from kedge.system.settings import Settings

# The result of a check: what it is, why it matters, how to fix it, and where to read more.

OK, NOTE, WARNING, FAIL, SKIPPED = "ok", "note", "warning", "fail", "skipped"
LEVELS = (OK, NOTE, WARNING, FAIL, SKIPPED)


@frozen
class Finding:
    """One result of a check. An OK finding has its value in `what`; the other levels also have `why` and `fix`."""

    check: str  # the check's name: `user-namespaces`
    level: str
    what: str
    why: str = ""
    fix: str = ""
    docs: str = ""  # the command that shows the section: `kedge help doctor user-namespaces`


@frozen
class Surroundings:
    """The host, its user and the options of the command."""

    environ: Mapping[str, str]
    settings: Settings
    root: str = "/"  # the directory with /proc, /sys, /dev and /etc
    site: Site | None = None
    is_offline: bool = False  # no network access
    patience: float = 1.0  # factor on the seconds that a check may take


@frozen
class Check:
    """One check. It returns findings and does not raise for problems that it finds; `seconds` is its time limit."""

    name: str
    title: str
    group: str  # Containers, GPU, Cluster, Storage, Network, Environment
    run: Callable[[Surroundings], list[Finding]]
    seconds: float = 1.0
