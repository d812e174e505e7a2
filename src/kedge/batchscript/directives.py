# SPDX-License-Identifier: BSD-3-Clause
"""A script's live directives -> Request, whichever scheduler they are for."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.batchscript import request_gridengine, request_pbs, request_slurm
from kedge.batchscript.request import Reader, Request
from kedge.batchscript.script import BatchScript
from kedge.model.site import Queue, Site

_READERS: Mapping[str, Mapping[str, Reader]] = {
    "slurm": request_slurm.READERS,
    "gridengine": request_gridengine.READERS,
    "pbs": request_pbs.READERS,
}


def read_request(script: BatchScript, site: Site | None = None) -> Request:
    """What the live directives ask for; the last of several counts."""
    request = Request(script.scheduler)
    for directive in script.live:
        if directive.problem:
            request.leave(directive, directive.problem, is_refused=directive.problem != "unknown")
            continue
        reader = _READERS.get(directive.scheduler, {}).get(directive.option)
        if reader is None:
            request.leave(directive)
            continue
        try:
            reader(request, directive, directive.value or "")
        except ValueError as error:
            request.leave(directive, str(error), is_refused=True)
    _name_resource(request, site)
    return request


def _name_resource(request: Request, site: Site | None) -> None:
    """Grid Engine's resource types of a site (`-l rt_F=2`) are queues with a number of nodes."""
    for key in [key for key in request.asked if key.startswith("resource:")]:
        asked = request.asked.pop(key)
        name = key.removeprefix("resource:")
        queue = find_resource(site, name)
        if (queue is not None or name.startswith("rt_")) and str(asked.value).isdecimal():
            request.put("queue", queue.name if queue else name, asked.directive)
            request.put("nodes", int(asked.value), asked.directive)
        else:
            request.leave(asked.directive, words=f"-l {name}={asked.value}")


def find_resource(site: Site | None, name: str) -> Queue | None:
    """The queue that a site writes as this resource."""
    return next((each for each in site.queues if each.resource == name), None) if site else None
