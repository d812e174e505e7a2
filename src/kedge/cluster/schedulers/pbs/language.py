# SPDX-License-Identifier: BSD-3-Clause
"""How qsub of PBS and Torque reads scripts."""

from __future__ import annotations

import re
from collections import deque

from kedge.cluster.schedulers.directive import CutOption
from kedge.cluster.schedulers.language import Language, LineEnd
from kedge.cluster.schedulers.pbs import FACTS
from kedge.cluster.schedulers.pbs.script_reader import READERS

_VALUES = "aAcCdDeFhiJjkKlLmMnNopPqrRStTuvwW"
_FLAGS = "fIVXxzGh"


def _cut(words: deque[str]) -> CutOption:
    word = words.popleft()
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    letter = word[1]
    if letter in _FLAGS and letter not in _VALUES:
        if len(word) > 2:
            words.appendleft(f"-{word[2:]}")
        return CutOption(word[:2])
    if letter in _VALUES:
        if word[2:] or letter == "h":
            return CutOption(word[:2], word[2:] or None)
        value = words.popleft() if words else None
        return CutOption(word[:2], value, "" if value else f"{word[:2]} wants a value")
    value = words.popleft() if words and not words[0].startswith("-") else None
    return CutOption(word, value, "unknown")


LANGUAGE = Language(
    FACTS,
    _cut,
    READERS,
    may_be_indented=True,
    has_comments=False,
    has_escapes=True,
    line_end=LineEnd.JOINED,
    ignores=":",
    refuses_dos=True,
    refusable={"arrays": ("-t", "-J")},
    queue_options=("-q",),
    path_options=("-o", "-e", "-d"),
    path_variables=re.compile(r"\$\{?(HOME|USER|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID|PBS_JOBID|PBS_JOBNAME)\b\}?|^~(?=/)"),
    has_host_in_paths=True,
    home_warning=("a PBS job runs in the home directory", 'begin with: cd "$PBS_O_WORKDIR"'),
)
