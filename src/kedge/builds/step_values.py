# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a build as values, the same for definition files and Dockerfiles.

A parser reads a recipe into stages. The steps of a stage are known in detail when its base is: `ENV PATH=$PATH:x`
needs the base's PATH, and a base may add steps of its own (ONBUILD). So a stage is planned late, by `Stage.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kedge.base.frozen import NOTHING, frozen
from kedge.errors import InvalidRecipe, KedgeError
from kedge.system.outside import Outside

SCRIPT_PATH = "\0"  # in the words of a HostScriptStep: the path of its script, wherever that was put


@frozen
class RecipePlace:
    """Where something stands in a recipe; lines and columns begin with 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def refuse_recipe(place: RecipePlace, message: str, hint: str | None = None) -> InvalidRecipe:
    """The error for a mistake in a recipe: the place first, as compilers say it."""
    return InvalidRecipe(f"{place}: {message}", context={"file": place.file, "line": str(place.line)}, hint=hint)


class ValuesTooLong(InvalidRecipe):
    """Variables put more text into a recipe than any needs."""

    remedy = "use fewer or shorter values; long texts belong into files"

    def __init__(self, place: RecipePlace, problem: str) -> None:
        context = {"file": place.file, "line": str(place.line)}
        super().__init__(f"{place}: {problem}", context=context, hint=self.remedy)
        self.place, self.problem = place, problem


def name_place(problem: KedgeError, place: RecipePlace) -> None:
    """Put the place first in an error of the step that stands there, unless it has one."""
    if "line" not in problem.context:
        problem.message = f"{place}: {problem.message}"
        problem.args = (problem.message,)
        problem.context.update(file=place.file, line=str(place.line))


@frozen
class CopyOrigin:
    """Where files are copied from: an earlier stage, another image, or, if neither is named, the build context."""

    stage: int | None = None  # its index
    image: str = ""
    name: str = ""  # of a context given with --build-context
    is_trigger: bool = False  # ONBUILD of a base image names it


@frozen
class StepMount:
    """What `RUN --mount` asks for."""

    kind: str  # bind, cache, tmpfs, secret or ssh
    target: str = ""
    source: str = ""  # a path in the origin; for secrets and ssh unused
    origin: CopyOrigin = CopyOrigin()
    id: str = ""
    is_required: bool = False
    is_readonly: bool = False
    mode: int | None = None
    uid: int = 0
    gid: int = 0
    size: int | None = None  # bytes, of a tmpfs
    sharing: str = "shared"  # of a cache: shared, private or locked
    variable: str = ""  # where a secret goes instead of a file


@frozen
class ConfigStep:
    """Changes the config of the image and no file: ENV, LABEL, CMD, USER and the like."""

    place: RecipePlace
    text: str  # the instruction as people write it, on one line


@frozen
class InlineFile:
    """A file whose content stands in the recipe."""

    name: str
    data: bytes


@frozen
class RunStep:
    """A program in the image so far, which may change all of it.

    `script` is a file, name = its absolute path, that is there (mode 0755) while the program runs; it never gets into
    the layer. %post is such a file, because a program that reads standard input must not eat the rest of the section.
    """

    place: RecipePlace
    text: str
    argv: tuple[str, ...]
    environment: tuple[
        tuple[str, str], ...
    ] = ()  # what the recipe and its base say, sorted by name; build arguments too
    directory: str = "/"
    user: str = ""
    mounts: tuple[StepMount, ...] = ()
    network: str = ""  # default, none or host
    stdin: bytes = b""
    section: str = "run"  # run, post, appinstall or test; what changes files in a test is thrown away
    script: InlineFile | None = None
    proxies: tuple[tuple[str, str], ...] = ()  # how this host reaches the network; `environment` goes before them


@frozen
class CopyStep:
    """Files into the image: COPY, ADD, %files."""

    place: RecipePlace
    text: str
    sources: tuple[str, ...]  # patterns in the origin; addresses too where `is_addition`
    destination: str  # absolute; a slash at its end means a directory
    origin: CopyOrigin = CopyOrigin()
    inline: tuple[InlineFile, ...] = ()
    owner: str = ""  # USER[:GROUP], names or numbers
    mode: str = ""  # octal, or as chmod takes it
    is_link: bool = False  # --link: the destination's links are not followed
    keeps_parents: bool = False  # --parents
    excluded: tuple[str, ...] = ()  # --exclude
    is_addition: bool = False  # ADD: addresses are fetched, archives of the context are unpacked
    unpacks: bool | None = None  # --unpack
    checksum: str = ""  # --checksum, of an address
    keeps_git: bool = False  # --keep-git-dir
    is_definition: bool = False  # %files: the rules of cp, and links of the host are followed


@frozen
class DirectoryStep:
    """A directory that is made where it is missing: WORKDIR."""

    place: RecipePlace
    text: str
    path: str
    user: str = ""


@frozen
class HostScriptStep:
    """A script that runs with the programs of this host and may change the image only: %pre and %setup."""

    place: RecipePlace
    text: str
    section: str  # pre or setup
    argv: tuple[str, ...]  # whoever runs it puts the path of the script in place of SCRIPT_PATH
    script: bytes = b""


@frozen
class TreeFile:
    """A file that a recipe puts into the image under `/.singularity.d` or `/scif`.

    What it becomes may depend on the file that is there; `builds/definition/settle_files.py` says how.
    """

    path: str
    data: bytes
    mode: int = 0o644
    way: str = "write"  # write, keep, append, labels or history


@frozen
class WriteFilesStep:
    """What a definition file says about its image: environment, run script, labels, help, tests, apps."""

    place: RecipePlace
    text: str
    files: tuple[TreeFile, ...]
    directories: tuple[str, ...] = ()  # made, mode 0755, where there is nothing of that name
    links: tuple[tuple[str, str], ...] = ()  # name, target; another link is replaced, anything else is left alone


Step = ConfigStep | RunStep | CopyStep | DirectoryStep | HostScriptStep | WriteFilesStep


@frozen
class Base:
    """What a stage begins with."""

    place: RecipePlace
    agent: str  # as Bootstrap: has it: docker, library, localimage, scratch, ...; `stage`, `context`
    reference: str = ""  # as the recipe has it, build arguments put in
    stage: int | None = None
    platform: str = ""
    fields: Mapping[str, Outside] = NOTHING  # other keys of a definition's header, in lower case

    def read_field(self, name: str) -> Outside:
        """What the header says there; empty where it says nothing."""
        return self.fields.get(name.lower(), Outside(""))


@frozen
class StagePlan:
    """The steps of a stage whose base is known, and the config of the result."""

    steps: tuple[Step, ...]
    section: Mapping[str, Any]  # the `config` object of an OCI image config
    warnings: tuple[str, ...] = ()
    author: str = ""  # MAINTAINER, which stands outside of the section
    is_decorated: bool = False  # the steps write `/.singularity.d` themselves: whoever writes the image adds none


class Stage(Protocol):
    """A part of a recipe with a base of its own."""

    @property
    def index(self) -> int:
        """Return the stage's number, from 0."""
        ...

    @property
    def name(self) -> str:
        """What other stages call it; empty where it has no name."""
        ...

    @property
    def base(self) -> Base:
        """Return what the stage begins with."""
        ...

    @property
    def needs(self) -> tuple[int, ...]:
        """The stages it is based on or copies from, in ascending order."""
        ...

    def plan(self, section: Mapping[str, Any]) -> StagePlan:
        """Return the stage's steps, for a base with this `config` object."""
        ...


