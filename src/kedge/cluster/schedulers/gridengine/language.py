# SPDX-License-Identifier: BSD-3-Clause
"""How qsub of Grid Engine reads scripts: tried against 8.1.9."""

from __future__ import annotations

import re
from collections import deque

from kedge.cluster.schedulers.directive import CutOption
from kedge.cluster.schedulers.gridengine import FACTS
from kedge.cluster.schedulers.gridengine.script_reader import READERS
from kedge.cluster.schedulers.language import Language

_OPTIONS = """
a ac adds ar A binding C c ckpt clearp clears dc display dl e hold_jid hold_jid_ad h i j js jsv l m M masterq mods N
o ot P p pe pty q r rdi rou S sc shell si soc stdin sync t tc tcon v w wd
"""
_VALUES = frozenset(_OPTIONS.split())
_TWICE = ("pe",)  # followed by a name and a number
_FLAGS = ("clear", "cwd", "hard", "soft", "notify", "V", "terse", "verify")
_BOOLEAN = ("b", "R", "nostdin", "par", "now")


def _cut(words: deque[str]) -> CutOption:
    word = words.popleft()
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    name = word[1:]
    if name in _TWICE:
        value = " ".join(words.popleft() for _ in range(min(2, len(words))))
        return CutOption(word, value or None, "" if " " in value else f"{word} wants a name and a number")
    if name in _BOOLEAN or name in _VALUES:
        if not words:
            return CutOption(word, None, f"{word} wants a value")
        return CutOption(word, words.popleft())
    if name in _FLAGS:
        return CutOption(word)
    if words and not words[0].startswith("-"):
        return CutOption(word, words.popleft(), "unknown")
    return CutOption(word, None, "unknown")


LANGUAGE = Language(
    FACTS,
    _cut,
    READERS,
    # `#$` is short, and elsewhere begins an ordinary comment, such as `#$HOME is ...`
    pattern=re.compile(r"#\$[ \t]*-[A-Za-z]"),
    has_any_case=True,
    reads_to_end=True,
    reads_inner_texts=True,
    stray_word="Grid Engine takes every line that begins with #$ for options: write '# $' in a comment",
    # ABCI's: its own qsub takes it, and Grid Engine's does not
    command_line_only={"-g": "the group (-g) goes on the command line of qsub, never into the script"},
    refusable={"arrays": ("-t",)},
    queue_options=("-q",),
    resource_option="-l",
    path_options=("-o", "-e", "-wd"),
    path_variables=re.compile(r"\$\{?(HOME|USER|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID)\b\}?|^~(?=/)"),
    has_host_in_paths=True,
    home_warning=("without -cwd or -wd the job runs in the home directory", "add #$ -cwd"),
)
