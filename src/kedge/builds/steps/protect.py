# SPDX-License-Identifier: BSD-3-Clause
"""`--protect`: a build keeps the Python packages that its base ships.

Before the first step the base's packages are frozen into a constraints file, which pip and uv get through variables;
the file is bound into steps and is in no layer. After a step the packages are compared: a constraint does not stop
`pip install --no-deps`, `setup.py install` or a step that unsets the variable.

The engine calls `freeze_packages` with a view of the base, adds `Protection.extend_environment` to the environment of
every step, binds a file with `Protection.text`, and calls `Protection.check` with a view of the tree after the step.
`Protection.key` belongs to what a step's layer depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.compat.packages.constraints import PackageChange, list_replaced, read_pinned_names, render_constraints
from kedge.compat.packages.package import InstalledPackage
from kedge.compat.packages.python_packages import list_python_packages
from kedge.compat.packages.system_packages import list_conda_packages
from kedge.errors import PackageReplaced

if TYPE_CHECKING:
    from kedge.builds.step_values import RecipePlace
    from kedge.system.views import View

CONSTRAINTS_PATH = "/run/kedge-constraints.txt"  # inside a step
_VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
_LARGEST_FILE = 4 << 20
_SHOWN = 5


@frozen
class Protection:
    """The packages of a base as they were, and the pins that keep them."""

    packages: tuple[InstalledPackage, ...]
    text: str  # of the constraints file

    @property
    def key(self) -> str:
        """A digest of what is frozen: steps that ran with other constraints may have other results."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def extend_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables of a step with those that name the constraints; a file that the image names stays named.

        What the image's file for pip pins is not in ours, so uv gets both.
        """
        pip, uv = (environment.get(name, "").split() for name in _VARIABLES)
        words = (pip, [*uv, *pip])
        files = (dict.fromkeys(word for word in own if word != CONSTRAINTS_PATH) for own in words)
        named = {name: " ".join([*own, CONSTRAINTS_PATH]) for name, own in zip(_VARIABLES, files, strict=True)}
        return {**environment, **named}

    def check(self, view: View, place: RecipePlace, text: str) -> None:
        """Raise PackageReplaced if a package of the base is not what it was; `text` is the step as people write it."""
        replaced = list_replaced(self.packages, _list_protected(view))
        if replaced:
            raise _refuse(replaced, place, text)


def freeze_packages(view: View, environment: Mapping[str, str]) -> Protection:
    """Freeze the packages of a base; its PIP_CONSTRAINT names files that pin some of them already."""
    packages = tuple(_list_protected(view))
    pinned: list[str] = []
    for path in environment.get("PIP_CONSTRAINT", "").split():
        pinned += read_pinned_names((view.read(path, _LARGEST_FILE) or b"").decode("utf-8", "replace"))
    return Protection(packages, render_constraints(packages, pinned))


def _list_protected(view: View) -> list[InstalledPackage]:
    return [*list_python_packages(view), *list_conda_packages(view)]


def _refuse(replaced: list[PackageChange], place: RecipePlace, text: str) -> PackageReplaced:
    first, *others = replaced
    more = f", and {len(others)} more of the base's packages changed" if others else ""
    return PackageReplaced(
        f"{place}: {first}{more}; --protect keeps the packages of the base image",
        context={
            "file": place.file,
            "line": str(place.line),
            "step": text,
            "directory": first.place,
            **{str(number): str(change) for number, change in enumerate(replaced[:_SHOWN], 1) if others},
        },
        hint=f"choose a version that works with {first.name}=={first.before}, add --no-deps to keep dependencies out, "
        "or build without --protect",
    )
