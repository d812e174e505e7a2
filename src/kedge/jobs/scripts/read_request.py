# SPDX-License-Identifier: BSD-3-Clause
"""A script's live directives -> Request, whichever scheduler they are for."""

from __future__ import annotations

from kedge.cluster.schedulers.choose import find_language
from kedge.cluster.schedulers.directive import Directive
from kedge.cluster.schedulers.script_request import ScriptRequest
from kedge.cluster.site import Queue, Site
from kedge.jobs.scripts.script import BatchScript


def read_request(script: BatchScript, site: Site | None = None) -> ScriptRequest:
    """What the live directives ask for; the last of several counts. Of a heterogeneous job it is the first part."""
    request = ScriptRequest(script.scheduler)
    current = request
    for directive in script.live:
        if directive.option in script.language.separators:
            current = ScriptRequest(script.scheduler)
        _read_directive(current, directive)
        if current is not request:
            request.left += current.left
            current.left = []
    _name_resource(request, site)
    return request


def _read_directive(request: ScriptRequest, directive: Directive) -> None:
    value = directive.value or ""
    language = find_language(directive.scheduler)
    if directive.problem:
        request.leave(directive, directive.problem, is_refused=directive.problem != "unknown")
    elif directive.value is not None and (why := language.check_value(directive.option, value)):
        request.leave(directive, why, is_refused=True)
    elif language.readers is None:
        request.leave(directive, f"kedge does not read options of {language.facts.title}", words="")
    elif (reader := language.readers.get(directive.option)) is not None:
        try:
            reader(request, directive, value)
        except ValueError as error:
            request.leave(directive, str(error), is_refused=language.readers_refuse)
    elif directive.scheduler != request.scheduler:
        request.leave(directive, f"{directive.raw.strip()} is a line of {language.facts.title}", words="")
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
    return next((queue for queue in site.queues if queue.resource == name), None) if site else None
