# SPDX-License-Identifier: BSD-3-Clause
"""What a verb talks to: results go to standard output, everything else to standard error.

This module owns rich, which is imported only when a terminal is there to show bars or a table.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from kedge.base.patterns import late_pattern
from kedge.cli.options import GlobalOptions, measure_width
from kedge.cli.progress import (
    OWN_HEADS,
    SHIM_HEADS,
    CountedTask,
    Display,
    Heads,
    PlainDisplay,
    Reporter,
    format_amount,
    leave_plain,
)
from kedge.cli.redaction import escape_controls, escape_json
from kedge.errors import UsageError

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any, TextIO

    from rich.progress import Progress as Bars

    from kedge.system.settings import Settings

_HANG = 2  # columns, of what follows a line that begins at the left edge
_PLAIN_COLUMNS = 80  # of pages that go to a file or a pipe
_NARROWEST = 30  # a terminal that says it is narrower says nothing

_GREEN, _RED, _YELLOW, _CYAN, _FAINT = "32", "1;31", "33", "36", "2"
# What a word can mean, and its colour; the states of jobs are among them.
_COLOURS = {
    **dict.fromkeys(("good", "ok", "completed", "done"), _GREEN),
    **dict.fromkeys(("bad", "failed", "cancelled", "timeout", "out of memory", "node failed", "preempted"), _RED),
    **dict.fromkeys(("warning", "pending", "queued", "held", "suspended"), _YELLOW),
    **dict.fromkeys(("note", "running", "completing"), _CYAN),
    **dict.fromkeys(("dim", "unknown", "lost"), _FAINT),
}
_COLOUR_CODES = late_pattern(r"\033\[[0-9;]*m")


class Console:
    """Output, questions, progress and settings of one command."""

    def __init__(
        self,
        options: GlobalOptions | None = None,
        *,
        flags: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self.options = options or GlobalOptions()
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._flags = flags or {}
        self._settings: Settings | None = None
        self._progress: Reporter | None = None
        self._bars: _BarDisplay | None = None
        self._display: Display | None = None
        self._painted: set[str] = set()

    @property
    def json(self) -> bool:
        """Whether the result is to be one JSON document."""
        return self.options.json

    @property
    def quiet(self) -> bool:
        """Whether notes and progress are unwanted."""
        return self.options.quiet or self.options.silent

    @property
    def verbosity(self) -> int:
        """How often --verbose was given; --debug counts as two."""
        return max(self.options.verbose, 2 if self.options.debug else 0)

    @property
    def dry_run(self) -> bool:
        """Whether to say what would be done instead of doing it."""
        return self.options.dry_run

    @property
    def settings(self) -> Settings:
        """The merged settings, read when first needed."""
        if self._settings is None:
            from kedge.system.settings import Settings  # late: --help and --version need no settings

            self._settings = Settings.load(self._flags, self.environ)
        return self._settings

    def read_settings(self) -> Settings:
        """The merged settings as they are now, for who changes them: another process may have changed them, too."""
        self._settings = None
        return self.settings

    @property
    def progress(self) -> Reporter:
        """Where operations report what they are doing."""
        if self._progress is None:
            self._progress = Reporter(
                self._choose_display(),
                self.write_note,
                self._heads,
                notes=not self.quiet and not self.json,
                details=self.verbosity > 0 and not self.quiet,
                warnings=not self.options.silent,
                paint=paint_text if self._has_style(self._err) else leave_plain,
            )
        return self._progress

    @property
    def error_stream(self) -> TextIO:
        """Where notes, progress and errors go."""
        return self._err

    @property
    def colours_notes(self) -> bool:
        """Whether colours are welcome among notes and progress."""
        return self._has_style(self._err)

    def use_display(self, display: Display) -> None:
        """Show tasks and notes in a picture of the verb's own, not as bars; before the first of them."""
        self._display = display

    def write_note(self, text: str) -> None:
        """Write a line to standard error; the caller has made it safe."""
        with contextlib.suppress(OSError):  # a terminal that hung up must not end the work
            self._err.write(text + "\n")
            self._err.flush()

    def note_hanging(self, begin: str, text: str) -> None:
        """Write a sentence to standard error, wrapped on a terminal; the caller has made it safe."""
        width = measure_width()
        lines = wrap_hanging(begin, text, width) if self._err.isatty() else [begin + text]
        self.write_note("\n".join(lines))

    @property
    def _heads(self) -> Heads:
        return SHIM_HEADS if self.options.shim else OWN_HEADS

    @property
    def is_interactive(self) -> bool:
        """Whether somebody can answer a question."""
        return sys.stdin is not None and sys.stdin.isatty() and self._err.isatty()

    @property
    def is_terminal(self) -> bool:
        """Whether somebody reads the result as it is written."""
        return self._out.isatty()

    def paint(self, text: str, meaning: str) -> str:
        """The text in the colour of `meaning`: good, bad, warning, note, dim or a job's state; for `print` and tables.

        Only terminals get colours, and not with --json or NO_COLOR. Pad the text before: `paint(f"{word:8}", "good")`.
        """
        if self.json or not self._has_style(self._out):
            return text
        painted = paint_text(escape_controls(text), meaning)
        self._painted.add(painted)
        return painted

    def print(self, text: str = "") -> None:
        """Write a line of the result for people; with --json nothing, because standard output then is JSON."""
        if not self.json:
            with self._undisturbed():
                self._out.write(self._make_safe(text) + "\n")

    def print_hanging(self, begin: str, text: str, *, indent: int | None = None) -> None:
        """Write `begin` and a text; on a terminal it is wrapped, and stands to the right of where it began.

        `indent`: where lines after the first begin instead.
        """
        if not self.is_terminal or self.json:
            self.print(f"{begin}{text}".rstrip())
            return
        for line in wrap_hanging(begin, text, measure_width(), indent):
            self.print(line)

    def print_json(self, value: object) -> None:
        """Write the result as JSON, whether or not --json was given."""
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
        with self._undisturbed():
            self._out.write((escape_json(text) if self.is_terminal else text) + "\n")

    def print_table(
        self, headings: Sequence[str], rows: Sequence[Sequence[object]], *, is_first_whole: bool = False
    ) -> None:
        """Write a table: drawn on a terminal that is wide enough, aligned plain text elsewhere; with --json nothing.

        `is_first_whole`: cells of the first column, which people copy, are never broken.
        """
        if self.json:
            return
        cells = [[self._make_safe(str(cell)) for cell in row] for row in rows]
        with self._undisturbed():
            if self._has_style(self._out) and _has_room(headings, cells, measure_width()):
                _draw_table(self._out, headings, cells, is_first_whole=is_first_whole)
            else:
                self._out.write(_align_table(headings, cells))

    def page_markdown(self, text: str, *, widest: int) -> None:
        """Write a page of Markdown for people: on a terminal through its pager, elsewhere as plain text."""
        from kedge.system.process import page_text  # late: only guides are paged

        columns = min(measure_width(), widest) if self.is_terminal else _PLAIN_COLUMNS
        shown = _render_markdown(text, max(columns, _NARROWEST), color=self._has_style(self._out))
        if not self.is_terminal or not page_text(shown, self.environ):
            with self._undisturbed():
                self._out.write(shown)

    def clear(self) -> None:
        """Begin a terminal's screen anew; elsewhere an empty line parts one picture from the next."""
        with self._undisturbed():
            self._out.write("\033[H\033[2J" if self._has_style(self._out) else "\n")
            self._out.flush()

    def write_bytes(self, data: bytes) -> None:
        """Write raw bytes to standard output."""
        with self._undisturbed():
            self._out.flush()
            self._out.buffer.write(data)
            self._out.buffer.flush()

    def confirm(self, question: str, *, assume: bool = False) -> bool:
        """Ask yes or no; `assume` (from --force or --yes) answers yes; without a terminal it is an error."""
        if assume:
            return True
        return self.ask(f"{question} [y/N] ").strip().lower() in ("y", "yes")

    def ask(self, prompt: str) -> str:
        """Ask for a line of text on the terminal."""
        self._require_terminal(prompt)
        with self._undisturbed():
            self._err.write(escape_controls(prompt))
            self._err.flush()
            return sys.stdin.readline().rstrip("\n")

    def ask_secret(self, prompt: str) -> str:
        """Ask for a password or passphrase without showing it."""
        import getpass  # late: few commands ask

        self._require_terminal(prompt)
        with self._undisturbed():
            return getpass.getpass(escape_controls(prompt), self._err)

    def _make_safe(self, text: str) -> str:
        """A result for people: no image, server or name can steer the terminal; files and pipes get it as it is.

        Colours come through where `paint` made them, and nowhere else.
        """
        if not self.is_terminal:
            return text
        if not self._painted or "\033" not in text:
            return escape_controls(text)
        parts = re.split("(" + "|".join(map(re.escape, self._painted)) + ")", text)
        return "".join(part if part in self._painted else escape_controls(part) for part in parts)

    def close(self) -> None:
        """Take down the bars and flush; called once at the end, also after an error."""
        if self._progress is not None:
            self._progress.close()
        with contextlib.suppress(ValueError):  # a stream that somebody closed
            self._out.flush()

    def _require_terminal(self, prompt: str) -> None:
        if not self.is_interactive:
            raise UsageError(
                f"cannot prompt for '{prompt.strip().rstrip(':')}': no terminal",
                hint="run it in a terminal, or give the answer as an option (see --help)",
            )

    def _has_style(self, stream: TextIO) -> bool:
        return has_style(stream, self.options, self.environ)

    def _choose_display(self) -> Display | None:
        if self._display is not None or self.quiet:
            return self._display
        if self._err.isatty() and self.environ.get("TERM", "dumb") != "dumb":
            self._bars = _BarDisplay(self._err, color=self._has_style(self._err))
            return self._bars
        return None if self.json else PlainDisplay(self.write_note, self._heads.note)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Take bars off the terminal while something else is written to it."""
        if self._bars is None:
            yield
            return
        self._bars.pause()
        try:
            yield
            self._out.flush()
        finally:
            self._bars.resume()


def has_style(stream: TextIO, options: GlobalOptions, environ: Mapping[str, str]) -> bool:
    """Whether colours and lines are welcome on a stream."""
    if options.nocolor or environ.get("NO_COLOR"):
        return False
    return stream.isatty() and environ.get("TERM", "dumb") != "dumb"


def paint_text(text: str, meaning: str) -> str:
    """The text in the colour of its meaning, for a stream that `has_style`; a meaning without a colour leaves it."""
    colour = _COLOURS.get(meaning)
    return f"\033[{colour}m{text}\033[0m" if colour and text else text


def wrap_hanging(begin: str, text: str, width: int, indent: int | None = None) -> list[str]:
    """The lines of a text that follows `begin`; words stay whole, as somebody may copy them."""
    import textwrap  # late: few verbs write sentences

    plain = _COLOUR_CODES.sub("", begin)  # columns are counted in visible characters
    hang = " " * min(len(plain) or _HANG if indent is None else indent, width // 2)
    room = max(width, _NARROWEST)
    first, blank, rest = begin.partition(" ")
    if len(plain) > room and first and blank and rest.strip():  # a name as long as the line stands alone
        return [first, *wrap_hanging(hang + rest, text, width, indent)]
    lines = textwrap.wrap(
        text, room, initial_indent=plain, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
    )
    return [begin + lines[0][len(plain) :], *lines[1:]] if lines else [begin.rstrip()]


def _align_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as aligned plain text, easy to cut and to read in a log; the last column is not padded."""
    lines = [[heading.upper() for heading in headings], *rows]
    widths = [max(_measure_text(line[column]) for line in lines) for column in range(len(headings))]
    text = ""
    for line in lines:
        padded = [cell + " " * (width - _measure_text(cell)) for cell, width in zip(line[:-1], widths, strict=False)]
        text += "  ".join([*padded, *line[-1:]]).rstrip() + "\n"
    return text


