# SPDX-License-Identifier: BSD-3-Clause
"""What the probe prints: one JSON object per line, found among whatever else the ranks and their launcher print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kedge.base.frozen import JsonValue, frozen

MARK = '{"kedge":"'  # every line of the probe begins so; a launcher may put a label before it
_LONGEST = 64 << 10  # characters of a line that are looked at


@frozen
class RankAnswer(JsonValue):
    """What MPI told one process: which rank it is, of how many."""

    rank: int
    size: int
    host: str = ""
    pid: int = 0
    task: int = -1  # the number that the launcher gave the process; -1: unknown
    has_met: bool = False  # it exchanged data with all ranks of its world


@frozen
class ProbeFailure(JsonValue):
    """Why the probe could not answer in one process."""

    reason: str  # a sentence of the probe
    task: int = -1
    host: str = ""


def read_lines(text: str | Iterable[str]) -> Iterator[dict[str, Any]]:
    """The probe's objects, in the order of the text. Lines that are not the probe's, or damaged, are passed over."""
    for line in text.splitlines() if isinstance(text, str) else text:
        place = line[:_LONGEST].find(MARK)
        if place < 0:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(line, place)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("kedge"), str):
            yield value


def read_answers(text: str | Iterable[str]) -> list[RankAnswer]:
    """One answer per process that found out its rank, by task, then rank."""
    answers: dict[tuple[str, int], RankAnswer] = {}
    met: set[tuple[str, int]] = set()
    for value in read_lines(text):
        key = str(value.get("host", "")), _number(value, "pid")
        if value["kedge"] == "world" and _number(value, "size") > 0:
            answers[key] = RankAnswer(
                _number(value, "rank"), _number(value, "size"), key[0], key[1], _number(value, "task")
            )
        elif value["kedge"] == "met":
            met.add(key)
    made = [RankAnswer(each.rank, each.size, *key, each.task, key in met) for key, each in answers.items()]
    return sorted(made, key=lambda each: (each.task, each.rank, each.host, each.pid))


def read_failures(text: str | Iterable[str]) -> list[ProbeFailure]:
    """What the probe said where it could not answer."""
    return [
        ProbeFailure(str(value.get("reason", "")), _number(value, "task"), str(value.get("host", "")))
        for value in read_lines(text)
        if value["kedge"] == "failure"
    ]


def _number(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name, -1)
    return found if isinstance(found, int) and not isinstance(found, bool) else -1
