# SPDX-License-Identifier: BSD-3-Clause
"""`kedge rank [--packed] ORDER -- exec …`: one rank of a launch, or one node's ranks. Launchers call it; no user does.

ORDER is a word of JSON (`launch/plan.py`). With --packed it is everything behind it as well, in base64: qrsh hands
words to a shell.
"""

from __future__ import annotations

import os

from kedge.base.rank_variables import OWN_TOKEN
from kedge.cli.container import open_standard_streams, report, run_words, write_message
from kedge.container.options import RunOptions
from kedge.launch.order import RankOrder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run_rank(words: Sequence[str]) -> int:
    """Become the rank's program; returns only where that fails, or when the ranks of a node have ended."""
    open_standard_streams()
    try:
        order, command = _read_words(words)
        if order.node >= 0:
            return _start_node(order, command)
        from kedge.launch.become_rank import prepare_rank  # late: one of two

        start = prepare_rank(order, command, os.environ)
        start.apply(os.environ)
        token = os.environ.pop(OWN_TOKEN, "")  # a launcher that hands no variables on starts ranks all the same
        if token:
            write_message(f"{token} {start.rank.rank} {os.uname().nodename} {os.getpid()}")
    except BaseException as problem:
        return report(problem, ["rank", *words], RunOptions())
    return run_words(start.words[0], start.words[1:])


def _read_words(words: Sequence[str]) -> tuple[RankOrder, list[str]]:
    if list(words[:1]) == ["--packed"]:
        import base64  # late: few launchers need it
        import json

        try:
            words = json.loads(base64.urlsafe_b64decode("".join(words[1:2])))
        except (ValueError, RecursionError):
            words = ()
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            words = ()
    if len(words) < 3 or words[1] != "--":
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError("kedge rank needs an order and a command", hint="use 'kedge launch', which starts it")
    return RankOrder.decode(words[0]), list(words[2:])


def _start_node(order: RankOrder, words: list[str]) -> int:
    from kedge.cli.signals import Terminated, raised_signals  # late: only here
    from kedge.launch.start_node import start_node

    try:
        with raised_signals():
            return start_node(order, words, os.environ)
    except (Terminated, KeyboardInterrupt) as end:  # the launch says so, once
        return 128 + getattr(end, "number", 2)
