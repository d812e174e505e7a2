# SPDX-License-Identifier: BSD-3-Clause
"""Packages of the distribution and of conda: dpkg, apk, and conda-meta. Those of RPM are in `rpm_database`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.compat.packages.package import APK, CONDA, DPKG, InstalledPackage, is_reasonable

if TYPE_CHECKING:
    from kedge.system.views import View

DPKG_STATUS = "/var/lib/dpkg/status"
DPKG_PARTS = "/var/lib/dpkg/status.d"  # of distroless images: one file for each package
DPKG_LISTS = "/var/lib/dpkg/info"
APK_DATABASES = ("/lib/apk/db/installed", "/usr/lib/apk/db/installed")
_DATABASE = 64 << 20
_SMALL = 16 << 20
_CONDA_PARENTS = ("/opt", "/opt/conda/envs", "/root", "/usr/local", "/")


def list_dpkg_packages(view: View) -> Iterator[InstalledPackage]:
    """Packages that are installed; what was removed and left its configuration is not."""
    texts = [view.read(DPKG_STATUS, _DATABASE) or b""]
    texts += [view.read(f"{DPKG_PARTS}/{name}", _SMALL) or b"" for name in view.names(DPKG_PARTS)]
    for text in texts:
        for paragraph in text.decode("utf-8", "replace").split("\n\n"):
            package = _read_paragraph(view, paragraph)
            if package is not None:
                yield package


def _read_paragraph(view: View, paragraph: str) -> InstalledPackage | None:
    fields = dict(re.findall(r"^(Package|Status|Version|Architecture):[ \t]*(.*?)[ \t]*$", paragraph, re.MULTILINE))
    name, version = fields.get("Package", ""), fields.get("Version", "")
    is_installed = fields.get("Status", "installed").split()[-1:] == ["installed"]
    if not is_installed or not is_reasonable(name) or not is_reasonable(version):
        return None
    architecture = fields.get("Architecture", "")
    files = _read_list(view, name, architecture)
    return InstalledPackage(DPKG, name, version, files=files, architecture=architecture)


def _read_list(view: View, name: str, architecture: str) -> tuple[str, ...]:
    for stem in (name, f"{name}:{architecture}"):
        text = view.read(f"{DPKG_LISTS}/{stem}.list", _SMALL)
        if text is not None:
            return tuple(
                line for line in text.decode("utf-8", "surrogateescape").splitlines() if line not in ("", "/.")
            )
    return ()


def list_apk_packages(view: View) -> Iterator[InstalledPackage]:
    """Packages of Alpine: one paragraph each, `P:` name, `V:` version, `F:` a directory and `R:` files in it."""
    for path in APK_DATABASES:
        text = (view.read(path, _DATABASE) or b"").decode("utf-8", "surrogateescape")
        for paragraph in text.split("\n\n"):
            lines = [(line[0], line[2:]) for line in paragraph.splitlines() if line[1:2] == ":"]
            fields = dict(reversed(lines))
            if is_reasonable(fields.get("P", "")) and is_reasonable(fields.get("V", "")):
                yield InstalledPackage(APK, fields["P"], fields["V"], files=tuple(_list_apk_files(lines)))


def _list_apk_files(lines: list[tuple[str, str]]) -> Iterator[str]:
    directory = ""
    for letter, value in lines:
        if letter == "F":
            directory = f"/{value}" if value else ""
        elif letter == "R":
            yield f"{directory}/{value}"


def list_conda_packages(view: View) -> Iterator[InstalledPackage]:
    """Packages of every conda prefix: one JSON file each in its conda-meta."""
    for prefix in find_conda_prefixes(view):
        for name in view.names(f"{prefix}/conda-meta"):
            if name.endswith(".json"):
                package = _read_conda(view.read(f"{prefix}/conda-meta/{name}", _SMALL), prefix)
                if package is not None:
                    yield package


def find_conda_prefixes(view: View) -> list[str]:
    """The prefixes, links followed."""
    places = [f"{parent.rstrip('/')}/{name}" for parent in _CONDA_PARENTS for name in view.names(parent)]
    return list(dict.fromkeys(view.resolve(place) for place in places if view.kind(f"{place}/conda-meta") == "d"))


def _read_conda(text: bytes | None, prefix: str) -> InstalledPackage | None:
    try:
        document = json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    name, version = str(document.get("name", "")), str(document.get("version", ""))
    files = document.get("files")
    listed = tuple(f"{prefix}/{path}" for path in files if isinstance(path, str)) if isinstance(files, list) else ()
    if not is_reasonable(name) or not is_reasonable(version):
        return None
    return InstalledPackage(CONDA, name, version, place=prefix, files=listed)
