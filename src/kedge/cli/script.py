# SPDX-License-Identifier: BSD-3-Clause
"""`kedge script`: checks and converts batch scripts for sbatch and qsub.

`check` exits with 1 if a job would be refused or could not run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_settings
from kedge.cli.redaction import escape_controls
from kedge.cluster.job_fields import FIELDS
from kedge.jobs.script import TARGETS

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.script import CheckedScript, ConvertedScript

_FILE = "batch script for sbatch or qsub; '-' for standard input"
_NO_DIRECTIVES = "no directives (#SBATCH, #PBS or #$ lines); only its commands were checked"
_ASKED = ("size", "queue")  # groups of options that a site may require and the script lack


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    check = commands.add_parser("check", help="Report what the scheduler will ignore or refuse (status 1: refused)")
    check.add_argument("file", metavar="FILE", nargs="+", help=_FILE)
    add_settings(check, "site")
    convert = commands.add_parser("convert", help="Convert a script to kedge.toml or to another scheduler")
    convert.add_argument("file", metavar="FILE", help=_FILE)
    convert.add_argument(
        "--to", metavar="WHAT", choices=TARGETS, default="toml", help=f"{', '.join(TARGETS)} (default: toml)"
    )
    convert.add_argument("-o", "--output", metavar="OUT", help="write to OUT (default: standard output)")
    convert.add_argument("--force", action="store_true", help="overwrite an existing file")
    add_settings(convert, "site")
    add_job_options(convert, without=[field.name for field in FIELDS if field.group not in _ASKED])


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    return _check(arguments, console) if arguments.command == "check" else _convert(arguments, console)


def _check(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.jobs.script import check_file

    checked = [check_file(name, console.settings, console.environ) for name in arguments.file]
    if console.json:
        results = [script.as_dict() for script in checked]
        console.print_json(results[0] if len(results) == 1 else results)
    for script in checked:
        _show_checked(script, console)
    return int(any(script.has_errors for script in checked))


def _show_checked(checked: CheckedScript, console: Console) -> None:
    script, name = checked.script, escape_controls(checked.name)
    scheduler = script.language.facts
    where = f", site {checked.site.name} ({checked.site_reason})" if checked.site else ""
    if script.scheduler != "local":
        console.progress.note(f"{name}: {scheduler.title} script, because {script.reason}{where}")
    for finding in checked.findings:
        message = escape_controls(finding.message)
        console.print(f"{name}:{finding.line}: {finding.severity.value}: {message} ({finding.rule})")
        console.print(f"    {escape_controls(finding.remedy)}")
    if script.directives and not script.live:
        read = f"{scheduler.title} ignores all of its {scheduler.prefix} lines"
        console.progress.note(f"{name}: {read}; only its commands were checked")
    elif not script.live:
        console.progress.note(f"{name}: {_NO_DIRECTIVES}")
    elif not checked.findings:
        console.progress.note(f"{name}: no problems found")


def _convert(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.jobs.script import convert_file, write_text

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
        console.progress.note(f"Wrote {path}")
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
