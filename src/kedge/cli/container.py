# SPDX-License-Identifier: BSD-3-Clause
"""`kedge exec|run|shell|test IMAGE`: containers on this machine. Imports nothing that a start does not need.

What kedge itself cannot do ends with 255, as Apptainer's failures do: other numbers are the program's own.
"""

from __future__ import annotations

import os

from kedge.container.flags import HelpWanted, parse_words
from kedge.container.options import FLAGS, GROUPS, REFUSALS, Flag, RunOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kedge.container.start.services import Services

OWN_FAILURE = 255
SHIM = "--shim"

# how a message begins, by its level: kedge's own, and as scripts and tools know it from Apptainer
_HEADS = {"warn": "kedge: warning: ", "tell": "kedge: ", "note": "kedge: "}
_SHIM_HEADS = {"warn": "WARNING: ", "tell": "INFO:    ", "note": "VERBOSE: "}

_POSITIONALS = {
    "exec": ("COMMAND [ARGUMENT ...]", "program to run in the container"),
    "run": ("[ARGUMENT ...]", "arguments for the image's run script"),
    "shell": ("", ""),
    "test": ("[ARGUMENT ...]", "arguments for the image's test script"),
}


def run_words(verb: str, words: Sequence[str], *, leading: Sequence[str] = ()) -> int:
    """Do what the words behind the verb say; returns only when no program was started in this process."""
    options = RunOptions(shim=SHIM in leading)
    try:
        open_standard_streams()
        parse_words(verb, [*drop_shim(leading), *words], os.environ, into=options)
        speaker = Speaker(options)
        speaker.say_collected()
        if (options.run_record or options.record_to) and not options.dry_run:
            from kedge.cli.record_run import run_recorded  # late: few runs are recorded

            return run_recorded(options, words, speaker.say, lambda: _start(options, speaker))
        return _start(options, speaker)
    except HelpWanted as wish:
        return _show_help(verb, is_whole=wish.is_whole or options.shim)
    except BaseException as problem:
        return report(problem, [verb, *words], options)


def _start(options: RunOptions, speaker: Speaker) -> int:
    """Start the container, or go into the instance that is named."""
    if options.image.startswith("instance://") and not options.is_foreign:
        from kedge.container.instance import run_in_instance  # late: only where one is named

        return run_in_instance(options, speaker.say)
    from kedge.container.start_container import run_container  # late: mistakes in the words are found without it

    return run_container(options, speaker.say, find_services)


def find_services() -> Services:
    """What few starts need from above the containers."""
    from kedge.container.services import StartServices  # late: as said

    return StartServices()


def drop_shim(leading: Sequence[str]) -> list[str]:
    """The options before the verb that `flags` knows."""
    return [word for word in leading if word != SHIM]


def open_standard_streams() -> None:
    """A standard stream that the caller closed becomes an empty one; else the next file to be opened has its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)


class Speaker:
    """Says on the standard streams what the runtime has to say, as the options for messages allow."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self._uid = os.getuid()  # now: in a user namespace it may be another
        self._is_quiet = options.quiet or options.silent
        if options.shim and not os.isatty(2):  # a program may read it, and take progress for output
            self._is_quiet = self._is_quiet or not options.verbose
        if options.verbose:
            import kedge.base.secret_text
            import kedge.cli.redaction  # noqa: F401 - now: what is said in the container cannot import them

    def say_collected(self) -> None:
        """Print what was noticed while the words were read."""
        for text in self.options.warnings:
            self.say("warn", text)
        for text in self.options.notes:
            self.say("note", text)
        self.options.warnings.clear()
        self.options.notes.clear()

    def say(self, level: str, text: str) -> None:
        """`out` is the result; `warn` is said unless --silent, `tell` unless --quiet, `note` with --verbose.

        `once` is a warning that one of many tasks or ranks gives for all of them.
        """
        if level == "out":
            write_output(text if text.endswith("\n") else text + "\n")
        elif self._is_wanted(level, text):
            write_message(begin_message(level, is_shim=self.options.shim) + text)

    def _is_wanted(self, level: str, text: str) -> bool:
        if level == "warn":
            return not self.options.silent
        if level == "once":
            return not self.options.silent and self._is_first(text)
        return (level == "tell" or bool(self.options.verbose)) and not self._is_quiet

    def _is_first(self, text: str) -> bool:
        """Whether no other task of this job and no other rank has said this; on a terminal it is always said."""
        if os.isatty(2):
            return True
        from kedge.container.processes.say_once import say_first  # late: hardly anything is said once

        return say_first(text, os.environ, self._uid, is_shim=self.options.shim)


