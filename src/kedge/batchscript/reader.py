# SPDX-License-Identifier: BSD-3-Clause
"""The text of a batch script -> BatchScript: what each scheduler reads in it, and where it stops reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kedge.batchscript.containers import find_containers, find_launchers, find_modules
from kedge.batchscript.option_tables import CutOption, cut_options
from kedge.batchscript.script import PREFIXES, TITLES, BatchScript, Directive
from kedge.batchscript.shell import Command, find_commands, read_commands

# a line that is, or was meant as, a directive; what sbatch reads begins in the first column and in capitals
_LINE = re.compile(r"^(?P<lead>[ \t]*)(?P<hash>#+)(?P<gap>[ \t]*)(?P<word>SBATCH|PBS|BSUB|flux:|\$)(?P<rest>.*)$", re.I)
_GRIDENGINE = re.compile(r"#\$[ \t]*-[A-Za-z]")
_SCHEDULER = {"SBATCH": "slurm", "PBS": "pbs", "BSUB": "lsf", "FLUX:": "flux", "$": "gridengine"}
_TRACES = {
    "slurm": re.compile(r"\bSLURM_\w+|\bsrun\b|\bscontrol\b|\bibrun\b|\bsbcast\b"),
    "pbs": re.compile(r"\bPBS_\w+|\bpbsdsh\b"),
    "gridengine": re.compile(r"\bSGE_\w+|\bPE_HOSTFILE\b|\bNSLOTS\b|\bqrsh\b"),
    "lsf": re.compile(r"\bLSB_\w+|\bblaunch\b"),
}
# what sbatch reads besides its own, unless it is told --ignore-pbs
_ALSO_READ = {"slurm": ("pbs", "lsf")}


def read_script(text: str) -> BatchScript:
    """What a script says. Any text can be read; what is wrong with it, the directives and the rules tell."""
    has_mark = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    dos_line = next((number for number, line in enumerate(text.split("\n"), 1) if line.endswith("\r")), 0)
    text = text.replace("\r\n", "\n").rstrip("\r")
    lines = text.split("\n")
    inner = _find_inner(lines)
    # only Grid Engine looks for directives in the texts of here documents, too
    found = [each for each in _find_directives(lines) if each.line not in inner or each.scheduler == "gridengine"]
    scheduler, reason = _guess_scheduler(found, text)
    continued = set(_find_continued(lines))
    end = _find_first_command(lines, continued, scheduler)
    directives = tuple(_judge(each, scheduler, end) for each in found)
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


def split_directive(scheduler: str, text: str) -> tuple[list[str], str, str]:
    """The words of a directive's line, the comment behind them, and what is wrong.

    All cut at blanks and know both kinds of quotes. sbatch and Grid Engine begin a comment at any `#`, even inside a
    word (sbatch takes `\\#` for one that is meant); PBS knows no comments there, and a backslash is the shell's.
    """
    words: list[str] = []
    current: list[str] | None = None  # no list: between words
    quote, position = "", 0
    while position < len(text):
        character = text[position]
        position += 1
        if quote and character == quote:
            quote = ""
        elif quote:
            current = _extend(current, character)
        elif character in "'\"":
            quote, current = character, _extend(current, "")
        elif character == "\\" and (scheduler == "pbs" or text[position : position + 1] == "#"):
            current = _extend(current, text[position : position + 1])
            position += 1
        elif character == "#" and scheduler != "pbs":
            return [*words, *_close(current)], text[position - 1 :], ""
        elif character.isspace():
            words += _close(current)
            current = None
        else:
            current = _extend(current, character)
    return [*words, *_close(current)], "", f"the quote {quote} is not closed" if quote else ""


def _extend(word: list[str] | None, text: str) -> list[str]:
    word = [] if word is None else word
    word.append(text)
    return word


def _close(word: list[str] | None) -> list[str]:
    return [] if word is None else ["".join(word)]


def _find_directives(lines: list[str]) -> Iterator[Directive]:
    is_gridengine = any(_GRIDENGINE.match(line) for line in lines)
    for number, line in enumerate(lines, 1):
        match = _LINE.match(line)
        if match is None or (number == 1 and line.startswith("#!")):
            continue
        scheduler = _SCHEDULER[match["word"].upper()]
        reason = _find_reason(match, scheduler)
        if scheduler == "gridengine" and (reason or not is_gridengine):
            continue  # `#$` is short, and elsewhere begins an ordinary comment, such as `#$HOME is ...`
        if reason and not match["rest"].lstrip().startswith(("-", "hetjob", "packjob")):
            continue  # prose that mentions the word
        words, _, problem = split_directive(scheduler, _find_rest(lines, number, match["rest"], scheduler))
        options = cut_options(scheduler, words) if not problem else [CutOption("", None, problem)]
        for each in _join_words(scheduler, options):
            yield Directive(number, line, scheduler, each.name, each.value, not reason, reason, each.problem)


def _find_inner(lines: list[str]) -> frozenset[int]:
    """The lines of texts that the script writes elsewhere, such as other scripts, with directives of their own."""
    first = next((number for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"), None)
    return frozenset() if first is None else read_commands("\n".join(lines[first - 1 :]), first)[1]


def _find_rest(lines: list[str], number: int, rest: str, scheduler: str) -> str:
    """What stands behind the prefix: sbatch overlooks a backslash at the end, PBS goes on in the next line."""
    while rest.rstrip().endswith("\\") and scheduler != "gridengine":
        rest = rest.rstrip().removesuffix("\\")
        if scheduler != "pbs" or number >= len(lines):
            break
        rest += lines[number]
        number += 1
    return rest


def _find_reason(match: re.Match[str], scheduler: str) -> str:
    if match["lead"] and scheduler != "pbs":
        return "it is indented: a directive begins in the first column"
    if match["hash"] != "#" or (match["gap"] and scheduler != "flux"):
        return "it is a comment"
    if scheduler not in ("gridengine", "flux") and match["word"] != match["word"].upper():
        return f"{PREFIXES[scheduler]} is written in capitals"
    return ""


def _join_words(scheduler: str, options: list[CutOption]) -> Iterator[CutOption]:
    for each in options:
        if scheduler == "slurm" and each.value in ("hetjob", "packjob") and not each.name:
            yield CutOption(each.value)
        else:
            yield each


def _guess_scheduler(found: list[Directive], text: str) -> tuple[str, str]:
    counts: dict[str, int] = {}
    for each in found:
        counts[each.scheduler] = counts.get(each.scheduler, 0) + (100 if each.is_live else 1)
    if counts:
        best = max(counts, key=lambda name: (counts[name], name == "slurm"))
        return best, f"of its {PREFIXES[best]} lines"
    traces = {name: set(pattern.findall(text)) for name, pattern in _TRACES.items()}
    best = max(traces, key=lambda name: len(traces[name]))
    if traces[best]:
        return best, f"it mentions {sorted(traces[best])[0]}"
    return "local", "it has no directives, and mentions no scheduler"


def _find_continued(lines: list[str]) -> Iterator[int]:
    """The lines that belong to a PBS directive before them, which ended with a backslash."""
    is_open = False
    for number, line in enumerate(lines, 1):
        if is_open:
            yield number
        is_open = line.rstrip().endswith("\\") and (is_open or line.lstrip().startswith(PREFIXES["pbs"]))


def _find_first_command(lines: list[str], continued: set[int], scheduler: str) -> int:
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#") or number in continued:
            continue
        if scheduler == "pbs" and line.startswith(":"):  # which PBS overlooks
            continue
        return number
    return len(lines) + 1


def _judge(directive: Directive, scheduler: str, first_command: int) -> Directive:
    """Whether the scheduler that the script is for reads this directive, at this place."""
    if not directive.is_live:
        return directive
    if directive.scheduler != scheduler and directive.scheduler not in _ALSO_READ.get(scheduler, ()):
        reason = f"{TITLES[scheduler]} does not read {PREFIXES[directive.scheduler]} lines"
        return replace(directive, is_live=False, reason=reason)
    if directive.line > first_command and scheduler != "gridengine":  # which reads them to the last line
        reason = f"{TITLES[scheduler]} stops reading directives at the first command, in line {first_command}"
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
