# SPDX-License-Identifier: BSD-3-Clause
"""`kedge build`: images from definition files and Dockerfiles, with Apptainer's words or docker's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.setting_values import PULL_POLICIES
from kedge.cli.build_display import PROGRESS_MODES
from kedge.cli.build_steps import FailedStep, name_step
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_dry_run, add_settings, add_verify
from kedge.cli.pull import FORMS
from kedge.cli.redaction import escape_controls, escape_line
from kedge.container.options import list_switches
from kedge.errors import OutputExists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kedge.builds.preview import PreviewedStage
    from kedge.builds.request import BuildRequest, BuildResult
    from kedge.cli.build_steps import StepBoard
    from kedge.cli.console import Console
    from kedge.errors import KedgeError
    from kedge.image.workplace import Workplace
    from kedge.system.settings import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Apptainer's options and docker's, and kedge's own."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="OUTPUT SPEC | -t NAME CONTEXT",
        help="OUTPUT is a file name or FORMAT:PATH[:TAG]; SPEC is a definition file, a Dockerfile, '-' for standard"
        " input, or an image; CONTEXT is the directory that COPY takes files from",
    )
    _add_recipe_options(parser)
    _add_output_options(parser)
    _add_step_options(parser)
    group = parser.add_argument_group("registries and cache")
    add_login(group)
    add_settings(
        group, "architecture", "compression", "threads", "disable_cache", "cache_directory", "temporary_directory",
        "node_directory", "no_https", "library_url", "ca_bundle", "download_connections", "retries", "stall_timeout",
        "minimum_speed", "cache_limit", "link_mode",
    )  # fmt: skip
    add_dry_run(parser)


def _add_recipe_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("recipe")
    group.add_argument("-f", "--file", metavar="FILE", default="", help="recipe (default: Dockerfile in CONTEXT)")
    group.add_argument("--target", metavar="STAGE", default="", help="build up to this stage")
    group.add_argument(
        "--build-arg", metavar="NAME=VALUE", action="append", default=[], help="value of an ARG or of {{ NAME }}"
    )
    group.add_argument(
        "--build-arg-file",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="read build arguments from a file, one NAME=VALUE per line",
    )
    group.add_argument(
        "--warn-unused-build-args",
        action="store_true",
        help="warn of build arguments that a definition file does not use, and do not fail",
    )
    group.add_argument(
        "--section",
        metavar="LIST",
        action="append",
        default=[],
        help="run these sections of a definition file only, such as post,environment; none: the base alone",
    )
    group.add_argument(
        "--build-context", metavar="NAME=PATH", action="append", default=[], help="further context for COPY --from=NAME"
    )
    group.add_argument(
        "--context",
        metavar="PATH",
        type=Path,
        action="append",
        default=[],
        help="let %%files and %%setup take files from here: also secrets, such as ~/.ssh, if PATH is such a place",
    )
    group.add_argument(
        "--contained",
        action="store_true",
        help="refuse files of this host outside of the current directory and the recipe's: for recipes of strangers",
    )
    group.add_argument(
        "--no-contained", action="store_false", dest="contained", help="undo --contained: name such files (default)"
    )
    group.add_argument("--platform", metavar="OS/ARCH", default="", help="platform of the image, such as linux/arm64")
    group.add_argument("--lock", action="store_true", help="write the digests of bases to RECIPE.lock, and use them")
    group.add_argument("--lock-file", metavar="FILE", help="the same with another file")


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "-t", "--tag", metavar="NAME", action="append", default=[], help="name of the image, and where --push sends it"
    )
    group.add_argument("--push", action="store_true", help="push the image to the registry of its name")
    group.add_argument(
        "-o",
        "--output",
        metavar="WHERE",
        action="append",
        default=[],
        help="a file, or type=TYPE,dest=PATH as docker's (types: local, oci, docker, registry, and the formats)",
    )
    group.add_argument("--format", choices=FORMS, help="output format (default: as OUTPUT says, else sif)")
    group.add_argument(
        "-s", "--sandbox", action="store_const", const="sandbox", dest="format", help="write a directory"
    )
    group.add_argument(
        "-u", "--update", action="store_true", help="run the sections in the sandbox OUTPUT, not in the recipe's base"
    )
    group.add_argument("-F", "--force", action="store_true", help="replace an existing output")
    group.add_argument("--if-missing", action="store_true", help="do nothing if the output exists")
    group.add_argument("--iidfile", metavar="FILE", type=Path, help=argparse.SUPPRESS)  # docker's
    group.add_argument("--metadata-file", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    group.add_argument("--label", metavar="NAME=VALUE", action="append", default=[], help="add a label")
    add_verify(group)
    group.add_argument("--fix-perms", action="store_true", help="give the owner rwX on everything in the image")


def _add_step_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("steps")
    group.add_argument("--no-cache", action="store_true", help="run every step again")
    group.add_argument(
        "--pull",
        action="store_const",
        const="always",
        help=f"ask the registry for newer bases; or --pull=POLICY: {', '.join(PULL_POLICIES)} (default: auto)",
    )
    for policy in PULL_POLICIES:  # as names of options: a value after a blank would be the context
        group.add_argument(f"--pull={policy}", action="store_const", const=policy, dest="pull", help=argparse.SUPPRESS)
    group.add_argument("-T", "--notest", action="store_true", help="do not run %%test")
    group.add_argument(
        "--secret",
        metavar="id=NAME,src=FILE",
        action="append",
        default=[],
        help="secret for RUN --mount=type=secret; id=NAME,env=VARIABLE takes a variable",
    )
    group.add_argument(
        "--ssh",
        metavar="ID[=SOCKET]",
        action="append",
        default=[],
        help="your SSH for RUN --mount=type=ssh and ADD git@…",
    )
    group.add_argument("-B", "--bind", metavar="SRC[:DST[:OPT]]", action="append", default=[], help="bind in all steps")
    group.add_argument("--mount", metavar="SPEC", action="append", default=[], help="mount in all steps")
    for switch in list_switches():
        group.add_argument(f"--{switch.name}", dest=switch.attribute, action="store_true", help=switch.help)
    group.add_argument("--fakeroot", action="store_true", help="accepted; steps always appear to run as root")
    group.add_argument("--ignore-subuid", action="store_true", help="steps without the ids of /etc/subuid")
    group.add_argument(
        "--setup-on-host",
        action="store_true",
        help="let %%pre and %%setup change this host, as Apptainer does (default: the image only)",
    )
    group.add_argument(
        "--protect", action="store_true", help="fail if a step replaces a Python package of the base image"
    )
    group.add_argument("--shell-on-error", action="store_true", help="open a shell in the step that failed")
    group.add_argument("--progress", choices=PROGRESS_MODES, default="auto", help="how to show steps (default: auto)")
    group.add_argument("--log", metavar="FILE", type=Path, help="write the output of all steps to this file")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Build, and report the result."""
    from kedge.cli.build_display import make_display
    from kedge.cli.build_words import read_request
    from kedge.image.workplace import Workplace

    request = read_request(arguments, console)
    display = make_display(console, arguments.progress)
    access = read_access(arguments, console, None) if arguments.docker_login or arguments.authfile else None
    workplace = Workplace(
        _choose_settings(request, console), console.progress, access, arguments.fix_perms, arguments.verify
    )
    if console.dry_run:
        return _preview(request, workplace, console)
    if arguments.if_missing and _is_there(request, console):
        return 0
    _check_files(arguments)
    try:
        result = _build(request, workplace, console, display)
    except OutputExists:  # another job that builds the same was faster
        if arguments.if_missing and _is_there(request, console):
            return 0
        raise
    _write_files(arguments, result)
    if console.json:
        console.print_json(result.as_dict())
    else:
        _show_result(result, console)
    return 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse files of others before anything is built; a build writes its own anew."""
    from kedge.system.files import refuse_others

    begin = {"iidfile": rb"\Asha256:", "metadata_file": rb'"containerimage\.digest"', "log": rb"\A\[[^\n]*\d/\d+\] "}
    for name, pattern in begin.items():
        path = getattr(arguments, name)
        if path is not None:
            refuse_others(path, pattern)


def _write_files(arguments: argparse.Namespace, result: BuildResult) -> None:
    """The files that scripts read after `docker build`: the digest alone, and all that is known of the result."""
    import json

    from kedge.system.files import write_atomically

    if arguments.iidfile is not None:
        write_atomically(arguments.iidfile, result.digest.encode(), mode=0o644)
    if arguments.metadata_file is not None:
        keys = {"containerimage.digest": result.digest, "image.name": result.reference}
        text = json.dumps({**keys, "kedge": result.as_dict()}, indent=2)
        write_atomically(arguments.metadata_file, text.encode(), mode=0o644)


def _is_there(request: BuildRequest, console: Console) -> bool:
    """Whether the output exists, which is said."""
    path = request.output.path
    if path is None or not path.exists():
        return False
    if console.json:
        console.print_json({"reference": str(path), "path": str(path), "steps": []})
    console.progress.note(f"{path} exists already")
    return True


def _choose_settings(request: BuildRequest, console: Console) -> Settings:
    """The settings; --platform says the architecture of the bases, too."""
    from kedge.base.frozen import replace

    return replace(console.settings, architecture=request.platform) if request.platform else console.settings


def _preview(request: BuildRequest, workplace: Workplace, console: Console) -> int:
    """Show what would be done."""
    from kedge.builds.preview import preview
    from kedge.cli.build_steps import StepBoard
    from kedge.cli.redaction import escape_line

    shown = preview(request, workplace, StepBoard())
    if console.json:
        console.print_json(shown.as_dict())
        return 0
    console.print(f"recipe   {shown.recipe} ({shown.kind})")
    if shown.context:
        console.print(f"context  {shown.context}")
    for item in shown.host:
        console.print(f"host     {escape_line(item.path)} ({item.state})")
    for stage in shown.stages:
        _show_previewed(stage, console)
    console.print(f"output   {shown.output}")
    for warning in shown.warnings:
        console.progress.warn(warning)
    return 0


def _show_previewed(stage: PreviewedStage, console: Console) -> None:
    from kedge.base.size import format_size
    from kedge.cli.redaction import escape_line

    facts = [stage.digest[:19]] if stage.digest else []
    if stage.size:
        facts.append(format_size(stage.size))
        facts.append(f"{format_size(stage.missing)} to download" if stage.missing else "cached")
    known = f" ({', '.join(facts)})" if facts else ""
    console.print(f"stage    {escape_line(stage.name or 'only one')}, from {escape_line(stage.base)}{known}")
    for step in stage.steps:
        state = console.paint(f"{step.state:<6}", "dim" if step.state == "cached" else "")
        size = f" ({format_size(step.size)})" if step.size else ""
        console.print(f"  {state} {step.number}/{len(stage.steps)} {escape_line(step.text)}{size}")


def _build(request: BuildRequest, workplace: Workplace, console: Console, display: StepBoard) -> BuildResult:
    """Build with the display; what failed is shown before the error is."""
    from kedge.builds.build import build
    from kedge.errors import KedgeError

    try:
        return build(request, workplace, display)
    except KedgeError as problem:
        display.close()
        if not console.json and not console.quiet:
            _show_failure(problem, request, console, display)
            for shown in ("output", "step"):
                problem.context.pop(shown, None)
        raise
    finally:
        display.close()


def _show_failure(problem: KedgeError, request: BuildRequest, console: Console, display: StepBoard) -> None:
    """The end of the failed step's output and its lines in the recipe; the error follows."""
    from kedge.cli.console import paint_text
    from kedge.cli.progress import leave_plain

    paint = paint_text if console.colours_notes else leave_plain
    if display.failures:
        lines = describe_failure(display.failures[0], problem, request, paint)
    else:
        lines = describe_problem(problem, request, paint)
    for line in lines:
        console.write_note(line)


