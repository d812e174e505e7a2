# SPDX-License-Identifier: BSD-3-Clause
"""The command line: finds the verb, imports it alone, runs it, and turns failures into text and an exit status."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import sys
from collections.abc import Sequence

from kedge.base.release import VERSION
from kedge.cli.options import GLOBALS, GlobalOptions, Parser, add_globals
from kedge.cli.signals import raised_signals, stop_raising
from kedge.cli.verbs import GROUPS, VERBS, VerbModule, find_verb, load_verb
from kedge.errors import UsageError

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

    from kedge.cli.console import Console
    from kedge.cli.verbs import WordsModule


ABOUT = "Run GPU containers on HPC clusters without root, interactively or as jobs"
_TOP_OPTIONS = (
    ("--dry-run", "say what would be done, and change nothing (some verbs)"),
    ("-h, --help", "show this text, or the options of a verb"),
    ("-V, --version", "show the version"),
)
_COLLECT_AFTER = 200_000  # new objects; with Python's own 700, loading modules looks for garbage dozens of times
_HELP = frozenset(("-h", "--help", "--help-all"))
_NO_OPTIONS = argparse.Namespace(help=False, version=False, dry_run=False)  # before the verb


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = GlobalOptions()
    gc.set_threshold(_COLLECT_AFTER)
    prepare_streams()
    try:
        with raised_signals():
            status = _run_words(words, options)
            sys.stdout.flush()  # here what it cannot take is said as any other failure is
            return status
    except BaseException as problem:
        from kedge.cli.report import report_failure  # late: success needs none of it

        options.json = options.json or "--json" in words  # the option may stand behind the mistake
        return report_failure(problem, words, options)


def _run_words(words: list[str], options: GlobalOptions) -> int:
    try:
        return _dispatch(words, options)
    except SystemExit as end:  # argparse ends --help this way
        return end.code if isinstance(end.code, int) else 0


def end_process(status: int) -> None:
    """End this process as the interpreter would, but leave its memory to the kernel: freeing it takes 14 ms.

    Returns where that is not safe, so that the interpreter ends it: a thread is at work, or a stream takes no more.
    """
    threads = sys.modules.get("threading")
    if threads is not None and any(not each.daemon for each in threads.enumerate()[1:]):
        return
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(status & 0xFF)


def prepare_streams() -> None:
    """Make standard streams take every byte in every locale, and be there even when the caller closed them."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123 - stays open to the end
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123 - stays open to the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123 - stays open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a passphrase is bytes, not always text


def _dispatch(words: list[str], options: GlobalOptions) -> int:
    """Parse the options before the verb, then hand over to the verb."""
    count = next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))
    leading, command = words[:count], words[count:]
    chosen = _parse_leading(leading, options) if leading else _NO_OPTIONS
    if chosen.version:
        sys.stdout.write(f"kedge version {VERSION}\n")
        return 0
    if chosen.help and command:
        command = [*command, "--help"]
    if chosen.help and not command:
        sys.stdout.write(format_help())
        return 0
    if not command:
        return _show_here(options)
    return _run_verb(command[0], command[1:], options, dry_run=chosen.dry_run)


def _parse_leading(words: Sequence[str], options: GlobalOptions) -> argparse.Namespace:
    """The options before the verb; the global ones are noted in `options`."""
    top = Parser(prog="kedge", add_help=False)
    top.add_argument("-h", "--help", action="store_true")
    top.add_argument("-V", "--version", action="store_true")
    top.add_argument("--dry-run", action="store_true")
    add_globals(top, options)
    return top.parse_args(words)


def _show_here(options: GlobalOptions) -> int:
    """`kedge` alone."""
    from kedge.cli.here import show_here  # late: no verb needs it

    console = _make_console(argparse.Namespace(), options)
    try:
        return show_here(console)
    finally:
        console.close()


