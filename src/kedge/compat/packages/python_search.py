# SPDX-License-Identifier: BSD-3-Clause
"""Which Python of an image imports a package, by its files alone: nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.compat.packages.python_packages import find_site_directories
from kedge.image.clean_config import clean_text

if TYPE_CHECKING:
    from kedge.system.views import View

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_FOLDERS = 100  # of PATH and PYTHONPATH
_MOST_NAMES = 3_000_000  # that a search through all files looks at
_SITE = re.compile(r"(?P<prefix>.*)/lib(?:64)?/(?P<name>python3(?:\.\d+)?)/(?:site|dist)-packages\Z")
_MINOR = re.compile(r"python3\.\d+\Z")
_KERNEL = ("/proc", "/sys", "/dev")
# endings that directories do not have
_FILES = re.compile(
    r"\.(?:pyc?|pyi|so|h|hpp|cuh?|cpp|txt|json|html?|gz|a|o|md|rst|png|svg|js|css|xml|ya?ml)(?:\.[\d.]+)?\Z"
)


@frozen
class FoundPackage:
    """A package and the Python that imports it."""

    directory: str  # of the package itself
    python: str = ""  # a name where PATH finds it, else a path; empty: unknown


def find_program(view: View, environment: Mapping[str, str], name: str) -> str:
    """The path of the program that a shell in the image starts by this name; empty where there is none."""
    paths = (f"{folder}/{name}" for folder in list_path(environment))
    return next((path for path in paths if view.is_executable(path)), "")


def list_path(environment: Mapping[str, str]) -> list[str]:
    """The directories of PATH."""
    return _split(environment.get("PATH") or _DEFAULT_PATH)


def list_python_path(environment: Mapping[str, str]) -> list[str]:
    """The directories of PYTHONPATH."""
    return _split(environment.get("PYTHONPATH", ""))


def find_package(view: View, environment: Mapping[str, str], *names: str) -> FoundPackage | None:
    """The first of these packages: of the Python that PATH finds, else of any other; None where there is none.

    A package that only a search through all files finds has no Python.
    """
    for python, place in _list_places(view, environment):
        for name in names:
            if is_package(view, f"{place}/{name}"):
                return FoundPackage(f"{place}/{name}", python)
    return None


def is_package(view: View, path: str) -> bool:
    """Whether a directory is a Python package."""
    return any(name.startswith("__init__.") for name in view.names(path))


def search_files(view: View, *names: str) -> str | None:
    """A package with one of these names anywhere in the tree; empty: there is none; None: too many files to tell.

    This takes seconds, where `find_package` takes none: it is for who is about to say that a package is missing.
    """
    left, seen = ["/"], 0
    while left:
        folder = left.pop()
        entries = view.names(folder)
        seen += len(entries)
        if seen > _MOST_NAMES:
            return None
        for entry in entries:
            path = f"{folder.rstrip('/')}/{entry}"
            if entry in names and is_package(view, path):
                return path
            if path in _KERNEL or _FILES.search(entry) or view.read_link(path):
                continue
            if view.kind(path) == "d":
                left.append(path)
    return ""


def _split(text: str) -> list[str]:
    return [folder.rstrip("/") for folder in text.split(":") if folder.startswith("/")][:_MOST_FOLDERS]


def _list_places(view: View, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Directories of packages, each with the Python that searches it, in the order of what a user gets first."""
    for name in ("python", "python3"):
        path = find_program(view, environment, name)
        if path:
            yield from ((name, place) for place in list_python_path(environment))
            yield from ((name, place) for place in _list_own(view, path))
    for place in find_site_directories(view):
        yield _find_interpreter(view, environment, place), place


def _list_own(view: View, path: str) -> Iterator[str]:
    """The directories of packages that belong to an interpreter."""
    folder = path.rpartition("/")[0]
    prefix = folder.rpartition("/")[0]
    real = view.resolve(path)
    settings = (view.read(f"{prefix}/pyvenv.cfg", 1 << 16) or b"").decode("utf-8", "replace")
    if settings:
        yield from _list_below(view, prefix, real)
        if not re.search(r"(?im)^include-system-site-packages\s*=\s*true", settings):
            return
    prefix = real.rpartition("/")[0].rpartition("/")[0]
    for each in (prefix, "/usr/local") if prefix == "/usr" else (prefix,):
        yield from _list_below(view, each, real)


def _list_below(view: View, prefix: str, interpreter: str) -> Iterator[str]:
    name = interpreter.rpartition("/")[2]
    own = (name, "python3") if _MINOR.match(name) else ()
    for library in ("lib", "lib64"):
        for entry in view.names(f"{prefix}/{library}"):
            if entry in own or (not own and re.match(r"python3", entry)):
                yield f"{prefix}/{library}/{entry}/site-packages"
                yield f"{prefix}/{library}/{entry}/dist-packages"


