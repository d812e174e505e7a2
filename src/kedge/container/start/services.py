# SPDX-License-Identifier: BSD-3-Clause
"""What a start may need from the parts above the containers. It is handed in, and loaded only when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kedge.container.options import RunOptions

Say = Callable[[str, str], None]


class Services(Protocol):
    """Other runtimes, and the passphrases of encrypted images."""

    def run_elsewhere(self, options: RunOptions, say: Say) -> int:
        """Become the program of the runtime that the options name."""
        ...

    def find_setuid_runtime(self) -> str:
        """The program of a runtime that needs no user namespaces; empty where there is none."""
        ...

    def find_passphrase(self, options: RunOptions, image: str, environ: Mapping[str, str]) -> str:
        """What opens an encrypted image."""
        ...


FindServices = Callable[[], Services]
