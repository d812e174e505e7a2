# SPDX-License-Identifier: BSD-3-Clause
"""Directives of the two schedulers whose command is `qsub`: ours, a site's and a user's become one list of them.

A user's directive replaces ours of the same option; of options that hold resources, only those of the same name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from kedge.base.frozen import frozen
from kedge.cluster.job import Job, JobArray
from kedge.cluster.output_pattern import make_file_name, split_pattern
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.shell_words import quote, require_word
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob, RequestRefused

Words = tuple[str, ...]  # an option and its values

_BEGIN = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?")
_OPTION = re.compile(r"-[^0-9]")  # -p -400: the second is a value


@frozen
class Grammar:
    """How one of the two writes its directives."""

    title: str
    prefix: str  # #$ or #PBS
    keyed: tuple[str, ...]  # options whose value is a list of NAME=VALUE
    is_attached: bool  # an option is one letter, and its value may follow without a blank


def merge_directives(ours: Sequence[Words], job: Job, site: Site, grammar: Grammar) -> list[Words]:
    """What stands in the script: ours, less what the site and the user drop, and what they add."""
    lines = list(ours)
    for added, dropped in (
        (site.directives, site.drop_directives),
        (job.directives, job.drop_directives),
    ):
        lines = [each for each in lines if not _is_dropped(each, dropped, grammar)]
        for text in added:
            new = read_directive(text, grammar)
            keys = {key for call in new for key in _find_keys(call, grammar)}
            lines = [each for each in lines if not keys & _find_keys(each, grammar)] + new
    return lines


def read_directive(text: str, grammar: Grammar) -> list[Words]:
    """The options in a line that somebody wrote, with or without the scheduler's prefix."""
    line = text.strip().removeprefix(grammar.prefix).strip()
    hint = f"write it as in a script: {grammar.prefix} -l NAME=VALUE"
    if not _OPTION.match(line) or any(mark in line for mark in "\n\r\0"):
        raise InvalidJob(f"'{text}' is no directive of {grammar.title}", context={"key": "directives"}, hint=hint)
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise InvalidJob(f"'{text}' cannot be read: {problem}", context={"key": "directives"}, hint=hint) from None
    options: list[Words] = []
    for word in words:
        if not _OPTION.match(word):
            options[-1] = (*options[-1], word)
        elif grammar.is_attached and len(word) > 2 and not word.startswith("--"):
            options.append((word[:2], word[2:]))
        else:
            options.append((word,))
    return options


def write_directive(words: Words, grammar: Grammar) -> str:
    """A line of the script."""
    return f"{grammar.prefix} " + " ".join(_quote(word) for word in words)


def choose_account(job: Job, site: Site, option: str) -> list[str]:
    """Words of the command line; empty where the site takes the account from the script, or none is known."""
    account = job.account or site.account
    if not account or not site.account_on_command_line:
        return []
    return [site.account_option or option, require_word(account, "account")]


def fill_gpu_type(pattern: str, job: Job, site: Site, queue: Queue | None, example: str) -> str:
    """The site's pattern of a GPU request with the type filled in; `example` is one that has a type."""
    kind = job.gpu_type or (queue.gpu_type if queue is not None else "")
    if job.gpu_type and "{type}" not in pattern:
        raise RequestRefused(
            f"the site '{site.name}' has no words for the type of a GPU, so '{job.gpu_type}' cannot be asked for",
            hint=f"leave out the type, or put it into the profile: gpu_directive = '{example}'",
        )
    if "{type}" in pattern and not kind:
        raise RequestRefused(f"the site '{site.name}' wants to know which GPUs", hint="name the type: --gpu-type TYPE")
    return pattern.replace("{type}", require_word(kind, "gpu_type"))


def make_job_name(name: str, limit: int) -> str:
    """The name as the scheduler takes it: letters, digits and ._+- behind a letter. The script has the exact one."""
    text = re.sub(r"[^A-Za-z0-9._+-]", "_", name)[:limit]
    return text if text[:1].isalpha() else f"j{text}"[:limit]


def redirect_output(job: Job, place: ScriptContext) -> tuple[str, ...]:
    """Lines of the script that send its output where the description says; a second attempt keeps that of the first."""
    output = f"exec {_redirect(job, place.output)}"
    return (f"{output} {f'2{_redirect(job, place.error)}' if place.error else '2>&1'} || exit 1",)


def _redirect(job: Job, pattern: str) -> str:
    """A file whose name has the job's id is its alone; another begins anew."""
    return f"{'>>' if '{id}' in pattern else '>'}{write_output(job, pattern)}"


def write_output(job: Job, pattern: str) -> str:
    """The name of a file as a word of shell."""
    values = {
        "{name}": quote(make_file_name(job.name)),
        "{id}": '"${KEDGE_JOB_ID%%[!0-9]*}"',
        "{index}": '"$KEDGE_ARRAY_INDEX"' if job.array else "",
    }
    return "".join(values[part] if part in values else quote(part) for part in split_pattern(pattern))


def write_begin(text: str) -> str:
    """A day and time as `qsub -a` takes them, from how Slurm and most people write them; its own are kept."""
    match = _BEGIN.fullmatch(text)
    if match is None:
        return require_word(text, "begin")
    day, hour, minute, second = match.groups()
    return f"{day.replace('-', '')}{hour or '00'}{minute or '00'}{f'.{second}' if second else ''}"


def write_array(array: JobArray, *, is_lookup: bool) -> str:
    """The range that the scheduler counts."""
    each = array.ranges[0]
    if is_lookup:
        return f"1-{len(array)}"
    return f"{each.first}-{each.last}" + (f":{each.step}" if each.step != 1 else "")


def _find_keys(words: Words, grammar: Grammar) -> set[str]:
    option = words[0]
    if option not in grammar.keyed:
        return {option}
    pieces = ",".join(words[1:]).split(",")
    return {f"{option} {piece.partition('=')[0]}" for piece in pieces}


def _is_dropped(words: Words, dropped: Iterable[str], grammar: Grammar) -> bool:
    names = {name for key in _find_keys(words, grammar) for name in (key, *key.split(" ", 1), key.split(" ")[0][1:])}
    return any(each.strip().removeprefix(grammar.prefix).strip() in names for each in dropped)


def _quote(word: str) -> str:
    if not re.search(r"[\s\"']", word) and word:
        return word
    mark = '"' if '"' not in word else "'"
    if mark in word:
        raise InvalidJob(
            f"'{word}' has both kinds of quotes, and a directive can hold one", context={"key": "directives"}
        )
    return f"{mark}{word}{mark}"