def begin_message(level: str, *, is_shim: bool) -> str:
    """How a message of this level begins."""
    heads = _SHIM_HEADS if is_shim else _HEADS
    return heads["warn" if level == "once" else level]


def write_output(text: str) -> None:
    """Write text to standard output, past Python's buffer: this process may become a program that knows none of it."""
    data = text.encode(errors="backslashreplace")
    while data:
        data = data[os.write(1, data) :]


def write_message(text: str) -> None:
    """Write one line to standard error, which nothing in a path or an image can make into something else."""
    if "://" in text:
        from kedge.cli.redaction import redact  # late: only addresses carry secrets

        text = redact(text)
    shown = "".join(letter if letter.isprintable() or letter in "\n\t" else f"\\x{ord(letter):02x}" for letter in text)
    try:
        os.write(2, (shown + "\n").encode(errors="backslashreplace"))
    except OSError:
        return  # nobody listens


def report(problem: BaseException, words: list[str], options: RunOptions) -> int:
    """Tell the user about a failure as all verbs do; the status says that it is kedge's and not the program's."""
    if getattr(problem, "is_reported", False) and not options.json:
        return _read_status(problem)  # a child that made the image ready has said what went wrong
    # late, all of it: success needs none
    from kedge.cli.main import prepare_streams
    from kedge.cli.options import GlobalOptions
    from kedge.cli.report import report_failure

    prepare_streams()
    shown = GlobalOptions(
        json=options.json or _has_leading(words[1:], "--json"),
        verbose=options.verbose,
        debug=options.debug,
        nocolor=options.nocolor,
        shim=options.shim,
    )
    status = report_failure(problem, words, shown)
    return status if status >= 128 else OWN_FAILURE  # ended by a signal: as for every other verb


def _read_status(problem: BaseException) -> int:
    """The status after a child has failed: its own where a signal ended it, as when the user gave up waiting."""
    status = int(getattr(problem, "context", {}).get("status", OWN_FAILURE))
    return status if status >= 128 else OWN_FAILURE


def _has_leading(words: list[str], wanted: str) -> bool:
    """Whether an option stands before the image, also behind the mistake that ended the parsing."""
    for word in words:
        if not word.startswith("-"):
            break
        if word == wanted:
            return True
    return False


def _show_help(verb: str, *, is_whole: bool) -> int:
    """Print the options: the most used ones, or all."""
    from kedge.cli.main import make_parser, prepare_streams  # late: only help needs them

    prepare_streams()
    if is_whole:
        return print_text(make_parser(verb).format_help())
    from kedge.cli.help_text import format_short_help
    from kedge.cli.verbs import VERBS

    return print_text(format_short_help(verb, verb, VERBS[verb].summary))


def print_text(text: str) -> int:
    """Print an answer that needs no container; the status says whether it could be printed."""
    try:
        open_standard_streams()
        write_output(text)
    except OSError as problem:
        return report(problem, [], RunOptions())
    return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """The parser that help, completion and the reference page are made from; words are read by `flags`."""
    import argparse  # late: as above

    verb = parser.prog.split()[-1]
    parser.add_argument(
        "image", metavar="IMAGE", help="SIF or SquashFS file, sandbox directory, docker://NAME, instance://NAME …"
    )
    name, text = _POSITIONALS[verb]
    if name:
        parser.add_argument("arguments", metavar=name, nargs=argparse.REMAINDER, help=text)
    add_flags(parser, verb)


def add_flags(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the flags of a verb, group by group."""
    for group, title in GROUPS.items():
        flags = [flag for flag in FLAGS if flag.group == group and verb in flag.verbs]
        if group == "messages":
            flags = [
                flag for flag in flags if flag.names[0] in ("dry-run", "help-all")
            ]  # the others are options of every verb
        if flags:
            section = parser.add_argument_group(title)
            for flag in flags:
                _add_flag(section, flag)


def _add_flag(section: argparse._ArgumentGroup, flag: Flag) -> None:
    names = [*(["-" + flag.short] if flag.short else []), *("--" + name for name in flag.names)]
    text = REFUSALS[flag.help][0] if flag.group == "refused" else flag.help
    if flag.takes_value:
        action = "append" if flag.kind == "list" else "store"
        section.add_argument(*names, dest=flag.names[0], metavar=flag.metavar, action=action, help=text)
    else:
        section.add_argument(*names, dest=flag.names[0].replace("-", "_"), action="store_true", help=text)