def _has_room(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether a table can be drawn without breaking words, which nobody can read or copy then."""
    longest = _find_longest_words(headings, rows)
    return sum(longest) + 3 * len(longest) <= width


def _find_longest_words(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The columns that the longest word of each column of a table takes."""
    columns = zip(headings, *rows, strict=False)
    return [max(_measure_text(word) for cell in column for word in (cell.split() or [""])) for column in columns]


def _measure_text(text: str) -> int:
    """Count the columns of a text: colours take none."""
    return len(_COLOUR_CODES.sub("", text)) if "\033" in text else len(text)


def _render_markdown(text: str, columns: int, *, color: bool) -> str:
    import io  # late, all of it: only guides are Markdown

    from rich.console import Console as RichConsole
    from rich.markdown import Markdown

    page = io.StringIO()
    console = RichConsole(file=page, width=columns, force_terminal=color, no_color=not color, highlight=False)
    console.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"))
    lines = [line if color else line.rstrip() for line in page.getvalue().splitlines()]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line.strip() or before.strip()]
    return "\n".join(kept).strip("\n") + "\n"


def _draw_table(
    stream: TextIO, headings: Sequence[str], rows: Sequence[Sequence[str]], *, is_first_whole: bool
) -> None:
    from rich import box
    from rich.console import Console as RichConsole
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widest = max((len(_COLOUR_CODES.sub("", row[0])) for row in rows), default=0) if is_first_whole else 0
    for place, (heading, word) in enumerate(zip(headings, _find_longest_words(headings, rows), strict=True)):
        is_whole = is_first_whole and place == 0
        table.add_column(heading, overflow="fold", no_wrap=is_whole, min_width=widest if is_whole else word)
    for row in rows:
        table.add_row(*(Text.from_ansi(cell) for cell in row))  # Text: no markup in names that users chose
    console = RichConsole(file=stream, highlight=False)
    console.print(table, width=max(console.width, widest + 1), crop=False)


