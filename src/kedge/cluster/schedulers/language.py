# SPDX-License-Identifier: BSD-3-Clause
"""How a scheduler reads a batch script: which lines are directives, how they are cut, what each option asks for.

Everything that the readers and rules of `jobs/scripts/` need to know about one scheduler is a field of its `Language`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kedge.cluster.schedulers.directive import CutOption, cut_any
from kedge.cluster.schedulers.facts import SchedulerFacts
from kedge.cluster.schedulers.recognised import FLUX, LSF
from kedge.cluster.schedulers.script_request import Reader


class LineEnd(Enum):
    """What a backslash at the end of a directive does."""

    KEPT = "it is a character of the value"
    DROPPED = "it is overlooked"
    JOINED = "the directive goes on in the next line"


def _accept(_option: str, _value: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Language:
    """One scheduler's reading of scripts."""

    facts: SchedulerFacts
    cut: Callable[[deque[str]], CutOption] = cut_any  # takes the first option from the words
    readers: Mapping[str, Reader] | None = None  # by option; None: kedge does not read its directives
    check_value: Callable[[str, str], str] = _accept  # why an option's value is refused; empty: it is not
    readers_refuse: bool = True  # what a reader cannot read, the scheduler refuses, too
    # lines
    pattern: re.Pattern[str] | None = None  # some line of the script fits, or none is a directive; None: all are
    may_be_indented: bool = False
    may_have_gap: bool = False  # between # and the word
    has_any_case: bool = False
    has_comments: bool = True  # a # in a directive begins one
    has_escapes: bool = False  # a backslash in a directive is the shell's
    line_end: LineEnd = LineEnd.KEPT
    reads_to_end: bool = False  # not only above the first command
    reads_inner_texts: bool = False  # those of here documents
    ignores: str = ""  # what lines begin with that are neither commands nor directives
    also_reads: tuple[str, ...] = ()  # schedulers whose directives it takes as well
    ignore_others: str = ""  # the directive that makes it leave them
    separators: tuple[str, ...] = ()  # words between the parts of a job whose nodes differ
    # what it refuses
    needs_shebang: bool = False
    refuses_dos: bool = False  # lines that end with \r\n
    added: Mapping[str, str] = field(default_factory=dict)  # options that come with a plugin or a later version
    remedies: Mapping[str, str] = field(default_factory=dict)  # for options that it does not know
    long_options: Sequence[str] = ()  # among which a misspelled one is looked for
    command_line_only: Mapping[str, str] = field(default_factory=dict)  # options, and a sentence about each
    stray_word: str = ""  # the remedy for a word that is no option
    refusable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # options by what a site may refuse
    # what options mean
    queue_options: tuple[str, ...] = ()
    resource_option: str = ""  # the one whose value may name a queue: -l rt_F=2
    repeatable: tuple[str, ...] | None = None  # options that may stand twice; None: all
    path_options: tuple[str, ...] = ()  # those that name files
    path_variables: re.Pattern[str] | None = None  # what is replaced in them
    path_remedy: str = ""  # what to write instead of a variable
    has_host_in_paths: bool = False  # HOST:PATH
    task_in_output: re.Pattern[str] | None = None  # what tells the output files of an array's tasks apart
    home_warning: tuple[str, str] | None = None  # what to say of a job that runs in the home directory; the remedy
    has_tasks: bool = False  # it gives a job tasks, which a launcher starts
    has_gpu_options: bool = False  # GPUs come with options only, and not with resources of any name

    @property
    def name(self) -> str:
        """The scheduler's."""
        return self.facts.name

    @property
    def is_read(self) -> bool:
        """Whether kedge knows what its directives ask for."""
        return self.readers is not None

    def cut_all(self, words: Sequence[str]) -> list[CutOption]:
        """The options in the words of one directive line, or of a launcher that takes the same ones."""
        left = deque(words)
        options = []
        while left:
            options.append(self.cut(left))
        return options


LANGUAGES = {LSF.name: Language(LSF, line_end=LineEnd.DROPPED)}
LANGUAGES[FLUX.name] = Language(FLUX, may_have_gap=True, has_any_case=True, line_end=LineEnd.DROPPED)
