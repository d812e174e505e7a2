# SPDX-License-Identifier: BSD-3-Clause
"""Jupyter's directories of kernels: where they are, and the ones in them that are kedge's."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.nearest import propose
from kedge.errors import FileProblem, NotebookProblem, UsageError
from kedge.system.files import explained

_OURS = "kedge"  # key of the metadata in kernel.json
FILE = "kernel.json"
PACKAGES = "packages"  # directory beside it
_LONGEST = 1 << 20  # bytes of such a file; larger ones are none of ours


@frozen
class Kernel(JsonValue):
    """A kernel that kedge installed."""

    name: str  # of its directory: what `jupyter --kernel` takes
    display_name: str
    path: str
    image: str
    python: str  # version
    ipykernel: str  # version
    packages: str  # directory of the ipykernel that kedge brought; empty: the image's own
    job: bool  # whether it runs in a job


def find_kernel_folder(environ: Mapping[str, str], prefix: str = "") -> Path:
    """Where Jupyter looks for the user's kernels, or those of an environment (`sys.prefix`)."""
    if prefix:
        return Path(prefix).absolute() / "share/jupyter/kernels"
    home = environ.get("HOME", "")
    data = environ.get("XDG_DATA_HOME") or (f"{home}/.local/share" if home.startswith("/") else "")
    place = environ.get("JUPYTER_DATA_DIR") or (f"{data}/jupyter" if data else "")
    if not place:
        raise UsageError("there is no home directory to put kernels into", hint="say where: --prefix DIR")
    return Path(place).absolute() / "kernels"


def name_kernel(display_name: str) -> str:
    """The name of the directory: Jupyter takes letters, digits, dots, dashes and underscores."""
    name = re.sub(r"[^a-z0-9._-]+", "-", display_name.lower()).strip("-.")
    if not name:
        raise UsageError(f"'{display_name}' has no letter or digit that Jupyter takes", hint="give another --name")
    return name


def describe_kernel(kernel: Kernel, argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The content of kernel.json."""
    kept = {name: environ[name] for name in ("KEDGE_CACHEDIR", "KEDGE_NODEDIR") if name in environ}
    return {
        "argv": list(argv),
        "display_name": kernel.display_name,
        "language": "python",
        "interrupt_mode": "signal",
        **({"env": kept} if kept else {}),
        "metadata": {"debugger": _is_new(kernel.ipykernel), _OURS: kernel.as_dict()},
    }


def _is_new(ipykernel: str) -> bool:
    """Whether this ipykernel can debug."""
    first = ipykernel.partition(".")[0]
    return first.isdigit() and int(first) >= 6


def list_kernels(folder: Path) -> list[Kernel]:
    """The kernels of kedge in a directory, by name; what is no kernel is passed over."""
    found = [_read_kernel(path) for path in sorted(folder.glob(f"*/{FILE}"))]
    return [kernel for kernel in found if kernel is not None]


def _read_kernel(path: Path) -> Kernel | None:
    try:
        # O_NONBLOCK: a pipe in the file's place must not make us wait
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            noted = json.loads(file.read(_LONGEST))["metadata"][_OURS]
        kernel = Kernel(**{**noted, "name": path.parent.name, "path": str(path.parent)})
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_sound = all(isinstance(value, str) for name, value in kernel.as_dict().items() if name != "job")
    return replace(kernel, job=bool(kernel.job)) if is_sound else None


def find_kernel(folder: Path, name: str) -> Kernel:
    """A kernel by the name of its directory or by the name that Jupyter shows."""
    kernels = list_kernels(folder)
    for kernel in kernels:
        if name in (kernel.name, kernel.display_name):
            return kernel
    names = [kernel.name for kernel in kernels]
    raise NotebookProblem(
        f"there is no kernel '{name}' of kedge in {folder}",
        context={"path": str(folder)},
        hint=propose(name, names) or "to list the kernels: kedge jupyter list",
    )


def remove_kernel(kernel: Kernel) -> None:
    """Remove its directory; packages elsewhere stay."""
    with explained(kernel.path):
        if os.path.islink(kernel.path):  # noqa: PTH114
            os.unlink(kernel.path)  # noqa: PTH108
        else:
            shutil.rmtree(kernel.path)


# A kernel as a command: `kedge exec` with the image's Python and ipykernel; one process, so signals reach it.

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
