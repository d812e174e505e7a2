# SPDX-License-Identifier: BSD-3-Clause
"""Python packages: dist-info and egg-info in every site-packages and dist-packages of an image.

Name and version are those in the METADATA file, as pip prints them: the name of a directory is escaped
(`2.1.0a0_32f93b1` for `2.1.0a0+32f93b1`). A damaged entry is passed over, as pip passes it over.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kedge.compat.packages.package import PIP, InstalledPackage, is_reasonable

if TYPE_CHECKING:
    from kedge.system.views import View

_METADATA = 1 << 20
_RECORD = 32 << 20
_MOST_NAMES = 50_000
# Where interpreters are installed: `PREFIX/lib/pythonX.Y/site-packages` below these, and below directories in them.
_PREFIXES = ("/usr", "/usr/local", "/opt/conda", "/opt/miniconda", "/opt/miniconda3", "/opt/mamba", "/opt/micromamba",
             "/opt/venv", "/venv", "/opt/python", "/root/.venv", "/app/.venv", "/workspace/.venv", "/conda",
             "/miniconda3", "/root/.local")  # fmt: skip
_PARENTS = ("/opt", "/opt/conda/envs", "/root", "/usr/local", "/home", "/venvs", "/opt/python", "/")
_PYTHON = re.compile(r"python3(?:\.\d+)?\Z")
_FIELD = re.compile(r"^(Name|Version):[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def find_site_directories(view: View) -> list[str]:
    """The directories that hold Python packages, links followed, in a fixed order."""
    directories: dict[str, None] = {}
    for prefix in _list_prefixes(view):
        for library in ("lib", "lib64"):
            for place in _list_places(view, f"{prefix}/{library}"):
                if view.kind(place) == "d":
                    directories[view.resolve(place)] = None
    return list(directories)


def _list_prefixes(view: View) -> Iterator[str]:
    yield from _PREFIXES
    for name in view.names("/home")[:_MOST_NAMES]:  # `pip install --user`
        yield f"/home/{name}/.local"
    for parent in _PARENTS:
        base = parent.rstrip("/")
        for name in view.names(parent)[:_MOST_NAMES]:
            if view.kind(f"{base}/{name}/pyvenv.cfg") == "f" or view.kind(f"{base}/{name}/conda-meta") == "d":
                yield f"{base}/{name}"


def _list_places(view: View, library: str) -> Iterator[str]:
    if library in ("/usr/lib", "/usr/local/lib"):
        yield f"{library}/python3/dist-packages"
    for name in view.names(library):
        if _PYTHON.match(name):
            yield f"{library}/{name}/site-packages"
            yield f"{library}/{name}/dist-packages"


def list_python_packages(view: View, directories: Iterable[str] | None = None) -> list[InstalledPackage]:
    """All packages of these directories, by default of all that there are; the first of two equal names counts."""
    packages: dict[tuple[str, str, str, str], InstalledPackage] = {}
    for directory in find_site_directories(view) if directories is None else directories:
        for name in view.names(directory)[:_MOST_NAMES]:
            package = _read_package(view, directory, name)
            if package is not None:
                packages.setdefault(package.key, package)
    return list(packages.values())


def _read_package(view: View, directory: str, name: str) -> InstalledPackage | None:
    path, fingerprint = f"{directory}/{name}", ""
    if name.endswith(".dist-info"):
        identity = _read_names(view, f"{path}/METADATA")
        files, fingerprint = _read_record(view, path, directory)
        location = _read_location(view, f"{path}/direct_url.json")
    elif name.endswith(".egg-info"):
        identity = _read_names(view, path) or _read_names(view, f"{path}/PKG-INFO")
        files = _read_installed_files(view, path)
        location = ""
    elif name.endswith(".egg-link"):
        location = (view.read(path, _METADATA) or b"").decode("utf-8", "replace").split("\n")[0].strip()
        identity, files = _read_developed(view, location, name.removesuffix(".egg-link")), (path,)
    else:
        return None
    if identity is None:
        return None
    return InstalledPackage(PIP, *identity, place=directory, files=files, location=location, fingerprint=fingerprint)


def _read_names(view: View, path: str) -> tuple[str, str] | None:
    text = (view.read(path, _METADATA) or b"").decode("utf-8", "replace").partition("\n\n")[0]
    fields = dict(reversed(_FIELD.findall(text)))  # the first of two counts
    name, version = fields.get("Name", ""), fields.get("Version", "")
    return (name, version) if is_reasonable(name) and is_reasonable(version) else None


def _read_developed(view: View, location: str, name: str) -> tuple[str, str] | None:
    """What `setup.py develop` left a link to; its egg-info stands beside the code."""
    if not location.startswith("/"):
        return None
    wanted = f"{name.replace('-', '_')}.egg-info"
    names = [entry for entry in view.names(location) if entry.lower() == wanted.lower()]
    return _read_names(view, f"{location}/{names[0]}/PKG-INFO") if names else None


def _read_record(view: View, path: str, directory: str) -> tuple[tuple[str, ...], str]:
    """The files that the RECORD lists, and a fingerprint of their contents: a package installed anew has another."""
    text = (view.read(f"{path}/RECORD", _RECORD) or b"").decode("utf-8", "replace")
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row and row[0]]
    except csv.Error:
        rows = []
    files = tuple(posixpath.normpath(posixpath.join(directory, row[0])) for row in rows)
    # of code alone: installers write INSTALLER, REQUESTED and their own scripts as they like
    code = sorted(f"{row[0]} {row[1]}" for row in rows if row[1:] and row[1] and ".dist-info/" not in row[0])
    fingerprint = hashlib.sha256("\n".join(code).encode("utf-8", "replace")).hexdigest()[:16] if code else ""
    return files or tuple(f"{path}/{name}" for name in view.names(path)), fingerprint


def _read_installed_files(view: View, path: str) -> tuple[str, ...]:
    text = (view.read(f"{path}/installed-files.txt", _RECORD) or b"").decode("utf-8", "replace")
    return tuple(posixpath.normpath(posixpath.join(path, line)) for line in text.splitlines() if line)


def _read_location(view: View, path: str) -> str:
    """Where the code of an editable install is, as PEP 610 has it; empty for all others."""
    try:
        document = json.loads(view.read(path, _METADATA) or b"null")
    except ValueError:
        return ""
    if not isinstance(document, dict) or not isinstance(document.get("dir_info"), dict):
        return ""
    address = str(document.get("url", ""))
    return address.removeprefix("file://") if document["dir_info"].get("editable") is True else ""
