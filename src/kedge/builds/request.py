# SPDX-License-Identifier: BSD-3-Clause
"""What a build is asked for, what it returns, and whom it tells about its steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kedge.base.frozen import NOTHING, JsonValue, frozen
from kedge.base.image_format import ImageFormat


class NotMadeError(Exception):
    """What has to be made or fetched whole before anything is known of it, and must not be: a dry run."""


@frozen
class HostItem(JsonValue):
    """A place of this host that a recipe takes although it lies outside, or that was left out."""

    section: str  # files, setup or pre
    line: int  # of the recipe; 0 where it is not known
    source: str  # as the recipe has it
    path: str
    state: str = "taken"  # taken, or left out


@frozen
class BuildSecret:
    """A secret for `RUN --mount=type=secret`: a file, or a variable of the caller."""

    id: str
    path: Path | None = None
    variable: str = ""


@frozen
class BuildOutput:
    """Where the result goes."""

    path: Path | None = None  # None: the result stays in the cache, and is pushed if a tag says so
    form: ImageFormat = ImageFormat.SIF
    tag: str = ""  # -t: the reference that it is pushed to, or the name inside an archive
    further_tags: tuple[str, ...] = ()  # more of -t
    push: bool = False
    force: bool = False


@frozen
class BuildRequest:
    """One build."""

    spec: str  # a recipe's path, '-' for one whose text is given, or an image that is converted
    text: bytes | None = None  # the recipe itself, where `spec` is '-'
    output: BuildOutput = BuildOutput()
    context: Path | None = None  # default: the current directory
    contexts: Mapping[str, str] = NOTHING  # --build-context NAME=PATH
    allowed: tuple[Path, ...] = ()  # --context: what %files and %setup may take although it is private or outside
    is_contained: bool = False  # --contained: nothing from outside of the current directory and the recipe's
    arguments: Mapping[str, str] = NOTHING  # --build-arg, after --build-arg-file
    warns_unused: bool = False  # --warn-unused-build-args
    secrets: tuple[BuildSecret, ...] = ()
    ssh: tuple[str, ...] = ()
    target: str = ""
    platform: str = ""
    sections: tuple[str, ...] = ("all",)
    updates: bool = False  # --update: the last stage begins with the sandbox that is the output
    labels: Mapping[str, str] = NOTHING
    use_cache: bool = True
    pull: str = "auto"  # as for exec: when to ask the registry for bases
    tests: bool = True
    binds: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # further options of exec for every step: --nv
    uses_host: bool = False  # --setup-on-host: %pre and %setup as Apptainer runs them
    protect: bool = False
    lock: Path | None = None
    shell_on_error: bool = False
    epoch: int | None = None  # SOURCE_DATE_EPOCH
    log: Path | None = None


@frozen
class StepLabel(JsonValue):
    """Which step: what a display shows of it."""

    stage: str  # its name, or stage-NUMBER; empty where there is one stage without a name
    number: int
    total: int
    text: str


@frozen
class StepOutcome(JsonValue):
    """How a step ended."""

    label: StepLabel
    seconds: float
    state: str  # done, cached, failed or cancelled
    size: int = 0  # of its layer


class BuildDisplay(Protocol):
    """Told about steps while they run; stages run side by side, so calls may come from several threads."""

    def begin(self, label: StepLabel) -> None:
        """A step begins."""
        ...

    def output(self, label: StepLabel, data: bytes) -> None:
        """A piece of what its program prints, as it comes."""
        ...

    def end(self, outcome: StepOutcome) -> None:
        """A step has ended."""
        ...


class SilentSteps:
    """Shows nothing: the display of the Python interface."""

    def begin(self, label: StepLabel) -> None:
        """Drop the beginning of a step."""

    def output(self, label: StepLabel, data: bytes) -> None:
        """Drop a step's output."""

    def end(self, outcome: StepOutcome) -> None:
        """Drop a step's outcome."""


@frozen
class BuildResult(JsonValue):
    """What was built."""

    reference: str  # the tag, or the output's path
    digest: str  # of the manifest
    path: Path | None
    size: int
    seconds: float
    steps: tuple[StepOutcome, ...]
    log: Path | None = None
    warnings: tuple[str, ...] = ()
    host: tuple[HostItem, ...] = ()  # what %files and %setup took from elsewhere on this host, and what was left out
