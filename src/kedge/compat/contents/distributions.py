# SPDX-License-Identifier: BSD-3-Clause
"""Linux distributions as images name them, and the C library that each release keeps for all of its life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kedge.base.patterns import late_pattern

# A release of a distribution never changes its glibc version: this is no guess.
_GLIBC = {
    "Ubuntu 14.04": "2.19",
    "Ubuntu 16.04": "2.23",
    "Ubuntu 18.04": "2.27",
    "Ubuntu 20.04": "2.31",
    "Ubuntu 22.04": "2.35",
    "Ubuntu 24.04": "2.39",
    "Debian 9": "2.24",
    "Debian 10": "2.28",
    "Debian 11": "2.31",
    "Debian 12": "2.36",
    "Debian 13": "2.41",
    "CentOS 7": "2.17",
    "CentOS 8": "2.28",
    "UBI 7": "2.17",
    "UBI 8": "2.28",
    "UBI 9": "2.34",
    "Rocky Linux 8": "2.28",
    "Rocky Linux 9": "2.34",
    "AlmaLinux 8": "2.28",
    "AlmaLinux 9": "2.34",
    "Oracle Linux 8": "2.28",
    "Oracle Linux 9": "2.34",
    "Amazon Linux 2": "2.26",
    "Amazon Linux 2023": "2.34",
}
_TAG_NAMES = {
    "ubuntu": "Ubuntu",
    "centos": "CentOS",
    "ubi": "UBI",
    "rockylinux": "Rocky Linux",
    "oraclelinux": "Oracle Linux",
    "opensuse": "openSUSE",
    "amzn": "Amazon Linux",
    "cm": "CBL-Mariner",
    "azl": "Azure Linux",
    "debian": "Debian",
    "fedora": "Fedora",
    "almalinux": "AlmaLinux",
    "alpine": "Alpine",
}
_DEBIAN_NAMES = {"stretch": "9", "buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13"}
_TAG = late_pattern(rf"(?:\A|[-_.])({'|'.join(_TAG_NAMES)})-?(\d+(?:\.\d+)*)(?=[-_]|\Z)")
_DEBIAN = late_pattern(r"debian\.sh .*'(\w+)'|(?:\A|[-_])(" + "|".join(_DEBIAN_NAMES) + r")(?=[-_]|\Z)")
_VERSION = late_pattern(r"\d+(\.\d+)*\Z")


def read_label_system(labels: Mapping[str, str]) -> str:
    """What the labels of base images say; `version` alone would be that of the program that somebody put on top."""
    name = labels.get("org.opencontainers.image.ref.name", "")
    version = labels.get("org.opencontainers.image.version", "")
    if name == "ubuntu" and _VERSION.match(version):
        return f"Ubuntu {version}"
    component, version = labels.get("com.redhat.component", ""), labels.get("version", "")
    if component.startswith("ubi") and _VERSION.match(version):
        return f"UBI {version}"
    return ""


def read_tag_system(tag: str) -> str:
    """The distribution that a tag names: `Ubuntu 22.04` of `12.4.1-base-ubuntu22.04`."""
    match = _TAG.search(tag)
    if match:
        return f"{_TAG_NAMES[match[1]]} {match[2]}"
    debian = _DEBIAN.search(tag)
    return f"Debian {_DEBIAN_NAMES[debian[2]]}" if debian and debian[2] else ""


def read_history_system(lines: Sequence[str]) -> str:
    """The Debian release that Debian's own images were made of, from their first history line."""
    for line in lines[:3]:
        match = _DEBIAN.search(line[:500])
        if match and match[1] in _DEBIAN_NAMES:
            return f"Debian {_DEBIAN_NAMES[match[1]]}"
    return ""


def find_glibc(system: str) -> str:
    """The glibc version of a distribution's release; empty where it is unknown."""
    name, _, version = system.rpartition(" ")
    fields = version.split(".")
    for count in (2, 1):
        glibc = _GLIBC.get(f"{name} {'.'.join(fields[:count])}")
        if glibc:
            return glibc
    return ""
