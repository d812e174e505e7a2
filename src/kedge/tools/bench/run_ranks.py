# SPDX-License-Identifier: BSD-3-Clause
"""Runs one command on all ranks of a launch, and returns what it prints instead of showing it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kedge.errors import LaunchFailed
from kedge.launch.check_world import INSIDE, bring_probe
from kedge.launch.follow_output import RankFailure
from kedge.launch.plan import LaunchPlan
from kedge.launch.probe.answers import MARK, read_failures
from kedge.launch.probe.words import find_probe, probe_words
from kedge.launch.run_plan import run_plan

_SHOWN = 12  # lines of an error
_LONGEST = 16 << 20  # characters that are kept


class _Kept:
    """What the ranks print: the results, and the rest for messages."""

    def __init__(self, result: tuple[str, ...] = ()) -> None:
        self.has_result = False
        self._result = result
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._size = 0

    def write(self, is_error: bool, text: str) -> None:
        """Keep a line."""
        self._size += len(text)
        self.has_result = self.has_result or (bool(self._result) and all(part in text for part in self._result))
        if self._size < _LONGEST:
            (self.errors if is_error else self.lines).append(text.rstrip("\n"))


def run_on_ranks(
    plan: LaunchPlan, environ: Mapping[str, str], seconds: float, result: tuple[str, ...] = ()
) -> list[str]:
    """The lines that the plan's command prints on all ranks; raises LaunchFailed where it fails or is late.

    `result` are parts of its last line, after which only the end of its libraries is left: some hang there.
    """
    return _run(plan, None, environ, seconds, result)


def run_probe(plan: LaunchPlan, environ: Mapping[str, str], seconds: float, command: str, **numbers: int) -> list[str]:
    """What the probe prints on all ranks."""
    probe = find_probe(os.uname().machine)
    if not probe:
        raise LaunchFailed(f"kedge has no probe for {os.uname().machine}", hint="use --way gloo, or another host")
    words = probe_words(INSIDE, command, numbers=numbers)
    last = f'"bytes":{numbers["bytes"]},' if "bytes" in numbers else ""  # a row per size, this one at the end
    return _run(bring_probe(plan, probe), words, environ, seconds, (f'{MARK}{command}"', last))


def _run(
    plan: LaunchPlan,
    command: Sequence[str] | None,
    environ: Mapping[str, str],
    seconds: float,
    result: tuple[str, ...] = (),
) -> list[str]:
    """`result` are parts of the line after which only MPI_Finalize or the like is left, which hangs in some MPIs."""
    kept = _Kept(result)
    end = run_plan(
        plan, environ, kept.write, _ignore, command=command, timeout=seconds, has_done_all=lambda: kept.has_result
    )
    if end.is_cut:
        return kept.lines
    if end.is_late:
        raise LaunchFailed(
            f"the measurement did not end within {seconds:g} s",
            context=_show_last(kept),
            hint="measure less, or wait longer: --timeout SECONDS",
        )
    if end.status:
        raise _explain(end.status, end.failure, kept)
    return kept.lines


def _explain(status: int, failure: RankFailure | None, kept: _Kept) -> LaunchFailed:
    failures = read_failures(kept.lines)
    who = f"rank {failure.rank} on {failure.host}" if failure and failure.rank is not None else "the launcher"
    return LaunchFailed(
        f"the measurement failed: {who} ended with status {status}" + (f": {failures[0].reason}" if failures else ""),
        context=_show_last(kept),
        hint="try the launch by itself: kedge launch --dry-run IMAGE COMMAND",
    )


def _show_last(kept: _Kept) -> dict[str, str]:
    """What the ranks printed last besides results, for an error."""
    said = [line for line in (*kept.lines, *kept.errors) if line.strip() and '{"kedge":"' not in line][-_SHOWN:]
    return {"said": "\n".join(said)} if said else {}


def _ignore(failure: RankFailure) -> None:
    """Ignore a failure of a rank: it is explained at the end."""
