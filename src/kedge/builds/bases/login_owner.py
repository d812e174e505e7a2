# SPDX-License-Identifier: BSD-3-Clause
"""Whose the login of the environment and of --docker-login is in a build: it names no registry, a recipe names many."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import replace
from kedge.builds.bases.named_contexts import name_reference, settle_context
from kedge.builds.request import BuildRequest
from kedge.builds.step_values import Base, Recipe
from kedge.errors import KedgeError
from kedge.image.workplace import Workplace


def bind_login(workplace: Workplace, request: BuildRequest, recipe: Recipe) -> Workplace:
    """Return the workplace with such a login for the registry that is pushed to, or else for that of the first base."""
    output = request.output
    if output.push and output.tag:
        from kedge.image.local_names import read_name  # late: few builds push

        registries = {read_name(tag).registry for tag in (output.tag, *output.further_tags)}
    else:
        named = (_find_registry(stage.base, request.contexts) for stage in recipe.stages)
        registries = {next(filter(None, named), "")}
    return replace(workplace, login_registries=frozenset(filter(None, registries)))


def _find_registry(base: Base, contexts: Mapping[str, str]) -> str:
    """The registry of a base; empty where it comes from none."""
    if base.agent not in ("docker", "oras", "context"):
        return ""
    try:
        reference = name_reference(settle_context(base, contexts))
    except KedgeError:  # whoever opens it says what is wrong
        return ""
    return "" if reference.is_local else reference.registry or ""
