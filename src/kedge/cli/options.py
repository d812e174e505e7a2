# SPDX-License-Identifier: BSD-3-Clause
"""The argument parser and the options that every verb understands, before the verb and after it.

`add_settings` gives a verb the standard option of a setting; `add_dry_run` adds --dry-run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kedge.errors import UsageError

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any, NoReturn

_COLUMNS = 80  # where there is no terminal


def read_image_path(text: str) -> Path:
    """The path of an image file, for argparse; refuses references such as `docker://x`, which are no paths."""
    from kedge.base.image_argument import is_reference  # late: few verbs have such a word

    if is_reference(text):
        hint = (
            f"pull the image first: kedge pull {text}" if "://" in text else f"for a file of this name write ./{text}"
        )
        raise UsageError(f"'{text}' is not a file: this verb works on image files", hint=hint)
    return Path(text)


def _leave_untranslated(text: str) -> str:
    return text


argparse._ = _leave_untranslated  # type: ignore[attr-defined]  # argparse looks for catalogs, and there are none for it


class GlobalOptions:
    """The values of the global options, wherever they stood on the command line."""

    def __init__(
        self,
        *,
        json: bool = False,
        verbose: int = 0,
        debug: bool = False,
        nocolor: bool = False,
        shim: bool = False,
    ) -> None:
        self.json = json
        self.quiet = False
        self.silent = False
        self.verbose = verbose
        self.debug = debug
        self.nocolor = nocolor
        self.shim = shim  # called by a name of Apptainer's: messages begin as Apptainer's do
        self.dry_run = False


class HelpFormatter(argparse.HelpFormatter):
    """argparse's, which it makes for every option to check its words; its own way to the width loads six modules."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        named.setdefault("width", measure_width() - 2)  # argparse leaves two columns free as well
        super().__init__(*positional, **named)


def measure_width() -> int:
    """The columns of the terminal, as `shutil.get_terminal_size` finds them."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _COLUMNS  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # no standard output, or no terminal
        return _COLUMNS


class Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of exiting, never guesses abbreviations, and proposes near words."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        named.setdefault("allow_abbrev", False)
        named.setdefault("formatter_class", HelpFormatter)
        super().__init__(*positional, **named)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print, with what to type instead of an unknown option."""
        if message.endswith("required: COMMAND"):
            message = f"'{self.prog}' needs a subcommand: {', '.join(find_subcommands(self))}"
        unknown = message.partition("unrecognized arguments: ")[2].split(" ")[0].partition("=")[0]
        near = _propose_option(self, unknown) if unknown.startswith("-") else None
        raise UsageError(message, hint=near or f"to see the options: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but options may stand between the words of a list: `build OUTPUT -f FILE CONTEXT`."""
        parsed, rest = super().parse_known_args(args, namespace)
        lists = [action for action in self._get_positional_actions() if action.nargs == "*"]
        if rest and len(lists) == 1 and not any(word.startswith("-") and word != "-" for word in rest):
            setattr(parsed, lists[0].dest, [*getattr(parsed, lists[0].dest), *rest])
            rest = []
        return parsed, rest

    def _get_nargs_pattern(self, action: argparse.Action) -> str:
        """The word behind `--directive` is its value even with a dash before it, which argparse takes for an option."""
        return "([AO])" if getattr(action, "takes_dashes", False) else super()._get_nargs_pattern(action)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from kedge.base.nearest import propose  # late: only a mistake needs it

        known = [str(choice) for choice in action.choices]
        raise UsageError(
            f"'{self.prog}' does not take '{value}'; use one of: {', '.join(known)}",
            hint=propose(str(value), known) or f"to see the options: {self.prog} --help",
        )


def _propose_option(parser: argparse.ArgumentParser, unknown: str) -> str | None:
    """What kedge calls it, which subcommand takes it, or the nearest option."""
    from kedge.base.nearest import propose  # late: only a mistake needs it
    from kedge.base.words_of_other_tools import explain_option

    habit = explain_option("".join(parser.prog.split()[1:2]), unknown)
    if habit:
        return habit
    owners = {option: child.prog for child in _all_parsers(parser) for option in child._option_string_actions}
    return f"{unknown} is an option of '{owners[unknown]}'" if unknown in owners else propose(unknown, owners)


class _Record(argparse.Action):
    """Notes a global flag in the shared GlobalOptions, because subparsers forget what their parents parsed."""

    def __init__(self, option_strings: Sequence[str], dest: str, options: GlobalOptions, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)
        self.field = dest
        self.options = options

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        del parser, namespace, values, option_string
        before = getattr(self.options, self.field)
        setattr(self.options, self.field, before + 1 if self.field == "verbose" else True)


GLOBALS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("json", ("--json",), "print one JSON document on standard output, also for errors"),
    ("quiet", ("-q", "--quiet"), "no progress and no notes"),
    ("silent", ("-s", "--silent"), "nothing but results and errors"),
    ("verbose", ("-v", "--verbose"), "say more; twice says still more"),
    ("debug", ("-d", "--debug"), "show where an error came from"),
    ("nocolor", ("--nocolor", "--no-color"), "no colours, as with NO_COLOR=1"),
    ("shim", ("--shim",), argparse.SUPPRESS),
)


def add_globals(parser: argparse.ArgumentParser, options: GlobalOptions) -> None:
    """Add the global options to a parser and its subparsers, except those that a verb defines itself."""
    for child in _all_parsers(parser):
        group = child.add_argument_group("global options")
        taken = set(child._option_string_actions)
        for field, strings, text in GLOBALS:
            free = [string for string in strings if string not in taken]
            if any(string.startswith("--") for string in free):
                group.add_argument(*free, dest=field, action=_Record, options=options, help=text)
        if "--help-all" not in taken:  # where --help shows all options, it is the same
            group.add_argument("--help-all", action="help", help=argparse.SUPPRESS)
        child.usage = child.usage or _make_usage(child)


def _make_usage(parser: argparse.ArgumentParser) -> str:
    """`%(prog)s [options] [OUT] REF`: argparse would list every option first, the global ones too."""
    words = [show_positional(action) for action in parser._actions if not action.option_strings]
    return " ".join(["%(prog)s", "[options]", *words]).replace("%", "%%").replace("%%(prog)s", "%(prog)s")


def show_positional(action: argparse.Action) -> str:
    """A positional argument as usage lines show it: `REF`, `[OUT]`, `FILE ...`."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if isinstance(action, argparse._SubParsersAction):
        return f"{name} ..."
    if " " in name:  # says itself how many there are, as `[OUTPUT] REFERENCE` does
        return name
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name)


def find_subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a verb's subcommands, by name; an alias is the same parser again."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: child for group in groups for name, child in group.choices.items()}


def _all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for child in {id(child): child for child in find_subcommands(parser).values()}.values():
        yield from _all_parsers(child)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run; `console.dry_run` then tells the verb to report what it would do, and do nothing."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def add_verify(parser: argparse._ActionsContainer) -> None:
    """Add --verify."""
    parser.add_argument(
        "--verify", action="store_true", help="read the written image back and compare all contents with the input"
    )


def add_settings(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add the standard option of each named setting; `console.settings` then holds the merged value."""
    from kedge.system.settings import SETTINGS

    for name in names:
        setting = SETTINGS[name]
        if setting.kind == "yes or no":
            parser.add_argument(*setting.flags, dest=name, action="store_const", const=True, help=setting.summary)
        else:
            parser.add_argument(*setting.flags, dest=name, metavar=setting.metavar, help=setting.summary)