def _find_interpreter(view: View, environment: Mapping[str, str], place: str) -> str:
    """The Python that packages in a directory were installed for; empty where none is found."""
    match = _SITE.match(place)
    if match is None:
        return ""
    names = (match["name"], "python3", "python")
    own = [f"{match['prefix']}/bin/{name}" for name in names]
    others = [f"{folder}/{match['name']}" for folder in (*list_path(environment), "/usr/local/bin", "/usr/bin")]
    return next((path for path in (*own, *others) if view.is_executable(path)), "")


# Which program of an image starts the processes of torch.distributed on a node, by the files of its PyTorch.
#
# The program `torchrun` came with PyTorch 1.10, `torch.distributed.run` with 1.9, and its predecessor `launch` sets
# LOCAL_RANK only with --use_env. Files are asked, not versions: NVIDIA's builds of 1.9.0a0 and 1.10.0a0 are snapshots
# from before and after these changes.

TORCHRUN = ("torchrun",)
_EXAMPLES = "/workspace/examples"  # in NVIDIA's images
_VERSION = re.compile(rb"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"\n]+)", re.MULTILINE)
_SMALL = 1 << 18
_MOST_EXAMPLES = 500
_PLAIN = re.compile(r"[\w./+@=-]+\Z", re.ASCII)  # names of an image that may stand in a script


@frozen
class TorchLauncher:
    """What starts the processes of a node, and why this."""

    words: tuple[str, ...]  # before its options; empty: the image's PyTorch has no launcher
    reason: str  # in one line
    is_elastic: bool = True  # it knows --rdzv_backend and --standalone
    version: str = ""  # of PyTorch; empty: unknown
    is_known: bool = True  # else it is only likely that the program finds it


def find_torch_launcher(view: View, environment: Mapping[str, str]) -> TorchLauncher | None:
    """The launcher of the image's PyTorch; None where no PyTorch is found."""
    program = find_program(view, environment, "torchrun")
    if program:
        return TorchLauncher(TORCHRUN, f"torchrun starts the processes of each node: {program} of the image")
    torch = find_package(view, environment, "torch")
    return describe_torch(view, torch) if torch is not None else None


def describe_torch(view: View, torch: FoundPackage) -> TorchLauncher:
    """The launcher of this PyTorch, whose `torchrun` is not in PATH."""
    version = _read_version(view, torch.directory)
    title = f"PyTorch {version}".strip()
    for words, lacks, is_elastic in _list_launchers(view, torch):
        if all(map(_PLAIN.match, words)):
            reason = f"{' '.join(words)} starts the processes of each node: {title} of the image {lacks}"
            return TorchLauncher(words, reason, is_elastic, version)
    place = clean_text(torch.directory, 200)
    return TorchLauncher((), f"{title} in {place} has no launcher for several processes", False, version)


def _list_launchers(view: View, torch: FoundPackage) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """The launchers, the newest first, each with what the image does not have, and whether it is elastic."""
    python, folder = torch.python or "python", f"{torch.directory}/distributed"
    beside = f"{python.rpartition('/')[0]}/torchrun"
    if "/" in python and view.is_executable(beside):
        yield (beside,), "is not in PATH", True
    if view.kind(f"{folder}/run.py") == "f":
        yield (python, "-m", "torch.distributed.run"), "has no program torchrun", True
    launch = view.read(f"{folder}/launch.py", _SMALL) or b""
    if b"use_env" in launch:
        lacks = "has neither torchrun nor torch.distributed.run"
        yield (python, "-m", "torch.distributed.launch", "--use_env"), lacks, False
    for path in _find_multiproc(view):
        yield (python, path), "has no launcher that sets LOCAL_RANK", False
    if launch:
        lacks = "has no launcher that sets LOCAL_RANK, so the program must take --local_rank"
        yield (python, "-m", "torch.distributed.launch"), lacks, False


def _find_multiproc(view: View) -> Iterator[str]:
    """`multiproc.py` of NVIDIA's examples, where it sets the variables of a rank."""
    for name in view.names(_EXAMPLES)[:_MOST_EXAMPLES]:
        path = f"{_EXAMPLES}/{name}/multiproc.py"
        if b"LOCAL_RANK" in (view.read(path, _SMALL) or b""):
            yield path


def _read_version(view: View, folder: str) -> str:
    match = _VERSION.search(view.read(f"{folder}/version.py", _SMALL) or b"")
    return clean_text(match[1].decode("utf-8", "replace"), 60) if match else ""
