# SPDX-License-Identifier: BSD-3-Clause
"""Which files `--from` and FROM may name: the one place that decides it.

A recipe, and more so an image with ONBUILD, is written by others. They name stages and images of registries. Files of
this host, in whatever form, are named on the command line: `--build-context NAME=VALUE` is an image, or a directory.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import replace
from kedge.base.progress import Progress
from kedge.base.reference import Reference, Transport
from kedge.builds.host_reach import HostReach
from kedge.builds.request import BuildRequest
from kedge.builds.step_values import Base, CopyOrigin, Recipe, RecipePlace, refuse_recipe
from kedge.errors import InvalidReference, KedgeError
from kedge.image.workplace import Workplace
from kedge.system.host.private_places import find_homes

_IMAGES = ("docker-image://", "docker://", "oci:", "oci-archive:", "docker-archive:")


def _find_image(value: str) -> str:
    """The reference of the image that a context is; empty if it is a directory."""
    if value.startswith("oci-layout://"):
        return "oci:" + value.removeprefix("oci-layout://")
    return value.removeprefix("docker-image://") if value.startswith(_IMAGES) else ""


def settle_context(base: Base, contexts: Mapping[str, str]) -> Base:
    """A base that is a context, as the image or directory it stands for; any other as it is."""
    if base.agent != "context":
        return base
    value = contexts.get(base.reference, "")
    image = _find_image(value)
    return replace(base, agent="docker" if image else "localimage", reference=image or value.removeprefix("local:"))


def settle_origin(origin: CopyOrigin, contexts: Mapping[str, str], place: RecipePlace) -> Base | Path | None:
    """What `--from` means, where that is no stage: an image, a directory of this host; None for the build context.

    Raises InvalidRecipe for files of this host that the command line does not name.
    """
    if origin.image:
        return _settle_image(origin, place)
    if not origin.name:
        return None
    value = contexts.get(origin.name)
    if value is None:
        raise refuse_recipe(
            place,
            f"there is no stage and no context '{origin.name}'",
            f"name an earlier stage, an image, or give the context: --build-context {origin.name}=DIRECTORY",
        )
    image = _find_image(value)
    found = Base(place, "docker", image) if image else Path(value.removeprefix("local:"))
    if origin.is_trigger and (isinstance(found, Path) or name_reference(found).is_local):
        raise refuse_recipe(
            place,
            f"ONBUILD of the base image copies from the context '{origin.name}', which lies on this host",
            f"copy from it in your own recipe: COPY --from={origin.name} SOURCE DESTINATION",
        )
    return found


def _settle_image(origin: CopyOrigin, place: RecipePlace) -> Base:
    base = Base(place, "docker", origin.image)
    try:
        is_local = name_reference(base).is_local
    except InvalidReference as problem:
        raise refuse_recipe(place, problem.message, problem.hint) from problem
    if is_local:
        who, hint = "ONBUILD of the base image", "use another base image, or write the steps of this one yourself"
        if not origin.is_trigger:
            who, hint = (
                "--from",
                f"give it a name on the command line: --build-context NAME={origin.image}; --from=NAME",
            )
        raise refuse_recipe(place, f"{who} names '{origin.image}', which lies on this host", hint)
    return base


# What the header of a definition file and the FROM of a Dockerfile name, as a reference.

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


# Whose the login of the environment and of --docker-login is in a build: it names no registry, a recipe names many.


def bind_login(workplace: Workplace, request: BuildRequest, recipe: Recipe) -> Workplace:
    """Return the workplace with such a login for the registry that is pushed to, or else for that of the first base."""
    output = request.output
    if output.push and output.tag:
        from kedge.image.local_names import read_name  # late: few builds push

        registries = {read_name(tag).registry for tag in (output.tag, *output.further_tags)}
    else:
        named = (_find_registry(stage.base, request.contexts) for stage in recipe.stages)
        registries = {next(filter(None, named), "")}
    return replace(workplace, login_registries=frozenset(filter(None, registries)))


def _find_registry(base: Base, contexts: Mapping[str, str]) -> str:
    """The registry of a base; empty where it comes from none."""
    if base.agent not in ("docker", "oras", "context"):
        return ""
    try:
        reference = name_reference(settle_context(base, contexts))
    except KedgeError:  # whoever opens it says what is wrong
        return ""
    return "" if reference.is_local else reference.registry or ""


# A base that a recipe names by a path of this host: only a root file system, never a home, and not silently.

_PARTS = (".singularity.d", "bin/sh", "usr/bin/sh", "etc/os-release", "etc/passwd")  # one of them is in any

_AGENTS = ("docker", "localimage", "oci", "oci-archive", "docker-archive")


def name_local_base(base: Base, progress: Progress, reach: HostReach) -> None:
    """Say which directory or file of this host a base is; raises InvalidRecipe for a directory that is no image, and
    with --contained for what lies outside.
    """
    if base.agent not in _AGENTS:
        return
    try:
        reference = name_reference(base)
    except InvalidReference:  # whoever opens it says so
        return
    if not reference.is_local or not reference.path:
        return
    path = os.path.realpath(reference.path)
    if reach.is_contained and not reach.is_own(path):
        raise refuse_recipe(
            base.place,
            f"--contained refuses {path}: {reach.explain_outside()}",
            f"to allow it: --context {shlex.quote(path)}",
        )
    if reference.transport is not Transport.FILE:
        return
    is_directory = os.path.isdir(path)  # noqa: PTH112
    if is_directory and not os.path.isfile(f"{path}/oci-layout"):  # noqa: PTH113
        _require_root(base, path)
    if is_directory or base.agent == "docker":
        progress.note(f"{base.place}: begins with {path} of this host")


def _require_root(base: Base, path: str) -> None:
    place = path.rstrip("/") + "/"
    why = ""
    if any(home.startswith(place) for home in find_homes()) or place == "/":
        why = "your home is in it" if f"{path}/" not in find_homes() else "it is your home"
    elif not any(os.path.lexists(f"{path}/{name}") for name in _PARTS):
        why = f"it has none of {', '.join(_PARTS)}"
    if why:
        raise refuse_recipe(
            base.place,
            f"{base.reference} is not a root file system: {why}",
            "name a sandbox or an image file; a directory of other files is a context: --build-context NAME=DIRECTORY",
        )
