# SPDX-License-Identifier: BSD-3-Clause
"""One installed package as its manager records it, and the names under which pip knows a project."""

from __future__ import annotations

import re

from kedge.base.frozen import frozen

PIP, CONDA, DPKG, RPM, APK = "pip", "conda", "dpkg", "rpm", "apk"
MANAGERS = (PIP, CONDA, DPKG, RPM, APK)
_SEPARATORS = re.compile(r"[-_.]+")
_REASONABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!~:@^-]{0,200}\Z")


@frozen
class InstalledPackage:
    """A package, where it is installed, and the files it brought; paths are absolute inside the image."""

    manager: str
    name: str
    version: str
    place: str = ""  # of Python packages: the site-packages; of conda: the prefix
    files: tuple[str, ...] = ()
    location: str = ""  # of an editable install: the directory its code is in
    architecture: str = ""
    fingerprint: str = ""  # of Python packages: two builds of one version differ in it

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes it the same package in another image, whatever its version."""
        name = normalize_name(self.name) if self.manager == PIP else self.name
        return self.manager, self.place, name, self.architecture


def normalize_name(name: str) -> str:
    """The name of a Python project as pip compares it (PEP 503)."""
    return _SEPARATORS.sub("-", name).lower()


def is_reasonable(word: str) -> bool:
    """Whether a name or version from an image can be shown and compared."""
    return _REASONABLE.match(word) is not None
