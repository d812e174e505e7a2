# SPDX-License-Identifier: BSD-3-Clause
"""The text of a batch script -> BatchScript: what each scheduler reads in it, and where it stops reading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kedge.base.frozen import replace
from kedge.base.shell_text import Command, find_commands, read_commands
from kedge.cluster.schedulers.choose import find_language, list_languages
from kedge.cluster.schedulers.directive import CutOption, Directive
from kedge.cluster.schedulers.language import Language, LineEnd
from kedge.cluster.schedulers.shell_words import BEFORE_HASH, OUTSIDE_QUOTES, cut_words
from kedge.jobs.scripts.containers import find_containers, find_launchers, find_modules
from kedge.jobs.scripts.script import BatchScript


def read_script(text: str) -> BatchScript:
    """What a script says. Any text can be read; what is wrong with it, the directives and the rules tell."""
    has_mark = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    dos_line = next((number for number, line in enumerate(text.split("\n"), 1) if line.endswith("\r")), 0)
    text = text.replace("\r\n", "\n").rstrip("\r")
    lines = text.split("\n")
    inner = _find_inner(lines)
    languages = {language.name: language for language in list_languages()}
    found = [
        directive
        for directive in _find_directives(lines, languages.values())
        if directive.line not in inner or languages[directive.scheduler].reads_inner_texts
    ]
    scheduler, reason = _guess_scheduler(found, text, languages)
    continued = set(_find_continued(lines, languages.values()))
    end = _find_first_command(lines, continued, languages[scheduler])
    directives = tuple(_judge(directive, languages[scheduler], end) for directive in found)
    taken = {each.line for each in directives if each.is_live} | continued
    body = _find_body(lines, taken)
    commands = _find_commands(lines, body[0][0], taken) if body else ()
    return BatchScript(
        text=text,
        scheduler=scheduler,
        reason=reason,
        shebang=lines[0] if lines[0].startswith("#!") else "",
        directives=directives,
        body=body,
        commands=commands,
        containers=find_containers(commands),
        launchers=find_launchers(commands),
        modules=find_modules(commands),
        dos_line=dos_line,
        has_mark=has_mark,
        inner_lines=inner,
    )


def split_directive(language: Language, text: str) -> tuple[list[str], str, str]:
    """The words of a directive's line, the comment behind them, and what is wrong."""
    escapes = OUTSIDE_QUOTES if language.has_escapes else BEFORE_HASH
    words, comment, quote = cut_words(text, escapes, has_comments=language.has_comments)
    return words, comment, f"the quote {quote} is not closed" if quote else ""


def _find_directives(lines: list[str], languages: Iterable[Language]) -> Iterator[Directive]:
    """Lines that are, or were meant as, directives of any scheduler."""
    by_word = {language.facts.prefix[1:].upper(): language for language in languages if language.facts.prefix}
    words = "|".join(map(re.escape, by_word))
    pattern = re.compile(rf"^(?P<lead>[ \t]*)(?P<hash>#+)(?P<gap>[ \t]*)(?P<word>{words})(?P<rest>.*)$", re.I)
    absent = {
        language.name
        for language in by_word.values()
        if language.pattern is not None and not any(language.pattern.match(line) for line in lines)
    }
    for number, line in enumerate(lines, 1):
        match = pattern.match(line)
        if match is None or (number == 1 and line.startswith("#!")):
            continue
        language = by_word[match["word"].upper()]
        reason = _find_reason(match, language)
        if language.name in absent or (reason and language.pattern is not None):
            continue
        if reason and not match["rest"].lstrip().startswith(("-", *language.separators)):
            continue  # prose that mentions the word
        options = _cut_directive(language, _find_rest(lines, number, match["rest"], language))
        for option in options:
            yield Directive(
                line=number,
                raw=line,
                scheduler=language.name,
                option=option.name,
                value=option.value,
                is_live=not reason,
                reason=reason,
                problem=option.problem,
            )


