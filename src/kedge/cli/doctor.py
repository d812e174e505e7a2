# SPDX-License-Identifier: BSD-3-Clause
"""`kedge doctor`: what keeps containers and jobs from working on this host, why, and how to fix it."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.cli.redaction import redact, redact_arguments
from kedge.errors import DoctorFailed, UsageError

if TYPE_CHECKING:
    from kedge.answers.doctor.diagnosis import Diagnosis
    from kedge.answers.doctor.surroundings import Surroundings
    from kedge.cli.console import Console

_MOST_PATIENCE = 100
_PRINTED = "-"  # for the name of a file: standard output
_WIDEST = 100  # columns: longer lines are hard to read


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("image", metavar="IMAGE", nargs="?", help="also check whether this image runs on this host")
    parser.add_argument("--gpu", action="store_true", help="run the GPU checks only")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="run only this check or group of checks; repeat it, or separate names by commas",
    )
    parser.add_argument("--list", action="store_true", help="list the checks without running them")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument(
        "--patience",
        metavar="N",
        type=_read_patience,
        default=1.0,
        help="multiply the time limit of every check by N, for slow hosts and networks",
    )
    parser.add_argument("--html", metavar="FILE", help="also write an HTML page; - prints it")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write a text file for the help desk, without secrets; - prints it",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    add_settings(parser, "site", "cache_directory", "temporary_directory", "node_directory", "ca_bundle")


def _read_patience(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number <= _MOST_PATIENCE:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {_MOST_PATIENCE}")
    return number


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Check, and say what was found; 84 where something is broken."""
    from kedge.answers.doctor.doctor import describe_surroundings, diagnose
    from kedge.answers.report import clean_diagnosis

    if arguments.list:
        return _list(console)
    _refuse_files(arguments, console)
    surroundings = describe_surroundings(
        console.settings, console.environ, is_offline=arguments.offline, patience=arguments.patience
    )
    diagnosis = diagnose(surroundings, _choose_names(arguments), image=arguments.image)
    _write_files(diagnosis, surroundings, arguments, console)  # first: who reads the text may stop reading
    if _PRINTED not in (arguments.html, arguments.report):
        _show(clean_diagnosis(diagnosis, surroundings, redact, is_sent=False), console)
    return DoctorFailed.exit_code if diagnosis.has_failed else 0


def _list(console: Console) -> int:
    from kedge.answers.doctor.doctor import list_checks

    checks = list_checks()
    if console.json:
        console.print_json([{"name": each.name, "title": each.title, "group": each.group} for each in checks])
    console.print_table(("name", "group", "what"), [(each.name, each.group, each.title) for each in checks])
    return 0


def _choose_names(arguments: argparse.Namespace) -> list[str] | None:
    from kedge.answers.doctor.doctor import list_checks

    groups: dict[str, list[str]] = {}
    for each in list_checks():
        groups.setdefault(each.group.lower(), []).append(each.name)
    asked = [name.strip() for listed in arguments.only for name in listed.split(",") if name.strip()]
    names = [name for word in asked for name in groups.get(word.lower(), [word])]
    if arguments.gpu:
        if names:
            raise UsageError("--gpu and --only cannot be combined", hint="give one of them")
        names = groups["gpu"]
    return names or None


def _refuse_files(arguments: argparse.Namespace, console: Console) -> None:
    """Before anything is run, so that nobody waits for a refusal."""
    from kedge.system.files import HTML, refuse_existing_text

    if arguments.html and arguments.html == arguments.report:
        raise UsageError("--html and --report name the same file", hint="give each its own file")
    for name, beginning in ((arguments.html, HTML), (arguments.report, b"kedge doctor:")):
        if name == _PRINTED and console.json:
            raise UsageError(
                "--json and the file - both write to standard output", hint="leave one out, or name a file"
            )
        if name and name != _PRINTED:
            refuse_existing_text(Path(name), force=arguments.force, beginning=beginning)


def _show(diagnosis: Diagnosis, console: Console) -> None:
    from kedge.cli.doctor_text import render_diagnosis

    if console.json:
        console.print_json(diagnosis.as_dict())
        return
    width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    for line in render_diagnosis(diagnosis, is_verbose=console.verbosity > 0, width=width, paint=console.paint):
        console.print(line)


def _write_files(
    diagnosis: Diagnosis, surroundings: Surroundings, arguments: argparse.Namespace, console: Console
) -> None:
    if not arguments.report and not arguments.html:
        return
    from kedge.answers.report import clean_diagnosis, make_report

    if arguments.report:
        command = " ".join(["kedge", *redact_arguments(sys.argv[1:])])
        text = make_report(diagnosis, surroundings, command=command, redact=redact)
        _write(arguments.report, text, arguments, console, "without secrets; read it before you send it")
    if arguments.html:
        page = _make_page(clean_diagnosis(diagnosis, surroundings, redact, is_sent=True), surroundings, arguments.image)
        _write(arguments.html, page, arguments, console, "open it in a browser, or send it to the help desk")


def _write(name: str, text: str, arguments: argparse.Namespace, console: Console, note: str) -> None:
    from kedge.answers.doctor.doctor import write_private

    if name == _PRINTED:
        console.write_bytes(text.encode("utf-8", "replace"))
        return
    write_private(Path(name), text, force=arguments.force)
    console.progress.note(f"wrote {name}: {note}")


def _make_page(diagnosis: Diagnosis, surroundings: Surroundings, image: str | None) -> str:
    from kedge.answers.pages.doctor_page import render_diagnosis
    from kedge.base.release import VERSION

    explained = None
    if image:
        from kedge.answers.doctor.image_check import explain_checked

        explained = explain_checked(image, surroundings)
    found, chart = explained or (None, None)
    return render_diagnosis(
        diagnosis.findings,
        title=f"kedge doctor: {diagnosis.machine.get('host', 'this host')}",
        tally=diagnosis.summary,
        summary=diagnosis.machine,
        verdict=found.verdict if found else None,
        traits=found.traits if found else None,
        chart=chart,
        made=time.strftime("%Y-%m-%d %H:%M"),
        version=VERSION,
    )