def _show_result(result: BuildResult, console: Console) -> None:
    from kedge.base.size import format_size
    from kedge.cli.progress import format_seconds

    for warning in result.warnings:
        console.progress.warn(warning)
    cached = sum(step.state == "cached" for step in result.steps)
    count = len(result.steps)
    steps = f"{count} step{'s' * (count > 1)}, {cached} cached" if count else "no steps"
    facts = [format_size(result.size), steps, format_seconds(result.seconds)]
    console.progress.note(f"{result.path or result.reference or result.digest} ({', '.join(facts)})")
    if result.log is not None:
        console.progress.detail(f"output of all steps: {result.log}")
    if console.quiet:
        console.print(result.digest)  # as docker build -q does


# A step that failed, for people: the end of its output, and the lines of the recipe around it with a mark.

_AROUND = 2  # lines of the recipe before and after the one that failed
_SECTION = 12  # lines of a section of a definition file
_LONGEST_INSTRUCTION = 30  # lines of it that are shown
_WIDEST = 500  # characters of a line
_LARGEST = 64 * 1024 * 1024


def describe_failure(
    failed: FailedStep, problem: KedgeError, request: BuildRequest, paint: Callable[[str, str], str]
) -> Iterator[str]:
    """The lines to show before the error itself."""
    outcome = failed.outcome
    head = f"{name_step(outcome.label)} {escape_line(outcome.label.text)}"
    yield f"{paint('failed', 'bad')} after {outcome.seconds:.1f}s: {head}"
    for line in failed.lines:
        yield f"  {paint('|', 'dim')} {line}".rstrip()
    yield from show_excerpt(problem.context, request, paint)