def _cut_directive(language: Language, text: str) -> list[CutOption]:
    words, _, problem = split_directive(language, text)
    if problem:
        return [CutOption("", None, problem)]
    return [
        CutOption(option.value) if not option.name and option.value in language.separators else option
        for option in language.cut_all(words)
    ]


def _find_inner(lines: list[str]) -> frozenset[int]:
    """The lines of texts that the script writes elsewhere, such as other scripts, with directives of their own."""
    first = next((number for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"), None)
    return frozenset() if first is None else read_commands("\n".join(lines[first - 1 :]), first)[1]


def _find_rest(lines: list[str], number: int, rest: str, language: Language) -> str:
    """What stands behind the prefix, with the lines in which it goes on."""
    while rest.rstrip().endswith("\\") and language.line_end is not LineEnd.KEPT:
        rest = rest.rstrip().removesuffix("\\")
        if language.line_end is LineEnd.DROPPED or number >= len(lines):
            break
        rest += lines[number]
        number += 1
    return rest


def _find_reason(match: re.Match[str], language: Language) -> str:
    if match["lead"] and not language.may_be_indented:
        return "it is indented: a directive begins in the first column"
    if match["hash"] != "#" or (match["gap"] and not language.may_have_gap):
        return "it is a comment"
    if not language.has_any_case and match["word"] != match["word"].upper():
        return f"{language.facts.prefix} is written in capitals"
    return ""


def _guess_scheduler(found: list[Directive], text: str, languages: Mapping[str, Language]) -> tuple[str, str]:
    """The scheduler of most directives, else the one whose names the script uses most; the first of equals."""
    counts = dict.fromkeys(languages, 0)
    for directive in found:
        counts[directive.scheduler] += 100 if directive.is_live else 1
    best = max(counts, key=lambda name: counts[name])
    if counts[best]:
        return best, f"of its {languages[best].facts.prefix} lines"
    traces = {
        name: set(re.findall(language.facts.traces, text))
        for name, language in languages.items()
        if language.facts.traces
    }
    best = max(traces, key=lambda name: len(traces[name]))
    if traces[best]:
        return best, f"it mentions {sorted(traces[best])[0]}"
    return "local", "it has no directives, and mentions no scheduler"


def _find_continued(lines: list[str], languages: Iterable[Language]) -> Iterator[int]:
    """The lines that belong to a directive before them, which ended with a backslash."""
    prefixes = tuple(language.facts.prefix for language in languages if language.line_end is LineEnd.JOINED)
    is_open = False
    for number, line in enumerate(lines, 1):
        if is_open:
            yield number
        is_open = line.rstrip().endswith("\\") and (is_open or line.lstrip().startswith(prefixes))


def _find_first_command(lines: list[str], continued: set[int], language: Language) -> int:
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#") or number in continued:
            continue
        if language.ignores and line.startswith(language.ignores):
            continue
        return number
    return len(lines) + 1


def _judge(directive: Directive, language: Language, first_command: int) -> Directive:
    """Whether the scheduler that the script is for reads this directive, at this place."""
    if not directive.is_live:
        return directive
    title = language.facts.title
    if directive.scheduler not in (language.name, *language.also_reads):
        prefix = find_language(directive.scheduler).facts.prefix
        return replace(directive, is_live=False, reason=f"{title} does not read {prefix} lines")
    if directive.line > first_command and not language.reads_to_end:
        reason = f"{title} stops reading directives at the first command, in line {first_command}"
        return replace(directive, is_live=False, reason=reason)
    return directive


def _find_commands(lines: list[str], first: int, taken: set[int]) -> tuple[Command, ...]:
    """The commands from a line on; directives between them stay as empty lines, so that lines keep their numbers."""
    kept = ["" if number in taken else line for number, line in enumerate(lines[first - 1 :], first)]
    return tuple(find_commands("\n".join(kept), first))


def _find_body(lines: list[str], taken: set[int]) -> tuple[tuple[int, str], ...]:
    numbered = [(number, line) for number, line in enumerate(lines, 1) if number not in taken]
    for index, (_, line) in enumerate(numbered):
        if line.strip() and not line.lstrip().startswith("#"):
            return tuple(numbered[index:])
    return ()
