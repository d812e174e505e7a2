# SPDX-License-Identifier: BSD-3-Clause
"""What the header of a definition file and the FROM of a Dockerfile name, as a reference."""

from __future__ import annotations

from kedge.base.frozen import replace
from kedge.base.reference import Reference, Transport
from kedge.builds.step_values import Base, refuse_recipe
from kedge.errors import InvalidReference

_PREFIXES = {
    "docker": "docker://",
    "oras": "oras://",
    "library": "library://",
    "oci": "oci:",
    "oci-archive": "oci-archive:",
    "docker-archive": "docker-archive:",
    "docker-daemon": "docker-daemon:",
    "host": "host:",
}


def name_reference(base: Base) -> Reference:
    """The reference of a base. Raises InvalidReference, or InvalidRecipe for what a recipe may not name."""
    reference = _find_reference(base)
    for program in reference.programs:
        if "/" in program:  # a recipe comes with files of its own, and must not have them taken for the host's
            raise refuse_recipe(
                base.place,
                f"'host:{program}' names a file; in a recipe host: takes programs of PATH only",
                f"pack it first: kedge pull NAME.sif host:{program}; then begin with 'Bootstrap: localimage'",
            )
    return reference


def _find_reference(base: Base) -> Reference:
    agent, text = base.agent, base.reference.strip()
    if agent == "shub":
        raise refuse_recipe(
            base.place,
            "Singularity Hub (shub) was closed in 2021 and serves no images",
            "look for the image on Docker Hub or in a library, and use 'Bootstrap: docker' or 'Bootstrap: library'",
        )
    if not text:
        raise refuse_recipe(
            base.place, f"'Bootstrap: {agent}' needs a 'From:' line", "add a line such as: From: ubuntu:24.04"
        )
    if agent == "localimage":
        return Reference(Transport.FILE, path=text.removeprefix("file://"))
    prefix = _PREFIXES.get(agent)
    if prefix is None:
        raise refuse_recipe(
            base.place,
            f"'Bootstrap: {agent}' is unknown",
            f"use one of: {', '.join((*_PREFIXES, 'localimage', 'scratch'))}",
        )
    if agent == "docker":
        return _name_docker(base, text)
    reference = Reference.parse(text if text.startswith(prefix) else prefix + text)
    server = base.read_field("library").text if agent == "library" else ""
    if server and not reference.registry:
        return replace(reference, registry=server.partition("://")[2].strip("/") or server.strip("/"))
    return reference


def _name_docker(base: Base, text: str) -> Reference:
    """An image in a registry; a scheme in the text decides, which kedge takes in FROM as well."""
    if text.startswith(("/", "./", "../")) and not text.startswith("//"):
        return Reference(Transport.FILE, path=text)
    is_registry = text.startswith("host:") and "/" in text
    for prefix in (*_PREFIXES.values(), "http://", "https://"):
        if text.startswith(prefix) and prefix != "docker://" and not is_registry:
            return Reference.parse(text)
    text = text.removeprefix("docker://").removeprefix("//")
    registry, namespace = base.read_field("registry").text, base.read_field("namespace").text
    words = [part.strip("/") for part in (registry.removeprefix("https://"), namespace) if part]
    reference = Reference.parse("docker://" + "/".join((*words, text)))
    if reference.transport is not Transport.DOCKER:
        raise InvalidReference(f"'{text}' is no image of a registry")
    return reference
