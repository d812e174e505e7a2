# SPDX-License-Identifier: BSD-3-Clause
"""Builds an image from a recipe, or converts one: what `kedge build` does."""

from __future__ import annotations

from kedge.errors import UnsupportedFormat
from kedge.ops.build.request import BuildDisplay, BuildRequest, BuildResult
from kedge.ops.setup.workplace import Workplace


def build(request: BuildRequest, workplace: Workplace, display: BuildDisplay) -> BuildResult:
    """Build what the request names; a step that fails is raised as BuildFailed, and nothing half-made is left."""
    del workplace, display
    raise UnsupportedFormat(f"kedge cannot build {request.spec} yet")
