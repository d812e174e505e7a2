# SPDX-License-Identifier: BSD-3-Clause
"""Before the program: all ranks are started once with a tiny program that asks the image's MPI who they are.

N copies of "rank 0 of 1" end with status 0 and a wrong result: that is found here, and explained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from kedge.base.frozen import replace
from kedge.errors import KedgeError, LaunchFailed, LaunchRefused
from kedge.launch.contracts import Contract
from kedge.launch.follow_output import OutputFollower, RankFailure
from kedge.launch.plan import CONTAINED, LaunchPlan
from kedge.launch.probe.answers import MARK, RankAnswer, read_answers, read_failures
from kedge.launch.probe.words import find_probe, probe_words
from kedge.launch.run_plan import run_plan
from kedge.launch.world import AskedWorld, compare_world

INSIDE = "/.kedge-probe"  # where the probe is in the container, if it is mounted
_SHOWN = 12  # lines of what the launcher said
_LONGEST = 4 << 20
_MET = MARK + 'met"'
_HANGS = (
    "all ranks found each other, but MPI_Finalize did not end within seconds: kedge ended the check. MPICH before 4.2"
    " with UCX may hang there over TCP; if your program does so, too, use an image with a newer MPICH"
)
_OWN, _HINT = "kedge: ", "hint: "  # how a rank's own messages begin
_NOTES = (", which is unpacking ", " may be unpacked twice", " removed the unpacked ")  # not why a rank ended


class _Heard:
    """What the ranks and their launcher print during the check."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.met = 0  # ranks that exchanged data with all others
        self._size = 0

    def write(self, is_error: bool, text: str) -> None:
        """Keep it; errors too: a launcher says there why it gave up."""
        del is_error
        self.met += _MET in text
        if self._size < _LONGEST:
            self._size += len(text)
            self.lines.append(text.rstrip("\n"))

    @property
    def said(self) -> list[str]:
        """The last lines that are no answers."""
        return [line for line in self.lines if line.strip() and MARK not in line][-_SHOWN:]


def check_world(
    plan: LaunchPlan, environ: Mapping[str, str], seconds: float, warn: Callable[[str], None] | None = None
) -> str:
    """A sentence on what was found; raises LaunchRefused where the ranks are not the world that was asked for."""
    probe = find_probe(os.uname().machine)
    if not probe:
        return "world check skipped: kedge has no probe for this CPU"
    heard = _Heard()
    asked_plan = bring_probe(plan, probe)
    follower = OutputFollower(plan.program, heard.write, token=plan.token, is_labelled=plan.program.can_label)
    words = probe_words(INSIDE, "world", library=plan.library)
    end = run_plan(
        asked_plan, environ, heard.write, _ignore, command=words, timeout=seconds, follower=follower,
        has_done_all=lambda: heard.met >= plan.shape.size,
    )  # fmt: skip
    answers, failures = read_answers(heard.lines), read_failures(heard.lines)
    if end.is_late and heard.met < plan.shape.size:
        raise _explain_late(plan, answers, follower, seconds)
    if not answers and failures and not plan.has_mpi:
        return f"world check skipped: {failures[0].reason}"
    problem = compare_world(_describe(plan), answers)
    if problem is None:
        if (end.is_cut or end.is_late) and warn:
            warn(_HANGS)
        return f"world check: {len(answers)} ranks found each other"
    if not answers and end.status:
        raise _explain_failure(end.failure, failures[0].reason if failures else "", heard)
    if not problem.is_fatal:
        return problem.sentence
    raise LaunchRefused(problem.sentence, context=_context(heard), hint=problem.hint or None)


def bring_probe(plan: LaunchPlan, probe: str) -> LaunchPlan:
    """Return the plan with the probe as its command, and without the words of a contract.

    Every rank holds its node's probe open. Where mpirun starts them inside, which closes files, the probe is mounted.
    """
    verb, *others = plan.container
    order = replace(plan.order, contract=str(Contract.NONE), runs_probe=plan.mode != CONTAINED)
    mount = () if order.runs_probe else ("--bind", f"{probe}:{INSIDE}:ro")
    container = (verb.replace("run", "exec"), *mount, *others)
    return replace(plan, container=container, order=replace(order, command_at=order.command_at + len(mount)))


def _describe(plan: LaunchPlan) -> AskedWorld:
    launcher = plan.launcher if plan.mode != CONTAINED else "local"
    hosts = tuple(
        node.name for node, count in zip(plan.shape.nodes, plan.shape.tasks, strict=True) for _ in range(count)
    )
    return AskedWorld(plan.shape.size, hosts, launcher, plan.mpi_type, plan.order.mpi)


def _explain_late(
    plan: LaunchPlan, answers: list[RankAnswer], follower: OutputFollower, seconds: float
) -> LaunchFailed:
    """Names the ranks that hang, and their hosts."""
    known = {answer.rank for answer in answers}
    met = {answer.rank for answer in answers if answer.has_met}
    # who knows its rank waits for the others: it is they that hang
    there = known if len(known) < plan.shape.size else met
    missing = [rank for rank in plan.shape.list_ranks() if rank.rank not in there]
    names = [
        f"rank {rank.rank} on {plan.shape.nodes[rank.node_rank].name}"
        + ("" if rank.rank in follower.ranks else " (never started)")
        for rank in missing[:8]
    ]
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    return LaunchFailed(
        f"the world check did not end within {seconds:g} s: {', '.join(names)}{more} did not "
        + ("answer" if there is known else "exchange data with the others"),
        hint="check these nodes and the network between them; --check-timeout SECONDS waits longer",
    )


def _explain_failure(failure: RankFailure | None, reason: str, heard: _Heard) -> KedgeError:
    """What a rank said itself, where it could not start; else how the launcher ended."""
    own = next((line for line in heard.lines if line.startswith(_OWN) and not _is_note(line)), "")
    if own:
        hint = next((line for line in heard.lines[heard.lines.index(own) :] if line.startswith(_HINT)), "")
        return LaunchRefused(own.removeprefix(_OWN), hint=hint.removeprefix(_HINT) or None)
    who = f"rank {failure.rank}" if failure and failure.rank is not None else "the launcher"
    where = f" on {failure.host}" if failure and failure.host else ""
    return LaunchFailed(
        f"the world check failed: {who}{where} ended with status {failure.status if failure else 1}"
        + (f": {reason}" if reason else ""),
        context=_context(heard),
        hint="the lines above name the cause; --no-check starts the program without this check",
    )


def _is_note(line: str) -> bool:
    return any(note in line for note in _NOTES)


def _context(heard: _Heard) -> dict[str, str]:
    return {"said": "\n".join(heard.said)} if heard.said else {}


def _ignore(failure: RankFailure) -> None:
    """The check explains failures itself."""