def describe_problem(problem: KedgeError, request: BuildRequest, paint: Callable[[str, str], str]) -> Iterator[str]:
    """Describe what failed outside of steps, such as a program that makes a base."""
    for line in problem.context.get("output", "").splitlines():
        yield f"  {paint('|', 'dim')} {_show_line(line)}".rstrip()
    yield from show_excerpt(problem.context, request, paint)


def show_excerpt(context: dict[str, str], request: BuildRequest, paint: Callable[[str, str], str]) -> Iterator[str]:
    """`Dockerfile:12` and the lines around it; nothing where the error has no place in the recipe."""
    file, number = context.get("file", ""), context.get("line", "")
    if not file or not number.isdigit():
        return
    lines = _read_recipe(file, request)
    line = int(number)
    last = _find_end(lines, line)
    if not 1 <= line <= len(lines):
        return
    yield f"{escape_line(file)}:{line}"
    for current in range(max(1, line - _AROUND), _find_last_shown(lines, line, last) + 1):
        mark = ">" if line <= current <= last else " "
        shown = f"{mark} {current:>4} | {_show_line(lines[current - 1])}".rstrip()
        yield paint(shown, "bad") if mark == ">" else shown


def _read_recipe(file: str, request: BuildRequest) -> list[str]:
    """The recipe's lines; none where it cannot be read any more."""
    if request.text is not None:
        return request.text.decode("utf-8", "replace").splitlines()
    for path in (Path(request.spec), Path(file)):
        if path.name == Path(file).name:
            try:
                with path.open("rb") as stream:
                    return stream.read(_LARGEST).decode("utf-8", "replace").splitlines()
            except OSError:
                continue
    return []


def _find_last_shown(lines: list[str], line: int, last: int) -> int:
    """Where the excerpt ends; of a section, whose heading is the place, some of its lines are shown."""
    if not lines[line - 1].lstrip().startswith("%"):
        return min(len(lines), last + _AROUND, line + _LONGEST_INSTRUCTION)
    end = line
    while end < min(len(lines), line + _SECTION) and not lines[end].startswith("%"):
        end += 1
    while end > line and not lines[end - 1].strip():
        end -= 1
    return end


def _show_line(line: str) -> str:
    text = line[: _WIDEST + 1].expandtabs(4)
    return escape_controls(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…")


def _find_end(lines: list[str], line: int) -> int:
    """The last line of an instruction that goes on behind a backslash."""
    while line < len(lines) and lines[line - 1].rstrip().endswith("\\"):
        line += 1
    return line
