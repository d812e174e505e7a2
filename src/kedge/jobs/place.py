# SPDX-License-Identifier: BSD-3-Clause
"""Where records of jobs are: a place that login and compute nodes both see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedge.model.site import Site, expand_path
from kedge.settings import Settings, xdg_directory


def find_record_root(settings: Settings, site: Site, environ: Mapping[str, str]) -> Path:
    """Where records are: a place that compute nodes see too, because scripts write there how they ended."""
    if settings.job_directory is not None:
        return settings.job_directory
    scratch = expand_path(site.scratch, environ)
    if not site.home_on_nodes and scratch:
        return Path(scratch) / ".kedge" / "jobs"
    return xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "jobs"
