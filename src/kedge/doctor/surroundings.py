# SPDX-License-Identifier: BSD-3-Clause
"""What checks may look at; given to each, so that tests can write down a machine instead of having one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kedge.doctor.finding import Finding
from kedge.frozen import frozen

if TYPE_CHECKING:
    from kedge.model.site import Site
    from kedge.settings import Settings


@frozen
class Surroundings:
    """This machine, its user and what was asked."""

    environ: Mapping[str, str]
    settings: Settings
    root: str = "/"  # where /proc, /sys, /dev and /etc are looked for
    site: Site | None = None
    is_offline: bool = False  # nothing is asked over the network
    patience: float = 1.0  # how many times its own seconds a check may take


@frozen
class Check:
    """One check: it returns findings, and never raises for what it finds. `seconds` is how long it may take."""

    name: str
    title: str
    group: str  # Containers, GPU, Cluster, Storage, Network, Environment
    run: Callable[[Surroundings], list[Finding]]
    seconds: float = 1.0
