# SPDX-License-Identifier: BSD-3-Clause
"""What ADD brings along: files behind addresses, archives that are unpacked, Git repositories."""

from __future__ import annotations

from dataclasses import dataclass

from kedge.model.tree import Node
from kedge.recipe.steps import CopyStep, RecipePlace, refuse_recipe


def is_address(source: str) -> bool:
    """Whether a source of ADD is fetched from elsewhere."""
    return source.lower().startswith(("http://", "https://")) or is_git_address(source)


def is_git_address(source: str) -> bool:
    """Whether an address names a Git repository."""
    address = source.partition("#")[0].lower()
    return address.startswith(("git://", "git@", "ssh://")) or (
        address.startswith(("http://", "https://")) and address.endswith(".git")
    )


@dataclass(slots=True)
class AddedFiles:
    """Fetches and unpacks for one build; what was fetched once is kept until it ends."""

    def download(self, address: str, step: CopyStep) -> tuple[str, Node]:
        """The file behind an address: its name, and the file as a node."""
        raise refuse_recipe(step.place, f"{address} cannot be fetched here")

    def clone(self, address: str, step: CopyStep) -> Node:
        """The files of a Git repository."""
        raise refuse_recipe(step.place, f"{address} cannot be fetched here")

    def unpack(self, node: Node, name: str, place: RecipePlace) -> Node | None:
        """The contents of an archive; None for what is none."""
        del node, name, place
        return None
