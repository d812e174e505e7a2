# SPDX-License-Identifier: BSD-3-Clause
"""How registries are to be reached, as users say it; a command that asks none loads no client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kedge.base.frozen import frozen

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.image.registry.credentials import Credential


@frozen
class AccessOptions:
    """What the command line and the settings say about reaching registries."""

    login: Credential | None = None  # --docker-login
    authfile: Path | None = None
    username: str | None = None  # USER@ of an Enroot reference
    no_https: bool = False
    ca_bundle: Path | None = None
    retries: int = 5
    patience: float | None = None  # seconds after which nothing is tried again; None: as often as `retries` says
    count: Callable[[int, int], None] = lambda _answers, _received: None
    stall_timeout: float = 60.0  # seconds without data
    minimum_speed: int = 0  # bytes per second; 0: any
    login_registries: frozenset[str] | None = None  # who may get a login that names no registry; None: who is asked
