# SPDX-License-Identifier: BSD-3-Clause
"""Which site a script was written for, from the queues it names and what it loads."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.schedulers.choose import find_language
from kedge.cluster.site import Site
from kedge.jobs.scripts.read_request import find_resource
from kedge.jobs.scripts.script import BatchScript

# names that half of all clusters have, which alone prove nothing
_COMMON = ("gpu", "cpu", "normal", "small", "large", "long", "short", "development", "debug", "batch", "interactive")
_ENOUGH = 3


def guess_site(script: BatchScript, sites: Sequence[Site]) -> tuple[Site, str] | None:
    """The likeliest site, and why; None when nothing speaks for one more than for others."""
    found = [(*_weigh(script, site), site) for site in sites if site.scheduler == script.scheduler]
    best = max((weight for weight, _, _ in found), default=0)
    if best < _ENOUGH:
        return None
    tied = [(reason, site) for weight, reason, site in found if weight == best]
    live = [(reason, site) for reason, site in tied if not all(queue.is_retired for queue in site.queues)] or tied
    if len(live) > 1:
        return None
    reason, site = live[0]
    return site, reason


def _weigh(script: BatchScript, site: Site) -> tuple[int, str]:
    """How much speaks for a site, and what most."""
    weight, reason = 0, ""
    for name in _find_queues(script):
        if site.find_queue(name) is not None or find_resource(site, name) is not None:
            weight += 1 if name in _COMMON else _ENOUGH
            reason = f"it has a queue '{name}'"
    for name in {name.partition("/")[0] for _, name in script.modules} & set(site.runtime_modules):
        weight += 2
        reason = reason or f"its module '{name}' is loaded"
    if site.launcher == "ibrun" and any(command.name == "ibrun" for command in script.launchers):
        weight += 2
        reason = reason or "it starts tasks with ibrun"
    for path in site.hidden_paths:
        if f"{path.rstrip('/')}/" in script.text:
            weight += 1
    return weight, reason


def _find_queues(script: BatchScript) -> list[str]:
    names = []
    for directive in script.live:
        language, values = find_language(directive.scheduler), (directive.value or "").split(",")
        if directive.option in language.queue_options:
            names += [value.partition("@")[0] for value in values]
        elif directive.option == language.resource_option:
            names += [value.partition("=")[0] for value in values]
    return names
