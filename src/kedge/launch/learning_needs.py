# SPDX-License-Identifier: BSD-3-Clause
"""Whether an image has what a plan for many processes starts or imports: PyTorch's launcher, Lightning, Horovod, JAX.

Only the image's files are read. What the container gets from outside (binds, overlays, variables) may bring packages
along: then the answer is unknown, and not no.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.compat.packages.python_search import (
    TORCHRUN,
    FoundPackage,
    TorchLauncher,
    describe_torch,
    find_package,
    find_program,
    find_torch_launcher,
    list_path,
    list_python_path,
    search_files,
)
from kedge.errors import KedgeError, LaunchRefused
from kedge.image.inspect import inspect_path
from kedge.image.open_view import open_view, read_file_environment
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.system.views import View

STARTED = ("torchrun", "elastic")  # contracts for which kedge puts PyTorch's launcher before the program
_IMPORTED = {  # contracts, what they are called, and any of the packages that programs for them import
    "lightning": ("PyTorch Lightning", ("lightning", "pytorch_lightning", "lightning_fabric")),
    "horovod": ("Horovod", ("horovod",)),
    "jax": ("JAX", ("jax",)),
    "deepspeed": ("DeepSpeed", ("deepspeed",)),
    "tensorflow": ("TensorFlow", ("tensorflow",)),
}
CONTRACTS = (*STARTED, *_IMPORTED)
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?\Z")
# variables of a container that change where shells and Python look, and variables of a host that set these inside
_SEARCHED = re.compile(r"(?:PATH|PYTHON(?:PATH|HOME|USERBASE))\Z")
_PASSED = re.compile(r"\w+ENV_(?:(?:AP|PRE)PEND_)?(?:PATH|PYTHON(?:PATH|HOME|USERBASE))\Z")
_FORCE = "if the program gets it from elsewhere add --force"
_SITES = ("/usr/lib", "/usr/local", "/opt")  # of which a bind may bring packages or programs


@frozen
class Surroundings:
    """What a container has beside its image."""

    targets: tuple[str, ...] = ()  # where binds are seen
    is_changed: bool = False  # by variables or overlays that may bring other packages
    directory: str = ""  # where the program runs
    modules: tuple[str, ...] = ()  # directories of this host from which Python in the container may import


@frozen
class NeedsFound:
    """What was found out; raises LaunchRefused instead where it is certain that the program cannot start."""

    launcher: TorchLauncher | None = None  # None: the contract needs none
    warning: str = ""


def check_needs(
    name: str, path: Path | None, contract: str, command: Sequence[str], around: Surroundings, *, force: bool
) -> NeedsFound:
    """What a contract needs of the image `name`, which is at `path`; None where it is not on this host."""
    if path is None:
        return _doubt(contract, f"{name} is not on this host yet")
    try:
        with _open(path) as (view, environment):
            found = _look(view, environment, path, contract)
            if found is None:
                doubt = _find_doubt(view, environment, contract, command, around)
                return _doubt(contract, doubt) if doubt else _refuse(name, contract, is_forced=force)
    except (KedgeError, OSError, ValueError) as problem:
        if isinstance(problem, LaunchRefused):
            raise
        return _doubt(contract, f"the files of {name} cannot be read")
    return _judge(name, contract, found, is_forced=force)


@contextmanager
def _open(path: Path) -> Iterator[tuple[View, Mapping[str, str]]]:
    environment = read_file_environment(inspect_path(path))
    with open_view(path) as (view, _):
        if view is None:
            raise ValueError("encrypted, or no SquashFS")
        yield view, environment


def _look(view: View, environment: Mapping[str, str], path: Path, contract: str) -> TorchLauncher | FoundPackage | None:
    """The launcher or package; None where the image has none. Raises OSError where that cannot be told."""
    names = _IMPORTED[contract][1] if contract in _IMPORTED else ("torch",)
    is_started = contract in STARTED
    found = find_torch_launcher(view, environment) if is_started else find_package(view, environment, *names)
    if found is not None:
        return found
    if path.is_dir():  # what cannot be read must not count as missing
        view = DirectoryView(str(path.absolute()), is_still=True, is_strict=True)
    place = search_files(view, *names)
    if place is None:
        raise ValueError("too many files")
    if not place:
        return None
    return describe_torch(view, FoundPackage(place)) if is_started else FoundPackage(place)


def _find_doubt(
    view: View, environment: Mapping[str, str], contract: str, command: Sequence[str], around: Surroundings
) -> str:
    """Why a package that the image does not have may be there all the same; empty where nothing says so."""
    if around.is_changed:
        return "variables or overlays of the container may bring it"
    searched = [*list_path(environment), *list_python_path(environment), *_SITES]
    for target in around.targets:
        if any(f"{place}/".startswith(f"{target}/") or f"{target}/".startswith(f"{place}/") for place in searched):
            return f"the bind to {target} may bring it"
    missing = [place for place in list_python_path(environment) if view.kind(place) != "d"]
    if missing:
        return f"the image's PYTHONPATH names {missing[0]}, which is not in the image"
    names = _IMPORTED[contract][1] if contract in _IMPORTED else ("torch",)
    own = [place for place in around.modules if any(Path(place, name).is_dir() for name in names)]
    if own:
        return f"it is in {own[0]} of this host"
    return "" if contract in STARTED else _doubt_program(view, environment, command, names, around.directory)


def _doubt_program(
    view: View, environment: Mapping[str, str], command: Sequence[str], names: Iterable[str], directory: str
) -> str:
    """Why a program may import what the Python of the image does not have."""
    program = "".join(command[:1])
    is_own = bool(find_program(view, environment, program)) if "/" not in program else view.is_executable(program)
    if not _PYTHON.match(program.rpartition("/")[2]) or not is_own:
        return f"'{program}' is no Python of the image" if program else "the image's own command may bring it"
    script = Path(directory, "".join(command[1:2]))
    if any((script.parent / name).is_dir() for name in names):
        return f"it is beside {script.name}"
    return ""


def _doubt(contract: str, why: str) -> NeedsFound:
    if contract in STARTED:
        reason = f"unknown: which launcher PyTorch has here ({why})"
        return NeedsFound(TorchLauncher(TORCHRUN, reason, is_known=False))
    return NeedsFound(warning=f"unknown: whether the program finds {_IMPORTED[contract][0]} ({why})")


def _refuse(name: str, contract: str, *, is_forced: bool) -> NeedsFound:
    title = "PyTorch" if contract in STARTED else _IMPORTED[contract][0]
    wanted = "--torchrun" if contract == "torchrun" else f"--contract {contract}"
    problem = f"{name} has no {title}, which {wanted} needs"
    if is_forced:
        return NeedsFound(TorchLauncher(TORCHRUN, problem) if contract in STARTED else None, problem)
    raise LaunchRefused(problem, context={"image": name}, hint=f"name an image that has {title}; {_FORCE}")


def _judge(name: str, contract: str, found: TorchLauncher | FoundPackage, *, is_forced: bool) -> NeedsFound:
    """Refuse a PyTorch that is too old for what was asked."""
    if not isinstance(found, TorchLauncher):
        return NeedsFound()
    if found.words and (found.is_elastic or contract != "elastic"):
        return NeedsFound(found)
    problem = f"{name}: {found.reason}"
    if found.words:
        title = f"PyTorch {found.version}".strip()
        problem = f"--contract elastic needs torch.distributed.run of PyTorch 1.9 or newer, and {name} has {title}"
    if is_forced:
        return NeedsFound(TorchLauncher(TORCHRUN, problem), problem)
    raise LaunchRefused(
        problem, context={"image": name}, hint=f"use --ranks, which needs no launcher in the image; {_FORCE}"
    )


def read_surroundings(options: Sequence[str], environ: Mapping[str, str], directory: str = "") -> Surroundings:
    """What options of `kedge exec` and variables of the host bring into the container."""
    from kedge.container.flags import (
        collect_binds,  # late: who has the image's PyTorch needs none of it
        parse_words,
    )

    read = parse_words("exec", [*options, "image", "true"], environ)
    binds = collect_binds(read, environ, directory or os.getcwd())  # noqa: PTH109 - text
    set_inside = [name for text in read.env for name in re.findall(r"(?:^|,)\s*(\w+)=", text)]
    kept = [name.strip() for text in read.keep for name in text.split(",") if name.strip() != "PYTHONPATH"]
    is_changed = bool(read.overlay or read.env_file) or changes_search([*set_inside, *kept], environ)
    modules = [place for place in environ.get("PYTHONPATH", "").split(":") if place]  # those of the project go in
    if {"user-site", "all"} & set(kept):
        modules += list_user_sites(environ)
    return Surroundings(tuple(bind.destination for bind in binds), is_changed, directory, tuple(modules))


def list_user_sites(environ: Mapping[str, str]) -> list[str]:
    """The directories of `pip install --user`."""
    return [str(place) for place in Path(environ.get("HOME") or "/", ".local/lib").glob("python3*/site-packages")]


def changes_search(inside: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Whether variables of the container, or those of this host that go in, change where Python and shells look."""
    return any(map(_SEARCHED.match, inside)) or any(map(_PASSED.match, environ))
