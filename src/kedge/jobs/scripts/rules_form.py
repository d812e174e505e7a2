# SPDX-License-Identifier: BSD-3-Clause
"""Rules about the form of a script: lines that are refused, or not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.base.nearest import propose
from kedge.cluster.schedulers.choose import find_language
from kedge.cluster.schedulers.directive import Directive, show_option
from kedge.jobs.scripts.findings import Case, CheckResult
from kedge.jobs.scripts.reader import split_directive

_EXPANDED = re.compile(r"\$[A-Za-z_{(]|`|^~")
# typographic dashes, also as UTF-8 that was read as Mac Roman or Windows-1252
_DASH = r"(?:[\u2010-\u2015\u2212]|\u201a\u00c4[\u00ee\u00ec]|\u00e2\u20ac[\u201d\u201c])"
_DASHES = re.compile(rf"(?:^|\s)({_DASH}+-?|-{_DASH}+)(?=\w)")


def _submit(case: Case) -> str:
    return case.script.language.facts.submit or "the scheduler"


def _check_supported(case: Case) -> Iterator[CheckResult]:
    language = case.script.language
    if not language.is_read:
        title, prefix = language.facts.title, language.facts.prefix
        line = next((directive.line for directive in case.script.directives if directive.scheduler == language.name), 1)
        yield CheckResult(line, f"kedge does not support {title}: it did not check the {prefix} lines")


def _check_shebang(case: Case) -> Iterator[CheckResult]:
    if case.script.language.needs_shebang and not case.script.shebang and not case.script.has_mark:
        yield CheckResult(1, f"{_submit(case)} refuses a script whose first line does not begin with #!")


def _check_dos(case: Case) -> Iterator[CheckResult]:
    if not case.script.dos_line:
        return
    if case.script.language.refuses_dos:
        yield CheckResult(case.script.dos_line, f"the line has a DOS line end (\\r\\n), which {_submit(case)} refuses")
    else:
        yield CheckResult(case.script.dos_line, "the line has a DOS line end (\\r\\n), which breaks the shell")


def _check_mark(case: Case) -> Iterator[CheckResult]:
    if case.script.has_mark:
        yield CheckResult(1, "the file begins with a byte order mark, so that its first line does not begin with #!")


def _check_after_command(case: Case) -> Iterator[CheckResult]:
    lines: dict[int, list[Directive]] = {}
    for directive in case.script.directives:
        if not directive.is_live and "stops reading" in directive.reason and _is_meant(directive):
            lines.setdefault(directive.line, []).append(directive)
    for number, found in lines.items():
        yield CheckResult(number, f"{' '.join(map(_shown, found))} is ignored: {found[0].reason}")


def _is_meant(directive: Directive) -> bool:
    """Whether it is a directive, and no comment that begins alike, such as `#PBS_NCPUS=4` or `#SBATCH lines are...`."""
    language = find_language(directive.scheduler)
    words = "|".join(("-", *language.separators))
    return bool(re.match(rf"\s*{re.escape(language.facts.prefix)}\s+(?:{words})", directive.raw))


def _check_not_read(case: Case) -> Iterator[CheckResult]:
    for directive in case.script.directives:
        if not directive.is_live and ("indented" in directive.reason or "capitals" in directive.reason):
            yield CheckResult(directive.line, f"{_shown(directive)} is ignored: {directive.reason}")


def _check_disabled(case: Case) -> Iterator[CheckResult]:
    for directive in case.script.directives:
        if not directive.is_live and directive.reason == "it is a comment":
            yield CheckResult(directive.line, f"{_shown(directive)} is switched off: {directive.reason}")


def _check_other_scheduler(case: Case) -> Iterator[CheckResult]:
    own = case.script.language
    lines: set[tuple[int, str]] = set()
    for directive in case.script.directives:
        if (
            directive.scheduler == own.name
            or (directive.line, directive.scheduler) in lines
            or directive.reason == "it is a comment"
        ):
            continue
        lines.add((directive.line, directive.scheduler))
        prefix = find_language(directive.scheduler).facts.prefix
        if directive.is_live:
            yield CheckResult(
                directive.line,
                f"{_submit(case)} reads {prefix} lines too, and takes this one",
                f"delete it, or add {own.ignore_others}",
            )
        elif "does not read" in directive.reason:
            yield CheckResult(
                directive.line, f"the script is for {own.facts.title}, which does not read {prefix} lines"
            )


def _check_variables(case: Case) -> Iterator[CheckResult]:
    for directive in case.script.live:
        value = directive.value or ""
        language = find_language(directive.scheduler)
        is_path = directive.option in language.path_options
        if is_path and language.path_variables:
            value = language.path_variables.sub("", value)
        if directive.option != "--wrap" and _EXPANDED.search(value):
            usual = "write the value out, or give it on the command line"
            remedy = (is_path and language.path_remedy) or usual
            yield CheckResult(
                directive.line, f"nothing is expanded in directives: {_shown(directive)} is taken as it stands", remedy
            )


def _check_hash(case: Case) -> Iterator[CheckResult]:
    """A `#` inside a word, which ends it."""
    seen = set()
    for directive in case.script.live:
        language = find_language(directive.scheduler)
        if directive.line in seen or not language.has_comments:
            continue
        seen.add(directive.line)
        rest = directive.raw.lstrip()[len(language.facts.prefix) :]
        _, comment, _ = split_directive(language, rest)
        before = rest[: len(rest) - len(comment)]
        if comment and before and not before[-1].isspace():
            yield CheckResult(
                directive.line, f"'#' begins a comment here too: the value ends before '{comment.split()[0]}'"
            )


def _check_refused_words(case: Case) -> Iterator[CheckResult]:
    lines = set()
    for directive in case.script.live:
        if (
            not directive.problem
            or directive.problem == "unknown"
            or directive.line in lines
            or _is_copied(directive.value or "")
        ):
            continue
        lines.add(directive.line)
        yield CheckResult(
            directive.line, f"{_submit(case)} refuses this directive: {directive.problem}", _find_word_remedy(directive)
        )


def _find_word_remedy(directive: Directive) -> str:
    language = find_language(directive.scheduler)
    if (directive.value or "").startswith("#"):
        return f"{language.facts.title} knows no comments behind directives: put it into a line of its own"
    return "" if directive.option else language.stray_word


def _check_unknown(case: Case) -> Iterator[CheckResult]:
    for directive in _unknown(case):
        if _near(directive) is None:
            remedy = find_language(directive.scheduler).remedies.get(directive.option, "")
            yield CheckResult(
                directive.line, f"{_submit(case)} does not know {directive.option}, and refuses the script", remedy
            )


def _check_added(case: Case) -> Iterator[CheckResult]:
    for directive in case.script.live:
        if by := find_language(directive.scheduler).added.get(directive.option):
            yield CheckResult(
                directive.line, f"{directive.option} comes with {by}: {_submit(case)} refuses it elsewhere"
            )


def _check_misspelled(case: Case) -> Iterator[CheckResult]:
    for directive in _unknown(case):
        if near := _near(directive):
            yield CheckResult(
                directive.line, f"{_submit(case)} does not know {directive.option}, and refuses the script", near
            )


def _unknown(case: Case) -> Iterator[Directive]:
    for directive in case.script.live:
        has_rule = directive.option in find_language(directive.scheduler).command_line_only
        if directive.problem == "unknown" and not has_rule and not _is_copied(directive.option):
            yield directive


def _near(directive: Directive) -> str | None:
    language = find_language(directive.scheduler)
    if not language.long_options or len(directive.option) < 5 or directive.option in language.remedies:
        return None
    return propose(directive.option, language.long_options)


def _check_values(case: Case) -> Iterator[CheckResult]:
    problems = {directive.line for directive in case.script.live if directive.problem}
    for left in case.request.left:
        if left.is_refused and left.line not in problems:
            yield CheckResult(left.line, f"{_submit(case)} refuses {left.words}: {left.why}")


def _check_repeated(case: Case) -> Iterator[CheckResult]:
    last: dict[str, Directive] = {}
    for directive in case.script.live:
        language = find_language(directive.scheduler)
        if directive.option in language.separators:
            last.clear()
        if language.repeatable is None or not directive.option or directive.option in language.repeatable:
            continue
        earlier = last.get(directive.option)
        if earlier is not None and earlier.value != directive.value:
            yield CheckResult(
                earlier.line, f"{_shown(earlier)} is replaced by {show_option(directive)} in line {directive.line}"
            )
        last[directive.option] = directive


def _check_dashes(case: Case) -> Iterator[CheckResult]:
    live = case.script.live_lines
    for number, line in enumerate(case.script.text.split("\n"), 1):
        code = _cut_comment(line) if number in live else re.sub(r"(?:^|\s)#.*", "", line)
        if _DASHES.search(code):
            yield CheckResult(number, "a long dash from a word processor stands where an option begins")


def _cut_comment(line: str) -> str:
    """A directive without the comment behind it."""
    return re.sub(r"(?<=\s)#.*", "", line)


def _is_copied(text: str) -> bool:
    return _DASHES.search(text) is not None


def _shown(directive: Directive) -> str:
    return show_option(directive) or directive.raw.strip()


CHECKS = {
    "unsupported-scheduler": _check_supported,
    "no-shebang": _check_shebang,
    "dos-lines": _check_dos,
    "byte-order-mark": _check_mark,
    "directive-after-command": _check_after_command,
    "directive-not-read": _check_not_read,
    "directive-disabled": _check_disabled,
    "other-scheduler": _check_other_scheduler,
    "variable-in-directive": _check_variables,
    "hash-in-value": _check_hash,
    "refused-directive": _check_refused_words,
    "unknown-option": _check_unknown,
    "added-option": _check_added,
    "misspelled-option": _check_misspelled,
    "refused-value": _check_values,
    "repeated-option": _check_repeated,
    "copied-dash": _check_dashes,
}
