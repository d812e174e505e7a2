# SPDX-License-Identifier: BSD-3-Clause
"""Which Python of an image imports a package, by its files alone: nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.compat.packages.python_packages import find_site_directories

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
