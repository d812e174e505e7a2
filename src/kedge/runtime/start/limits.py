# SPDX-License-Identifier: BSD-3-Clause
"""--memory, --cpus and the like: this process, and so its container, gets a control group of its own."""

from __future__ import annotations

from kedge.host.resource_group import enter_limits
from kedge.host.resource_request import read_request
from kedge.runtime.options import RunOptions


def limit_resources(options: RunOptions) -> None:
    """Enter a control group with the limits that were asked for; a dry run only reads them."""
    if not options.limits:
        return
    request = read_request(options.limits)
    if not options.dry_run:
        enter_limits(request, options.limits)
