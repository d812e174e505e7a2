# SPDX-License-Identifier: BSD-3-Clause
"""Before the program: all ranks are started once with a tiny program that asks the image's MPI who they are.

N copies of "rank 0 of 1" end with status 0 and a wrong result: that is found here, and explained.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.errors import KedgeError, LaunchFailed, LaunchRefused
from kedge.launch.contracts import Contract
from kedge.launch.follow_output import OutputFollower, RankFailure
from kedge.launch.plan import CONTAINED, LaunchPlan
from kedge.launch.probe.answers import MARK, RankAnswer, read_answers, read_failures
from kedge.launch.probe.words import find_probe, probe_words
from kedge.launch.run_plan import run_plan

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


# Whether all ranks of a launch are in one world: what MPI told each of them, compared with what was asked for.
#
# MPI that finds no launcher starts as "rank 0 of 1", without an error: N copies of the program run instead of one with
# N ranks. `compare_world` finds that, and names the reason and the option that helps.

_WORLD_SHOWN = 8  # ranks that a sentence names


@frozen
class AskedWorld(JsonValue):
    """What the launch was asked for."""

    size: int
    hosts: tuple[str, ...] = ()  # the node of each rank, in order; empty: unknown
    launcher: str = ""  # srun, ibrun, mpirun, mpiexec, qrsh or local
    mpi_type: str = ""  # what `srun --mpi` got: pmix, pmi2, none; empty: the launcher has none
    family: str = ""  # the image's MPI, such as `Open MPI 4.1.4`; empty: unknown
    mpi_types: tuple[str, ...] = ()  # that srun of this site offers; empty: unknown


@frozen
class WorldProblem(JsonValue):
    """Why the ranks are not the world that was asked for."""

    kind: str  # silent, singletons, split, size, missing, duplicates, unconnected or order
    sentence: str
    hint: str = ""
    is_fatal: bool = True  # the program must not start


def compare_world(asked: AskedWorld, answers: Sequence[RankAnswer]) -> WorldProblem | None:
    """Return what is wrong; None where every rank is there once, knows all the others and reached them."""
    if not answers:
        return WorldProblem("silent", f"none of {_ranks(asked.size)} answered the world check", _SILENT)
    return (
        _find_singletons(asked, answers)
        or _find_split(asked, answers)
        or _find_size(asked, answers)
        or _find_missing(asked, answers)
        or _find_unconnected(answers)
        or _find_order(answers)
    )


_SILENT = "look at the messages above, or leave the check out with --no-check to see how the program fails"


def _find_singletons(asked: AskedWorld, answers: Sequence[RankAnswer]) -> WorldProblem | None:
    if asked.size == 1 or any(answer.size != 1 for answer in answers):
        return None
    counted = f"each of {asked.size} processes says" if len(answers) >= asked.size else _count_some(asked, answers)
    sentence = f"MPI of the image does not see the launch: {counted} 'rank 0 of 1'"
    reason, hint = explain_singletons(asked)
    return WorldProblem("singletons", f"{sentence}. {reason}" if reason else sentence, hint)


def _count_some(asked: AskedWorld, answers: Sequence[RankAnswer]) -> str:
    return f"{len(answers)} of {asked.size} processes answered, and {'it says' if len(answers) == 1 else 'all say'}"


def _find_split(asked: AskedWorld, answers: Sequence[RankAnswer]) -> WorldProblem | None:
    """Several worlds side by side: more processes answered as rank 0 than one."""
    firsts = [answer for answer in answers if answer.rank == 0]
    sizes = Counter(answer.size for answer in answers)
    if len(sizes) == 1 and len(firsts) <= 1:
        return None
    if len(sizes) == 1 and answers[0].size == asked.size:
        return _find_duplicates(answers)
    if per_host := _is_split_by_host(answers):
        sentence = f"the ranks are {per_host} separate worlds, one on each host, instead of one of {asked.size}"
        return WorldProblem("split", sentence, _connect_hosts(asked))
    alone = [answer for answer in answers if answer.size == 1]
    if alone and len(alone) < len(answers):
        sentence = (
            f"{len(answers) - len(alone)} of {_ranks(asked.size)} found each other, {len(alone)} did not: "
            f"{_name_tasks(alone)} {'says' if len(alone) == 1 else 'say'} 'rank 0 of 1'"
        )
        return WorldProblem("split", sentence, _connect_hosts(asked))
    worlds = ", ".join(f"{count} in worlds of {size}" for size, count in sorted(sizes.items()))
    return WorldProblem("split", f"the ranks are not one world of {asked.size}: {worlds}", _connect_hosts(asked))


def _find_duplicates(answers: Sequence[RankAnswer]) -> WorldProblem:
    counts = Counter(answer.rank for answer in answers)
    twice = sorted(rank for rank, count in counts.items() if count > 1)
    where = sorted({answer.host for answer in answers if answer.rank == twice[0]})
    sentence = f"several processes are the same rank: {_list_numbers(twice)} (rank {twice[0]} on {', '.join(where)})"
    return WorldProblem(
        "duplicates", sentence, "two launches run at once, or a launcher starts another: use one of them"
    )


def _find_size(asked: AskedWorld, answers: Sequence[RankAnswer]) -> WorldProblem | None:
    size = answers[0].size
    if size == asked.size:
        return None
    sentence = f"MPI counts {_ranks(size)}, and {asked.size} were asked for"
    hint = f"give --tasks {size}, or an allocation with room for {asked.size}"
    return WorldProblem("size", sentence, hint)


def _find_missing(asked: AskedWorld, answers: Sequence[RankAnswer]) -> WorldProblem | None:
    there = {answer.rank for answer in answers}
    if len(there) < len(answers):
        return _find_duplicates(answers)
    missing = [rank for rank in range(asked.size) if rank not in there]
    if not missing:
        return None
    sentence = f"{len(missing)} of {_ranks(asked.size)} did not answer: {_list_numbers(missing)}{_on(asked, missing)}"
    return WorldProblem("missing", sentence, "look at the messages of these ranks and at their nodes")


def _find_unconnected(answers: Sequence[RankAnswer]) -> WorldProblem | None:
    lost = [answer.rank for answer in answers if not answer.has_met]
    if not lost:
        return None
    hosts = sorted({answer.host for answer in answers})
    if len(hosts) == 1:
        sentence = f"the ranks found each other on {hosts[0]}, but cannot exchange data: {_list_numbers(lost)} got none"
        return WorldProblem(
            "unconnected", sentence, "shared memory between the ranks fails: 'kedge diagnose' on their messages"
        )
    sentence = f"the ranks found each other, but cannot exchange data between {', '.join(hosts[:_WORLD_SHOWN])}"
    return WorldProblem(
        "unconnected", sentence, "a firewall or the wrong network interface: 'kedge mpi check' shows the fabrics"
    )


def _find_order(answers: Sequence[RankAnswer]) -> WorldProblem | None:
    wrong = [answer for answer in answers if answer.task not in (-1, answer.rank)]
    if not wrong:
        return None
    first = wrong[0]
    sentence = f"MPI numbers the processes otherwise than the launcher: process {first.task} is rank {first.rank}"
    hint = "take ranks from MPI, and not from RANK or the launcher's variables"
    return WorldProblem("order", sentence, hint, is_fatal=False)


def explain_singletons(asked: AskedWorld) -> tuple[str, str]:
    """Why MPI of this family does not see this launcher, and what to type instead; empty where it is unknown."""
    if not asked.family:
        return "", "'kedge mpi check IMAGE' says which launcher fits the image's MPI"
    is_open = asked.family.startswith("Open MPI")
    needs, wanted = ("PMIx", "pmix") if is_open else ("PMI-1 or PMI-2", "pmi2")
    if asked.launcher != "srun":
        given = f"{asked.launcher} of this host" if asked.launcher else "the launcher"
        return f"{asked.family} needs {needs}, and {given} does not offer it.", _INSTEAD[is_open]
    if asked.mpi_types and not any(kind.startswith(wanted) for kind in asked.mpi_types):
        offered = f"srun of this site offers {', '.join(asked.mpi_types)} only"
        return f"{asked.family} needs {needs}, and {offered}.", _INSTEAD[is_open].partition(", or ")[2]
    given = f"'srun --mpi={asked.mpi_type or 'none'}'"
    return f"{asked.family} needs {needs}, and {given} does not offer it.", f"give --mpi-type {wanted}"


_INSTEAD = {  # by whether it is Open MPI
    True: "give --launcher srun --mpi-type pmix, or load Open MPI and give --launcher mpirun",
    False: "give --launcher srun --mpi-type pmi2, or load MPICH and give --launcher mpiexec",
}


def _connect_hosts(asked: AskedWorld) -> str:
    if asked.launcher in ("qrsh", "local"):
        return "use a launcher that offers PMI on all nodes: --launcher srun, mpirun or mpiexec"
    return "'kedge mpi check IMAGE' says which launcher and which --mpi-type fit the image's MPI"


def _is_split_by_host(answers: Sequence[RankAnswer]) -> int:
    """The number of worlds where each is exactly the processes of one host; else 0."""
    by_host: dict[str, list[RankAnswer]] = {}
    for answer in answers:
        by_host.setdefault(answer.host, []).append(answer)
    whole = all(
        {each.size for each in group} == {len(group)} and {each.rank for each in group} == set(range(len(group)))
        for group in by_host.values()
    )
    return len(by_host) if whole and len(by_host) > 1 else 0


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _name_tasks(answers: Sequence[RankAnswer]) -> str:
    """`process 3 on n2`, as the launcher numbers them, or where they run."""
    named = [
        f"process {each.task} on {each.host}" if each.task >= 0 else f"pid {each.pid} on {each.host}"
        for each in answers
    ]
    rest = len(named) - _WORLD_SHOWN
    return ", ".join(named[:_WORLD_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _list_numbers(numbers: Iterable[int]) -> str:
    """`rank 3`, `ranks 1, 4-7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:_WORLD_SHOWN])
    more = ", …" if len(runs) > _WORLD_SHOWN else ""
    is_one = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"{'rank' if is_one else 'ranks'} {shown}{more}"


def _on(asked: AskedWorld, ranks: Sequence[int]) -> str:
    hosts = list(dict.fromkeys(asked.hosts[rank] for rank in ranks if rank < len(asked.hosts)))
    if not hosts:
        return ""
    return f" (on {', '.join(hosts[:_WORLD_SHOWN])}{', …' if len(hosts) > _WORLD_SHOWN else ''})"
