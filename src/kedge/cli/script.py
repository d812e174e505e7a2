# SPDX-License-Identifier: BSD-3-Clause
"""`kedge script`: batch scripts that users already have, checked and translated.

`check` ends with 0 when nothing would keep the job from running, with 1 when something would.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_settings
from kedge.cli.redaction import escape_controls
from kedge.model.job_fields import FIELDS
from kedge.ops.jobs.script import TARGETS

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.ops.jobs.script import CheckedScript, ConvertedScript

_FILE = "a script for sbatch or qsub; '-' for standard input"
_NO_DIRECTIVES = "the script has no directives (#SBATCH, #PBS or #$ lines): kedge checked its commands only"
_ASKED = ("size", "queue")  # the groups of options that a site may want, and the script lack


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    check = commands.add_parser("check", help="say what will be ignored, refused, or go wrong (status 1: refused)")
    check.add_argument("file", metavar="FILE", nargs="+", help=_FILE)
    add_settings(check, "site")
    convert = commands.add_parser("convert", help="turn it into a kedge.toml, or a script for another scheduler")
    convert.add_argument("file", metavar="FILE", help=_FILE)
    convert.add_argument("--to", metavar="WHAT", choices=TARGETS, default="toml", help=f"{', '.join(TARGETS)} (toml)")
    convert.add_argument("-o", "--output", metavar="OUT", help="write it there (standard output)")
    convert.add_argument("--force", action="store_true", help="replace a file that is there")
    add_settings(convert, "site")
    add_job_options(convert, without=[field.name for field in FIELDS if field.group not in _ASKED])


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    return _check(arguments, console) if arguments.command == "check" else _convert(arguments, console)


def _check(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.ops.jobs.script import check_file

    checked = [check_file(name, console.settings, console.environ) for name in arguments.file]
    if console.json:
        told = [each.as_dict() for each in checked]
        console.print_json(told[0] if len(told) == 1 else told)
    for each in checked:
        _show_checked(each, console)
    return int(any(each.has_errors for each in checked))


def _show_checked(checked: CheckedScript, console: Console) -> None:
    script, name = checked.script, escape_controls(checked.name)
    scheduler = script.language.facts
    where = f", site {checked.site.name} ({checked.site_reason})" if checked.site else ""
    if script.scheduler != "local":
        console.progress.note(f"{name}: for {scheduler.title}, because {script.reason}{where}")
    for each in checked.findings:
        message = escape_controls(each.message)
        console.print(f"{name}:{each.line}: {each.severity.value}: {message} ({each.rule})")
        console.print(f"    {escape_controls(each.remedy)}")
    if script.directives and not script.live:
        read = f"{scheduler.title} reads none of its {scheduler.prefix} lines"
        console.progress.note(f"{name}: {read}: kedge checked its commands only")
    elif not script.live:
        console.progress.note(f"{name}: {_NO_DIRECTIVES}")
    elif not checked.findings:
        console.progress.note(f"{name}: nothing is wrong with it, as far as can be seen")


def _convert(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.ops.jobs.script import convert_file, write_text

    converted = convert_file(
        arguments.file,
        arguments.to,
        console.settings,
        console.environ,
        lambda job: read_job_options(arguments, job, needs_command=False),
    )
    if arguments.output and arguments.output != "-":
        path = Path(arguments.output)
        write_text(path, converted.text, is_script=arguments.to != "toml", force=arguments.force)
        console.progress.note(f"{path} is written")
    if console.json:
        console.print_json(converted.as_dict())
    elif not arguments.output or arguments.output == "-":
        console.print(converted.text.removesuffix("\n"))
    _show_lost(converted, console)
    return 0


def _show_lost(converted: ConvertedScript, console: Console) -> None:
    if console.json:
        return
    name = escape_controls(converted.name)
    for left in converted.conversion.left:
        what = f"{left.words}: {left.why}" if left.words else left.why
        console.progress.warn(f"{name}:{left.line}: not carried over: {escape_controls(what)}")
    for line, note in converted.conversion.remarks:
        console.progress.note(f"{name}:{line}: {escape_controls(note)}")
    for warning in converted.warnings:
        console.progress.warn(warning)
