# SPDX-License-Identifier: BSD-3-Clause
"""What starts may need from above `container/`: the parts that its protocol `Services` names."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.container.options import RunOptions
from kedge.container.start.services import Say

# Imports inside the methods below are late: a start needs one of them at most.


class StartServices:
    """Other runtimes from this room, passphrases from `trust`."""

    def run_elsewhere(self, options: RunOptions, say: Say) -> int:
        """Become the program of the runtime that the options name."""
        from kedge.container.others.other_runtimes import run_foreign

        return run_foreign(options, say)

    def find_setuid_runtime(self) -> str:
        """An installed Apptainer or Singularity whose starter is setuid root; empty where there is none."""
        from kedge.container.others.other_runtimes import find_setuid_apptainer

        return find_setuid_apptainer()

    def find_passphrase(self, options: RunOptions, image: str, environ: Mapping[str, str]) -> str:
        """What opens an encrypted image: typed, in a variable, or locked in the image with an RSA key."""
        from kedge.container.decryption import find_passphrase

        return find_passphrase(options, image, environ)