class _BarDisplay:
    """Bars on a terminal: several at once, with speed and time left, gone when all is done."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._color = color
        self._bars: Bars | None = None
        self._known: dict[int, Any] = {}
        self._is_paused = False
        self._is_refused = False

    def begin(self, task: CountedTask) -> None:
        """Show one more bar."""
        if self._bars is None and not self._is_refused:
            self._bars = _make_bars(self._stream, color=self._color)
        self._start()
        if self._bars is not None:
            self._known[id(task)] = self._bars.add_task(task.label, total=task.total, amount="", rate="")

    def update(self, task: CountedTask) -> None:
        """Move a bar."""
        known = self._known.get(id(task))
        if self._bars is None or known is None:
            return
        amount = format_amount(task.done, task.unit)
        if task.total:
            amount += f" of {format_amount(task.total, task.unit)}"
        rate = format_amount(round(task.done / max(task.elapsed(), 1e-3)), task.unit) + "/s"
        self._bars.update(known, completed=task.done, amount=amount, rate=rate)

    def end(self, task: CountedTask) -> None:
        """Take a bar away."""
        known = self._known.pop(id(task), None)
        if self._bars is not None and known is not None:
            self._bars.remove_task(known)

    def line(self, text: str) -> None:
        """Write a line above the bars."""
        if self._bars is not None and not self._is_paused:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(text + "\n")
            self._stream.flush()

    def pause(self) -> None:
        """Take all bars off the screen for a moment."""
        self._is_paused = True
        if self._bars is not None:
            self._bars.stop()

    def resume(self) -> None:
        """Put the bars back."""
        self._is_paused = False
        if self._bars is not None and self._known:
            self._start()

    def close(self) -> None:
        """Take all bars off the screen for good."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _start(self) -> None:
        """Show the bars, which needs a thread; nothing happens when they are shown already."""
        if self._bars is None or self._is_paused:
            return
        try:
            self._bars.start()
        except RuntimeError:  # no thread to be had under a process limit: the bars are a luxury, the work is not
            self._bars.console.show_cursor(True)
            self._bars, self._is_refused = None, True


def _make_bars(stream: TextIO, *, color: bool) -> Bars:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[amount]}", justify="right"),
        TextColumn("{task.fields[rate]}", justify="right"),
        TimeRemainingColumn(compact=True),
        console=RichConsole(file=stream, no_color=not color, highlight=False),
        transient=True,
        refresh_per_second=8,
        redirect_stdout=False,
        redirect_stderr=False,
    )
