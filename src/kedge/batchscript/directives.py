# SPDX-License-Identifier: BSD-3-Clause
"""A script's live directives -> Request, whichever scheduler they are for."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.batchscript import request_gridengine, request_pbs, request_slurm
from kedge.batchscript.request import Reader, ScriptRequest
from kedge.batchscript.script import TITLES, BatchScript, Directive
from kedge.batchscript.slurm_values import check_value
from kedge.model.site import Queue, Site

_READERS: Mapping[str, Mapping[str, Reader]] = {
    "slurm": request_slurm.READERS,
    "gridengine": request_gridengine.READERS,
    "pbs": request_pbs.READERS,
}

HETEROGENEOUS = ("hetjob", "packjob")  # between the parts of a job whose nodes differ


def read_request(script: BatchScript, site: Site | None = None) -> ScriptRequest:
    """What the live directives ask for; the last of several counts. Of a heterogeneous job it is the first part."""
    request = ScriptRequest(script.scheduler)
    current = request
    for directive in script.live:
        if directive.option in HETEROGENEOUS:
            current = ScriptRequest(script.scheduler)
        _read_directive(current, directive)
        if current is not request:
            request.left += current.left
            current.left = []
    _name_resource(request, site)
    return request


def _read_directive(request: ScriptRequest, directive: Directive) -> None:
    value = directive.value or ""
    if directive.problem:
        request.leave(directive, directive.problem, is_refused=directive.problem != "unknown")
    elif (
        directive.scheduler == "slurm" and directive.value is not None and (why := check_value(directive.option, value))
    ):
        request.leave(directive, why, is_refused=True)
    elif directive.scheduler not in _READERS:
        request.leave(directive, f"kedge does not read options of {TITLES[directive.scheduler]}", words="")
    elif (reader := _READERS[directive.scheduler].get(directive.option)) is not None:
        try:
            reader(request, directive, value)
        except ValueError as error:
            request.leave(directive, str(error), is_refused=directive.scheduler != "slurm")
    elif directive.scheduler != request.scheduler:
        request.leave(directive, f"{directive.raw.strip()} is a line of {TITLES[directive.scheduler]}", words="")
    else:
        request.leave(directive)


def _name_resource(request: ScriptRequest, site: Site | None) -> None:
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
