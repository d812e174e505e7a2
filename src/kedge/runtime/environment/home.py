# SPDX-License-Identifier: BSD-3-Clause
"""Where the home directory is on the host, and where it goes in the container."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import HostFacts
    from kedge.runtime.options import RunOptions


def choose_home(options: RunOptions, host: HostFacts) -> tuple[str, str]:
    """Source and destination: the user's own, or what --home SOURCE[:DESTINATION] says."""
    source, _, destination = options.home.partition(":")
    if not source:
        return host.home, "/root" if options.fakeroot else host.home
    if not (destination or source).startswith("/"):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"--home {options.home}: where it goes in the container must be an absolute path",
            hint=f"such as --home {source}:/home/{host.user}",
        )
    return os.path.normpath(os.path.join(host.cwd, source)), destination or source
