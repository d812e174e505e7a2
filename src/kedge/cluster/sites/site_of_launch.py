# SPDX-License-Identifier: BSD-3-Clause
"""The site of a launch. Inside a job its profile may be missing: the user's directory is not on every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kedge.cluster.schedulers.current_job import find_current_job
from kedge.cluster.site import Site
from kedge.cluster.sites.find_site import choose_site
from kedge.errors import KedgeError
from kedge.system.settings import Settings


def find_site(settings: Settings, environ: Mapping[str, str], warn: Callable[[str], None]) -> Site:
    """The site that was asked for or detected; inside a job, where it is unknown, one without rules of its own."""
    job = find_current_job(environ)
    try:
        return choose_site(settings, environ)
    except KedgeError as problem:
        if job is None:
            raise
        warn(f"{problem.message} on this node: launching without its settings")
        return Site("unknown", "unknown", job.scheduler)
