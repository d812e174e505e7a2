# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recipe`: shows what a definition file or Dockerfile does, prints it as the other kind, and checks it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.redaction import escape_controls, escape_line

if TYPE_CHECKING:
    from kedge.builds.lint.recipe_view import LintFinding
    from kedge.builds.recipe_files import ListedStage, RecipeGraph
    from kedge.cli.console import Console

_FILE = "definition file or Dockerfile; '-' for standard input"
_KINDS = ("dockerfile", "definition")
_TITLES = {"dockerfile": "Dockerfile", "definition": "definition file"}


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    show = commands.add_parser("show", help="Show stages, bases and steps, or the syntax")
    show.add_argument("file", metavar="FILE", help=_FILE)
    show.add_argument("--ast", action="store_true", help="print the syntax as BuildKit's parser does; JSON with --json")
    show.add_argument("--target", metavar="STAGE", default="", help="up to this stage")
    show.add_argument(
        "--build-arg", metavar="NAME=VALUE", action="append", default=[], help="value of an ARG or of {{ NAME }}"
    )
    convert = commands.add_parser("convert", help="Convert a definition file to a Dockerfile, or a Dockerfile to one")
    convert.add_argument("file", metavar="FILE", help=_FILE)
    convert.add_argument("--to", choices=_KINDS, default="", help="kind to write (default: the other one)")
    convert.add_argument("-o", "--output", metavar="OUT", default="-", help="write to OUT (default: standard output)")
    convert.add_argument("-F", "--force", action="store_true", help="overwrite an existing file")
    lint = commands.add_parser(
        "lint", help="Report what makes images large, unsafe or hard to rebuild (status 1: warnings)"
    )
    lint.add_argument("file", metavar="FILE", nargs="+", help=_FILE)
    lint.add_argument("--rule", metavar="NAME", action="append", default=[], help="report this rule only")
    for command in (show, convert, lint):
        command.add_argument("--kind", choices=_KINDS, default="", help="kind of FILE (default: by name and content)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Do what the subcommand says."""
    commands = {"show": _show, "convert": _convert, "lint": _lint}
    return commands[arguments.command](arguments, console)


def _show(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.base.platform import Platform
    from kedge.builds.recipe_files import list_steps, open_recipe, parse_syntax, show_syntax
    from kedge.builds.step_values import BuildArguments
    from kedge.cli.build_words import read_build_arguments

    file = open_recipe(arguments.file, arguments.kind)
    if arguments.ast:
        if console.json:
            console.print_json(parse_syntax(file))
        else:
            console.print(show_syntax(file))
        return 0
    values = read_build_arguments(arguments.build_arg, [], console.environ)
    host = str(Platform.host())
    graph = list_steps(file, BuildArguments(values, host, host, target=arguments.target))
    if console.json:
        console.print_json({**graph.as_dict(), "syntax": parse_syntax(file)})
    else:
        _print_graph(graph, console)
    return 0


def _convert(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.builds.recipe_files import convert_file, open_recipe, write_recipe

    file = open_recipe(arguments.file, arguments.kind)
    converted = convert_file(file, arguments.to)
    notes = [{"line": note.place.line, "message": note.message} for note in converted.notes]
    if console.json:
        console.print_json({"name": file.name, "kind": converted.kind, "text": converted.text, "notes": notes})
    if arguments.output != "-":
        write_recipe(Path(arguments.output), converted.text, force=arguments.force)
        console.progress.note(f"wrote {arguments.output}")
    elif not console.json:
        text = converted.text.removesuffix("\n") + "\n"
        shown = escape_controls(text) if console.is_terminal else text
        console.write_bytes(shown.encode("utf-8", "surrogateescape"))
    for note in converted.notes if not console.json else ():
        console.progress.warn(str(note))
    return 0


def _lint(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.builds.recipe_files import lint_file, open_recipe

    findings: list[LintFinding] = []
    for name in arguments.file:
        found = lint_file(open_recipe(name, arguments.kind))
        findings += [finding for finding in found if not arguments.rule or finding.rule in arguments.rule]
    if console.json:
        console.print_json([_describe_finding(finding) for finding in findings])
    for finding in findings:
        _print_finding(finding, console)
    if not findings:
        console.progress.note(f"{', '.join(arguments.file)}: no problems found")
    return int(any(finding.level == "warning" for finding in findings))


def _describe_finding(finding: LintFinding) -> dict[str, object]:
    place = finding.place
    return {
        **{"file": place.file, "line": place.line, "column": place.column, "rule": finding.rule},
        **{"level": finding.level, "message": finding.message, "reason": finding.reason},
        "better": finding.better,
    }


def _print_finding(finding: LintFinding, console: Console) -> None:
    level = console.paint(finding.level, "warning" if finding.level == "warning" else "note")
    console.print(f"{finding.place}: {level}: {escape_line(finding.message)} [{finding.rule}]")
    console.print_hanging("    ", escape_line(finding.reason))
    lines = finding.better.splitlines()
    for line in lines[:1]:
        console.print(f"    better: {escape_line(line)}")
    for line in lines[1:]:
        console.print(f"            {escape_line(line)}")


def _print_graph(graph: RecipeGraph, console: Console) -> None:
    count = len(graph.stages)
    console.print(f"{graph.name}: {_TITLES[graph.kind]}, {count} stage{'s' if count > 1 else ''}")
    for stage in graph.stages:
        console.print()
        console.print(_describe_stage(stage, graph, console))
        for step in stage.steps:
            console.print(f"  {step.line:>5}  {escape_line(step.text)}")
    for warning in graph.warnings:
        console.progress.warn(warning)
    for name in graph.unused_arguments:
        console.progress.warn(f"nothing in {graph.name} uses the build argument {name}")


def _describe_stage(stage: ListedStage, graph: RecipeGraph, console: Console) -> str:
    """`[builder] docker debian:12, needs [base]`."""
    names = {other.number: other.name for other in graph.stages}
    shown = console.paint(f"[{escape_line(names[stage.number])}]", "note")
    base = "" if stage.agent == "scratch" and not stage.base else f" {escape_line(stage.base)}"
    needs = ", ".join(f"[{escape_line(names[number])}]" for number in stage.needs)
    platform = f" ({escape_line(stage.platform)})" if stage.platform else ""
    unused = console.paint(" not built: nothing needs it", "dim") if not stage.is_used else ""
    return f"{shown} {stage.agent}{base}{platform}{f', needs {needs}' if needs else ''}{unused}"
