# SPDX-License-Identifier: BSD-3-Clause
"""What `--build-context NAME=VALUE` means: an image, or a directory of this host."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.frozen import replace
from kedge.recipe.steps import Base

_IMAGES = ("docker-image://", "docker://", "oci-layout://", "oci:", "oci-archive:", "docker-archive:")


def find_context_image(value: str) -> str:
    """The reference of the image that a context is; empty if it is a directory."""
    return value.removeprefix("docker-image://") if value.startswith(_IMAGES) else ""


def settle_context(base: Base, contexts: Mapping[str, str]) -> Base:
    """A base that is a context, as the image or directory it stands for; any other as it is."""
    if base.agent != "context":
        return base
    value = contexts.get(base.reference, "")
    image = find_context_image(value)
    return replace(base, agent="docker" if image else "localimage", reference=image or value.removeprefix("local:"))