def name_stage(stage: Stage) -> str:
    """What people read and write for a stage, everywhere: its name, else `stage-NUMBER` as BuildKit shows it."""
    return stage.name or f"stage-{stage.index}"


def number_stage(text: str) -> int | None:
    """The number that `1` or `stage-1` names; None for other text."""
    digits = text.lower().removeprefix("stage-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


@frozen
class BuildArguments:
    """What the user gives to a recipe, and the platforms a Dockerfile may ask for."""

    values: Mapping[str, str] = NOTHING  # --build-arg, files first
    build_platform: str = ""  # linux/arm64: where the build runs
    target_platform: str = ""
    environment: Mapping[str, str] = NOTHING  # the proxies of the host
    target: str = ""  # --target: the name or number of the last stage that is wanted
    keeps_undefined: bool = False  # for who shows a recipe: `{{ name }}` without a value stays, with a warning
    sections: tuple[str, ...] = ("all",)  # --section: those of a definition file that are wanted; "none" for none
    epoch: int | None = None  # SOURCE_DATE_EPOCH of the build, which a Dockerfile may ask for with ARG
    contexts: tuple[str, ...] = ()  # names given with --build-context; a base or an origin may be one of them
    updated: str = ""  # --update: the sandbox that the last stage of a definition file begins with, not its own base


@frozen
class Recipe:
    """A recipe that was read: stages in their order, the last one wanted."""

    kind: str  # dockerfile or definition
    name: str  # of its file
    text: str
    stages: tuple[Stage, ...]
    warnings: tuple[str, ...] = ()
    unused_arguments: tuple[str, ...] = ()  # names given with --build-arg that nothing asks for
    labels: Mapping[str, str] = NOTHING

    @property
    def target(self) -> Stage:
        """The stage that is the result."""
        return self.stages[-1]
