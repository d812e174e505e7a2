# SPDX-License-Identifier: BSD-3-Clause
"""`kedge doctor`: what keeps containers and jobs from working on this host, why, and how to fix it."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, SKIPPED, WARNING
from kedge.cli.options import add_settings
from kedge.cli.progress import leave_plain
from kedge.cli.redaction import escape_controls, redact, redact_arguments
from kedge.errors import DoctorFailed, UsageError

if TYPE_CHECKING:
    from kedge.answers.doctor.diagnosis import Diagnosis
    from kedge.answers.doctor.surroundings import Finding, Surroundings
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


# A diagnosis as lines for a terminal: problems first, with their remedies; then a line for each check that passed.

_HEADINGS = ((FAIL, "Problems"), (WARNING, "Warnings"), (NOTE, "Notes"), (SKIPPED, "Not checked"))
_MEANINGS = {FAIL: "bad", WARNING: "warning", NOTE: "note", SKIPPED: "dim"}
_INDENT = " " * 8

Paint = Callable[[str, str], str]


def render_diagnosis(
    diagnosis: Diagnosis, *, is_verbose: bool, width: int, paint: Paint = leave_plain
) -> Iterator[str]:
    """Yield all lines of doctor's findings; with `is_verbose` what each check took, and where to read about notes."""
    titles = {check.name: check.title for check in diagnosis.checks}
    machine = diagnosis.machine
    yield ", ".join(machine[name] for name in ("host", "system", "kernel") if name in machine) or "this host"
    for level, heading in _HEADINGS:
        found = [each for each in diagnosis.findings if each.level == level]
        if found:
            yield from ("", paint(heading, _MEANINGS[level]))
        for each in found:
            yield from _render_finding(each, is_verbose=is_verbose, width=width)
    yield from _render_groups(diagnosis, titles, paint, is_verbose=is_verbose)
    yield ""
    yield diagnosis.summary


def _render_finding(finding: Finding, *, is_verbose: bool, width: int) -> Iterator[str]:
    yield from _wrap(f"  {finding.check}: ", finding.what, width)
    yield from _wrap(f"{_INDENT}why:  ", finding.why, width)
    yield from _wrap(f"{_INDENT}fix:  ", finding.fix, width)
    if is_verbose or finding.level in (FAIL, WARNING):
        yield from _wrap(f"{_INDENT}docs: ", finding.docs, width)


def _wrap(begin: str, text: str, width: int) -> Sequence[str]:
    """Lines that begin alike; a command is not broken in the middle of a word."""
    if not text:
        return ()
    safe = escape_controls(text).replace("\n", " ")
    following = " " * len(begin) if begin.startswith(_INDENT) else _INDENT
    return textwrap.wrap(
        safe, width, initial_indent=begin, subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )


def _render_groups(diagnosis: Diagnosis, titles: dict[str, str], paint: Paint, *, is_verbose: bool) -> Iterator[str]:
    groups = {check.name: check.group for check in diagnosis.checks}
    widest = max((len(title) for title in titles.values()), default=0)
    before = ""
    for each in sorted((each for each in diagnosis.findings if each.level == OK), key=lambda one: _rank(one, groups)):
        group = groups.get(each.check, "Image")
        if group != before:
            yield from ("", group)
            before = group
        seconds = f"  [{diagnosis.seconds.get(each.check, 0.0):.2f} s]" if is_verbose else ""
        title = titles.get(each.check, each.check)
        yield f"  {paint('ok', 'good')}  {title.ljust(widest)}  {escape_controls(each.what)}{seconds}".rstrip()


def _rank(finding: Finding, groups: dict[str, str]) -> int:
    from kedge.answers.doctor.diagnosis import GROUPS

    return GROUPS.index(groups.get(finding.check, GROUPS[-1]))