def _run_verb(name: str, words: Sequence[str], options: GlobalOptions, *, dry_run: bool) -> int:
    """Import the verb, parse its arguments and run it."""
    module = load_verb(find_verb(name))
    if find_verb(name).reads_words:
        leading = [
            f"--{flag}" for flag in ("json", "quiet", "silent", "debug", "nocolor", "shim") if getattr(options, flag)
        ]
        leading += ["--verbose"] * options.verbose + ["--dry-run"] * dry_run
        loaded: Any = module
        reader: WordsModule = loaded
        return reader.run_words(name, words, leading=leading)
    parser = make_parser(name, options, is_for_help=bool(_HELP & set(words)))
    if _lacks_subcommand(parser, words) and not options.json:
        sys.stderr.write(make_parser(name, options).format_help())
        return UsageError.exit_code
    arguments = parser.parse_args(words)
    if dry_run and not hasattr(arguments, "dry_run"):
        raise UsageError(f"'kedge {name}' has no --dry-run", hint=f"to see its options: kedge {name} --help")
    options.dry_run = dry_run or getattr(arguments, "dry_run", False)
    options.json = options.json or getattr(arguments, "json", False) is True
    for option in ("json", "dry_run"):  # a verb that has the option itself sees what stood before the verb, too
        if hasattr(arguments, option):
            setattr(arguments, option, getattr(options, option))
    if not find_verb(name).guarded:
        return _run_module(module, arguments, options)
    from kedge.cli.guard import run_guarded  # late: light verbs need no second process

    def report(problem: BaseException) -> int:  # in the child: only the status leaves it
        from kedge.cli.report import report_failure  # late: success needs none of it

        stop_raising()
        return report_failure(problem, [name, *words], options)

    return run_guarded(f"kedge {name}", lambda: _run_module(module, arguments, options), report)


def _lacks_subcommand(parser: argparse.ArgumentParser, words: Sequence[str]) -> bool:
    """Whether a verb that needs a subcommand stands alone; with --json it is an error like any other."""
    is_group = any(isinstance(action, argparse._SubParsersAction) and action.required for action in parser._actions)
    return is_group and not any(word in _HELP or word == "--json" or not word.startswith("-") for word in words)


def _run_module(module: VerbModule, arguments: argparse.Namespace, options: GlobalOptions) -> int:
    """Run a verb with a console of its own."""
    console = _make_console(arguments, options)
    try:
        return module.run(arguments, console)
    finally:
        console.close()


def make_parser(
    name: str, options: GlobalOptions | None = None, *, is_for_help: bool = True
) -> argparse.ArgumentParser:
    """The complete parser of a verb, global options included; for help also with sentences and examples."""
    verb = find_verb(name)
    parser = Parser(prog=f"kedge {name}")
    load_verb(verb).configure(parser)
    if is_for_help:
        from kedge.cli.help_text import describe_parser  # late: a verb that does its work needs none of it

        describe_parser(parser, name, verb.summary)
    add_globals(parser, options or GlobalOptions())
    return parser


def _make_console(arguments: argparse.Namespace, options: GlobalOptions) -> Console:
    """The console of one command; options whose name is a setting's override that setting."""
    from kedge.cli.console import Console
    from kedge.system.settings import SETTINGS

    given = {name: getattr(arguments, name, None) for name in SETTINGS}
    return Console(options, flags={name: value for name, value in given.items() if value not in (None, False)})


def format_help() -> str:
    """The text of `kedge --help`."""
    lines = ["usage: kedge [OPTIONS] VERB ...", "", f"{ABOUT}."]
    for group in GROUPS:
        lines += ["", f"{group}:"]
        lines += [f"  {name:<11} {verb.summary}" for name, verb in VERBS.items() if verb.group == group]
    lines += ["", "Options, before or after the verb:"]
    lines += [f"  {names:<21} {text}" for names, text in list_top_options()]
    lines += ["", "Options of a verb: kedge VERB --help. Guides: kedge help. Exit codes: kedge help errors"]
    return "\n".join(lines) + "\n"


def list_top_options() -> list[tuple[str, str]]:
    """The options that stand before or after every verb, and their texts."""
    shared = [(", ".join(names), text) for _, names, text in GLOBALS if text != argparse.SUPPRESS]
    return [*shared, *_TOP_OPTIONS]
