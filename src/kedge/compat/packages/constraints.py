# SPDX-License-Identifier: BSD-3-Clause
"""Packages frozen as they are: pins that pip and uv obey, and what changed all the same.

pip, setuptools and wheel are left out: constraints reach the isolated environments in which pip builds packages, and
those need newer ones than an image ships.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kedge.base.frozen import JsonValue, frozen
from kedge.compat.packages.package import CONDA, PIP, InstalledPackage, normalize_name

_TOOLS = frozenset(("pip", "setuptools", "wheel"))
# PEP 440; pip refuses a constraints file with any other version in it
_VERSION = re.compile(
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
    r"(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?(?:[-_.]?dev[-_.]?\d*)?(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?\Z",
    re.IGNORECASE,
)
_PIN = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(?:==|@)")
_SYSTEM = re.compile(r"/usr/lib(?:64)?/python3[^/]*/(?:dist|site)-packages\Z")
_LOCAL = re.compile(r"/usr/local/lib(?:64)?/(python3[^/]*)/(?:dist|site)-packages\Z")
_OF_USERS = re.compile(r"(?:/root|/home/[^/]+)/\.local/lib(?:64)?/(python3[^/]*)/site-packages\Z")
# interpreters that look into a user's directory first; those of virtual environments do not
_OPEN = re.compile(
    r"(?:/usr|/usr/local|/[^/]*(?:conda|mamba)[^/]*|/opt/[^/]*(?:conda|mamba)[^/]*)/lib(?:64)?/(python3[^/]*)/"
)


@frozen
class PackageChange(JsonValue):
    """A package that is not what it was; an empty version means that it is not there."""

    json_nulls = ("before", "after", "place")

    manager: str
    name: str
    before: str = ""
    after: str = ""
    place: str = ""

    def __str__(self) -> str:
        if not self.after:
            return f"{self.name} {self.before} was removed"
        if not self.before:
            return f"{self.name} {self.after} was added"
        if self.before == self.after:
            return f"{self.name} {self.before} was replaced by another build of the same version"
        return f"{self.name} {self.before} was replaced by {self.after}"


def render_constraints(packages: Iterable[InstalledPackage], pinned: Iterable[str] = ()) -> str:
    """Return one pin for each Python package. `pinned` are names that the image's own file pins already.

    Where two interpreters have different versions of a project no pin can be right for both, and there is none; what
    is in /usr/local counts before what the distribution has.
    """
    known = {normalize_name(name) for name in pinned} | _TOOLS
    versions: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for package in packages:
        name = normalize_name(package.name)
        if package.manager == PIP and name not in known and not package.location and _VERSION.match(package.version):
            rank = "system" if _SYSTEM.match(package.place) else "own"
            versions.setdefault(name, {})
            names.setdefault(name, package.name)
            before = versions[name].setdefault(rank, package.version)
            if before != package.version:
                versions[name][rank] = ""
    pins = {name: ranks.get("own", ranks.get("system", "")) for name, ranks in versions.items()}
    return "".join(f"{names[name]}=={pin}\n" for name, pin in sorted(pins.items()) if pin)


def read_pinned_names(text: str) -> list[str]:
    """The projects that a constraints file pins to one version."""
    return [match[1] for line in text.splitlines() if (match := _PIN.match(line))]


def list_replaced(before: Sequence[InstalledPackage], after: Sequence[InstalledPackage]) -> list[PackageChange]:
    """What happened to the packages of pip and conda that were there before; new ones do not count."""
    now = {package.key: package for package in after}
    return [
        change
        for package in before
        if package.manager in (PIP, CONDA) and normalize_name(package.name) not in _TOOLS
        for change in _compare(package, now, after)
    ]


def _compare(
    package: InstalledPackage, now: dict[tuple[str, str, str, str], InstalledPackage], after: Sequence[InstalledPackage]
) -> Iterator[PackageChange]:
    current = now.get(package.key)
    if current is None:
        moved = [other for other in after if other.manager == PIP and _is_same_project(other, package)]
        if package.manager == PIP and _SYSTEM.match(package.place) and moved:
            current = moved[0]
        else:
            yield PackageChange(package.manager, package.name, package.version, "", package.place)
            return
    shadow = next((other for other in after if _shadows(other, package)), None)
    newest = shadow or current
    is_rebuilt = package.fingerprint and newest.fingerprint and package.fingerprint != newest.fingerprint
    if newest.version != package.version or (is_rebuilt and newest is current):
        yield PackageChange(package.manager, package.name, package.version, newest.version, newest.place)


def _is_same_project(one: InstalledPackage, other: InstalledPackage) -> bool:
    return normalize_name(one.name) == normalize_name(other.name)


def _shadows(upper: InstalledPackage, lower: InstalledPackage) -> bool:
    """Whether Python takes the one instead of the other: a user's directory, then /usr/local, then the system's."""
    if upper.place == lower.place or not upper.manager == PIP == lower.manager or not _is_same_project(upper, lower):
        return False
    if _SYSTEM.match(lower.place) and _LOCAL.match(upper.place):
        return True
    user, below = _OF_USERS.match(upper.place), _OPEN.match(lower.place)
    return user is not None and below is not None and below[1] in (user[1], "python3")


def list_changes(before: Iterable[InstalledPackage], after: Iterable[InstalledPackage]) -> list[PackageChange]:
    """Return what was added, removed and changed, of all managers, sorted."""
    old = {package.key: package for package in before}
    new = {package.key: package for package in after}
    changes = [PackageChange(p.manager, p.name, p.version, "", p.place) for key, p in old.items() if key not in new]
    changes += [PackageChange(p.manager, p.name, "", p.version, p.place) for key, p in new.items() if key not in old]
    changes += [
        PackageChange(p.manager, p.name, old[key].version, p.version, p.place)
        for key, p in new.items()
        if key in old and (old[key].version, old[key].fingerprint) != (p.version, p.fingerprint)
    ]
    return sorted(changes, key=lambda change: (change.manager, change.name.lower(), change.place))
