# SPDX-License-Identifier: BSD-3-Clause
"""The header of a definition file as FROM: images of registries as they are, else the image of that distribution."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.builds.convert.notes import NoteTaker
from kedge.builds.definition.definition import Definition

_DEBIAN_FAMILY = "RUN apt-get update && apt-get install -y --no-install-recommends {} && rm -rf /var/lib/apt/lists/*"
_RED_HAT_FAMILY = "RUN yum install -y {} && yum clean all"
_SUSE_FAMILY = "RUN zypper --non-interactive install {} && zypper clean --all"
_UBUNTU_SUITES = ("trusty", "xenial", "bionic", "focal", "jammy", "noble", "plucky", "questing")
_IMAGE = re.compile(r"[A-Za-z0-9./\ue000][A-Za-z0-9._/:@\ue000\ue001-]*")
# kedge takes these in FROM, docker does not
SCHEMES = {
    "library": "library://",
    "oras": "oras://",
    "oci": "oci:",
    "oci-archive": "oci-archive:",
    "docker-archive": "docker-archive:",
    "host": "host:",
}


def write_from(stage: Definition, notes: NoteTaker) -> tuple[list[str], str, list[str]]:
    """Lines above FROM, the image, and lines below it."""
    above, image, below = _choose_image(stage, notes)
    if _IMAGE.fullmatch(image):
        return above, image, below
    return notes.add(stage.line, f"'{image}' is not the name of an image"), "scratch", []


def _choose_image(stage: Definition, notes: NoteTaker) -> tuple[list[str], str, list[str]]:
    header = stage.header
    agent = header.get("bootstrap", "").lower()
    reference = header.get("from", "")
    line = stage.header_lines.get("from") or stage.header_lines.get("bootstrap") or stage.line
    if agent in ("docker", "docker-daemon"):
        return [], _name_image(header), []
    if agent in ("scratch", "busybox"):
        return [], agent, []
    if agent == "debootstrap":
        suite = header.get("osversion", "stable")
        family = "ubuntu" if suite in _UBUNTU_SUITES or "ubuntu" in header.get("mirrorurl", "") else "debian"
        return _install(f"{family}:{suite}", header, _DEBIAN_FAMILY, notes, line)
    if agent in ("yum", "dnf"):
        version = re.split(r"[^0-9]", header.get("osversion", ""))[0] or "9"
        name = f"centos:{version}" if version in ("5", "6", "7") else f"rockylinux:{version}"
        return _install(name, header, _RED_HAT_FAMILY, notes, line)
    if agent == "zypper":
        return _install(f"opensuse/leap:{header.get('osversion', '15')}", header, _SUSE_FAMILY, notes, line)
    if agent == "arch":
        return _install("archlinux", header, "RUN pacman -Sy --noconfirm {}", notes, line)
    if agent == "localimage":
        reference = reference.removeprefix("file://")
        image = reference if reference.startswith(("/", "./", "../")) else f"./{reference}"
    elif agent in SCHEMES:
        image = SCHEMES[agent] + reference.removeprefix(SCHEMES[agent])
    else:
        advice = "Singularity Hub is closed" if agent == "shub" else "no image has an equal of it"
        return notes.add(line, f"FROM cannot take 'Bootstrap: {agent}': {advice}"), "scratch", []
    return notes.add(line, f"docker does not take FROM {image}, only kedge does: push it to a registry"), image, []


def _name_image(values: Mapping[str, str]) -> str:
    name = values.get("from", "").removeprefix("docker://")
    parts = [values.get("registry", ""), values.get("namespace", ""), name]
    return "/".join(part.strip("/") for part in parts if part)


def _install(
    image: str, values: Mapping[str, str], command: str, notes: NoteTaker, line: int
) -> tuple[list[str], str, list[str]]:
    above = notes.add(line, f"the base comes from a registry: '{image}' instead of Bootstrap: {values['bootstrap']}")
    packages = " ".join(word for word in values.get("include", "").split() if word not in ("yum", "dnf", "zypper"))
    return above, image, [command.format(packages)] if packages else []
