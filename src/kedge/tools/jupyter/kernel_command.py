# SPDX-License-Identifier: BSD-3-Clause
"""A kernel as a command: `kedge exec` with the image's Python and ipykernel; one process, so signals reach it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kedge.base.frozen import frozen
from kedge.errors import FileProblem

# Packages that kedge brought stand behind the image's own: PYTHONPATH would put them before.
_BEHIND = (
    "import sys; del sys.path[0]; sys.path.append(sys.argv.pop(1)); import runpy; "
    "runpy.run_module('ipykernel_launcher', run_name='__main__', alter_sys=True)"
)
_PARENT = "JPY_PARENT_PID"


@frozen
class KernelCommand:
    """A kernel without its connection file."""

    image: str
    options: tuple[str, ...] = ()  # of `kedge exec`
    python: str = "python3"
    packages: str = ""  # directory with an ipykernel; empty: the image has one
    arguments: tuple[str, ...] = ()  # of ipykernel: some programs of Jupyter add theirs at the end

    def exec_words(self, connection_file: str) -> list[str]:
        """The words of `kedge` that start it; the directories that it needs are bound, wherever home is."""
        words = ["exec", *self.options, "--bind", os.path.dirname(connection_file)]  # noqa: PTH120
        if {"--pid", "-p"} & set(self.options):  # ipykernel looks whether Jupyter lives, by numbers of this host
            words += ["--no-env", _PARENT]
        if self.packages:
            words += ["--bind", f"{self.packages}:{self.packages}:ro"]
        words += [self.image, self.python]
        words += ["-c", _BEHIND, self.packages] if self.packages else ["-m", "ipykernel_launcher"]
        return [*words, "-f", connection_file, *self.arguments]

    def start_words(self, connection_file: str) -> list[str]:
        """The words of `kedge jupyter` that stand in kernel.json, behind those of a job."""
        words = ["--connection-file", connection_file, "--python", self.python]
        words += ["--packages", self.packages] if self.packages else []
        words += [word for option in self.options for word in ("--option", option)]
        return [*words, "--", self.image, *self.arguments]


def require_packages(command: KernelCommand) -> None:
    """Say what is gone; Jupyter shows it in its log."""
    folder = command.packages
    if folder and not os.path.isdir(folder):  # noqa: PTH112
        raise FileProblem(
            f"the packages of this kernel are gone: {folder}",
            context={"path": folder},
            hint=f"install the kernel again: kedge jupyter install --replace {command.image}",
        )


def drop_parent(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for another host: Jupyter's process has its number on this one."""
    return {name: value for name, value in environ.items() if name != _PARENT}
