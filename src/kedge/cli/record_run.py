# SPDX-License-Identifier: BSD-3-Clause
"""`--record` of `exec` and `run`: the program runs in a child, and this process writes the record when it has ended.

Without the option a start becomes the program itself, and loads none of this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from kedge.container.options import RunOptions
from kedge.container.processes.supervise import run_supervised
from kedge.container.start_container import end_with
from kedge.jobs.runs.recorder import RunRecorder, Say, split_status
from kedge.jobs.runs.run_facts import RunRequest, is_silent_rank

_OWN = {"--record": 0, "--record-to": 1}  # and how many words follow


def run_recorded(options: RunOptions, words: Sequence[str], say: Say, start: Callable[[], int]) -> int:
    """Run `start`, which becomes the program, and end as it ends; returns only where another rank records."""
    if is_silent_rank(os.environ):
        return start()
    before = list(words[: len(words) - len(options.arguments) - 1])
    request = RunRequest(
        options.verb,
        options.image,
        tuple(drop_record_options(before)),
        tuple(options.arguments),
        options.record_to,
        has_gpus=options.asks_devices,
    )
    recorder = RunRecorder(request, dict(os.environ), say)
    recorder.begin()
    return run_supervised(
        lambda: end_with(start()),
        with_init=False,
        is_in_job=recorder.is_in_job,
        after=lambda status: recorder.end(*split_status(status)),
    )


def drop_record_options(words: Sequence[str]) -> list[str]:
    """The options without those that ask for a record, and without the `--` behind them."""
    kept: list[str] = []
    skip = 0
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip -= 1
        elif name in _OWN:
            skip = 0 if equals else _OWN[name]
        elif word != "--":
            kept.append(word)
    return kept
