# SPDX-License-Identifier: BSD-3-Clause
"""Starts what a plan says, follows it, and ends it: when a rank fails, when the launch is asked to end, or is late.

The launcher ends the other ranks; where it does not, it is ended with all that it started here. Processes that kedge
starts on nodes themselves end when their standard input does.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.base.rank_variables import OWN_TOKEN
from kedge.cluster.launchers.node_shell import list_shell_settings, write_node_shell
from kedge.cluster.launchers.program import RankEnd
from kedge.cluster.launchers.srun import list_trial_words, read_lost_node
from kedge.container.processes.rank_sharing import find_private_directory
from kedge.errors import LaunchFailed, ProgramFailed, ProgramMissing
from kedge.launch.follow_output import OutputFollower, RankFailure, StartedRank, Write
from kedge.launch.plan import CONTAINED, LaunchPlan, StartedProcess
from kedge.launch.rank_input import InputSender, make_piece
from kedge.system.child_group import ChildGroup, GroupMember
from kedge.system.host.connections import list_peers
from kedge.system.process import run_program

_MOMENT = 0.1  # seconds between two looks
_LAST_WORDS = 2.0  # seconds that output may still come from a node whose process has ended
_LINGER = 8.0  # seconds that a launcher has to end the other ranks
_GRACE = 3.0  # seconds between two signals
_SIGNALS = (signal.SIGTERM, signal.SIGINT)  # by the first srun kills all ranks, also those that ignore it


@frozen
class LaunchEnd:
    """How a launch ended."""

    status: int  # that of the first rank that failed; 0: none did
    failure: RankFailure | None = None
    is_late: bool = False  # it was ended because its time was over
    is_cut: bool = False  # it was ended because it had done all, and did not end


class _Launch:
    """The processes of a plan while they run."""

    def __init__(self, plan: LaunchPlan, follower: OutputFollower, environ: Mapping[str, str]) -> None:
        self._plan = plan
        self._follower = follower
        self._group = ChildGroup(follower.hear)
        self._environ = make_environment(plan, environ)
        self._shell = _write_shell(plan) if plan.node_shell and plan.mode != CONTAINED else None
        self._environ |= list_shell_settings(str(self._shell), environ) if self._shell else ()
        self._held: list[int] = []  # the ends of pipes that keep nodes running
        self._input: InputSender | None = None  # that to the first node
        self._ranks = RankWatch(self._group)
        if not self._is_own:  # which knows by itself how its ranks end
            follower.when_started = self._ranks.add
        self._nodes = NodeWatch(plan.shape.node_count if plan.launcher == "srun" else 1, self._environ)
        self._ended: dict[int, float] = {}  # nodes whose own process ended with 0, and when
        self.lost: LostNode | None = None
        self.status = 0
        self.is_cut = False

    def start(self, processes: Sequence[StartedProcess], *, reads_input: bool) -> None:
        given = 0 if reads_input and not os.isatty(0) else None
        self._group.hand_on_signals()
        if self._is_own:
            self._start_nodes(processes, given)
            return
        for process in processes:
            self._group.start(process.argv, self._environ, stdin=given)

    def _start_nodes(self, processes: Sequence[StartedProcess], given: int | None) -> None:
        """Each by one process, which reads the token from its pipe; the first one's carries what rank 0 reads, too."""
        for number, process in enumerate(processes):
            reading, writing = os.pipe()
            os.write(writing, make_piece(self._plan.token.encode()))
            if number == 0:
                self._input = InputSender(self._group, writing, given)
                self._follower.when_taken = self._input.go_on
            else:
                self._held.append(writing)
            try:
                self._group.start(process.argv, self._environ, stdin=reading)
            finally:
                os.close(reading)

    def watch(self, deadline: float | None, has_done_all: Callable[[], bool]) -> bool:
        """Until all have ended, or have done all and do not end; False where the deadline came first."""
        done_at = 0.0
        while self._group.is_running:
            self._note_ended(self._group.wait(_MOMENT))
            now = time.monotonic()
            if deadline is not None and now > deadline:
                return False
            self.lost = self._find_silent(now - _LAST_WORDS) or self._nodes.find_lost(self._group.pids)
            if self.lost is not None or (self._follower.ended_at and now - self._follower.ended_at > _LINGER):
                return True
            done_at = done_at or (now if has_done_all() else 0.0)
            if done_at and now - done_at > _LINGER:
                self.is_cut = True
                return True
        self.lost = self._find_silent(time.monotonic())
        return True

    @property
    def _is_own(self) -> bool:
        return self._plan.program.is_own and self._plan.mode != CONTAINED

    def _note_ended(self, members: Sequence[GroupMember]) -> None:
        for member in members:
            self.status = self.status or member.status
            if member.status:
                self._let_go()
            elif self._is_own:
                self._ended[member.index] = time.monotonic()

    def _find_silent(self, until: float) -> LostNode | None:
        """A node whose process ended before this time and did not say that all its ranks had."""
        if self.status or self._follower.ended_at:
            return None
        silent = (node for node, ended in self._ended.items() if ended < until and node not in self._follower.finished)
        node = next(silent, None)
        return None if node is None else LostNode(self._plan.shape.nodes[node].name, "its connection was closed")

    def find_first(self) -> EndedRank | None:
        """The rank that failed first, as the kernel tells it, where the launcher itself did not name one."""
        is_named = self._follower.end.rank is not None
        return None if is_named else self._ranks.find_first(is_alone=self._plan.shape.node_count == 1)

    def end(self) -> None:
        """End whatever still runs."""
        self._ranks.close()
        self._let_go()
        if self._group.pids:
            self._group.end(grace=_GRACE, signals=_SIGNALS)
        self._group.sweep()
        self._group.close()
        if self._shell:
            self._shell.unlink(missing_ok=True)
        self._follower.finish()

    def _let_go(self) -> None:
        for file in self._held:
            os.close(file)
        self._held.clear()
        if self._input is not None:
            self._input.close()


def _write_shell(plan: LaunchPlan) -> Path:
    """The script by which the launcher reaches other nodes, in a directory of the user's alone."""
    path = Path(find_private_directory(), f"node-shell-{os.getpid()}")
    lines = write_node_shell(*map(shlex.quote, plan.node_shell))
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o700)
    return path


def run_plan(
    plan: LaunchPlan,
    environ: Mapping[str, str],
    write: Write,
    tell: Callable[[RankFailure], None],
    *,
    command: Sequence[str] | None = None,
    timeout: float | None = None,
    follower: OutputFollower | None = None,
    shows_rank: bool = False,
    has_done_all: Callable[[], bool] = lambda: False,
) -> LaunchEnd:
    """Run it to its end; `tell` is called when a rank has failed, before the output that came after.

    Once `has_done_all` says so, only seconds are left to the ranks and their launcher.
    """
    is_labelled = plan.program.can_label
    follower = follower or OutputFollower(plan.program, write, token=plan.token, is_labelled=is_labelled)
    follower.shows_rank = shows_rank
    launch = _Launch(plan, follower, environ)
    deadline = None if timeout is None else time.monotonic() + timeout
    is_whole = False
    try:
        launch.start(plan.list_processes(command), reads_input=command is None)
        is_whole = launch.watch(deadline, has_done_all)
    finally:
        launch.end()
    failure = None
    if launch.lost is not None:
        failure = _describe_loss(plan, follower, launch.lost)
        tell(failure)
    elif launch.status or follower.ended_at:
        failure = describe_failure(follower, launch.find_first(), launch.status or None)
        tell(failure)
    follower.release()
    status = (failure.status if failure and failure.status else launch.status) if is_whole else launch.status
    return LaunchEnd(status or (1 if failure else 0), failure, not is_whole, launch.is_cut)


def describe_failure(follower: OutputFollower, first: EndedRank | None, status: int | None) -> RankFailure:
    """The rank that failed first: by its launcher, by the kernel, or by its own word that it aborts all.

    Hydra kills the rank that aborts with the others: one that was killed is only the first of which the kernel told.
    """
    if first is None or (follower.has_abort and not first.is_certain):
        return follower.find_failure(status)
    follower.end = RankEnd(first.rank.rank, first.status, first.rank.host)
    failure = follower.find_failure(status)
    return failure if first.status is not None else replace(failure, how="ended first")


def _describe_loss(plan: LaunchPlan, follower: OutputFollower, lost: LostNode) -> RankFailure:
    """The first rank of a node that is gone has failed, whatever the launcher says of the others."""
    names = [node.name.partition(".")[0] for node in plan.shape.nodes]
    place = names.index(lost.name.partition(".")[0]) if lost.name.partition(".")[0] in names else -1
    rank = sum(plan.shape.tasks[:place]) if place >= 0 else None
    follower.end = RankEnd(rank, LaunchFailed.exit_code, lost.name)
    return replace(follower.find_failure(None), how=f"is gone with its node: {lost.reason}")


def make_environment(plan: LaunchPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the launcher; it hands on the token to ranks. What kedge itself starts reads that from a pipe.

    qrsh writes variables into files of the node that others can read.
    """
    made = dict(environ)
    is_handed_on = not plan.program.is_own and plan.mode != CONTAINED
    for name, value in (*plan.changes, (OWN_TOKEN, plan.token if is_handed_on else None)):
        if value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made


# Whether the nodes of a launch by srun still live: srun alone waits until the controller gives one up, for minutes.
#
# Every node has a connection to srun. Where one goes while others stay, either its ranks have ended or the node is
# gone: Slurm is asked to start an empty step on all nodes, and names the one that it cannot reach.

_EVERY = 1.0  # seconds between two looks
_PATIENCE = 3.0  # seconds: ranks that end well end at nearly the same time
_LONGEST = 30.0  # seconds for Slurm's answer


@frozen
class LostNode:
    """A node that Slurm does not reach any more."""

    name: str
    reason: str


class NodeWatch:
    """Looks after the nodes of one srun."""

    def __init__(self, nodes: int, environ: Mapping[str, str]) -> None:
        self._nodes = nodes
        self._environ = environ
        self._peers: frozenset[str] = frozenset()  # that are known to be there
        self._looked_at = 0.0
        self._missed_at = 0.0

    def find_lost(self, pids: tuple[int, ...]) -> LostNode | None:
        """The node that is gone; call it often, it looks now and then."""
        now = time.monotonic()
        if self._nodes < 2 or len(pids) != 1 or now - self._looked_at < _EVERY:
            return None
        self._looked_at = now
        peers = list_peers(pids[0])
        if not self._peers - peers:
            self._peers, self._missed_at = peers, 0.0
            return None
        self._missed_at = self._missed_at or now
        if now - self._missed_at < _PATIENCE:
            return None
        self._peers, self._missed_at = peers, 0.0
        return self._ask()

    def _ask(self) -> LostNode | None:
        try:
            done = run_program(list_trial_words(self._nodes), environment=self._environ, timeout=_LONGEST, check=False)
        except (ProgramFailed, ProgramMissing):
            return None
        found = read_lost_node(done.errors.decode(errors="replace"))
        return LostNode(*found) if found else None


# Which rank of this host ended first, and how: for launchers that do not name it, or name one that they killed.
#
# When a rank of MPICH ends without MPI_Abort, Hydra kills the others and reports one of all: often one of those. The
# kernel tells when a process ends, also one that is not our child, and shows its status until its parent asks for it.

_TOGETHER = 2.0  # seconds within which a launcher kills the other ranks
_AFTER_NAME = 49  # the field `exit_code` of /proc/PID/stat, counted behind the name


@frozen
class EndedRank:
    """A rank that has ended."""

    rank: StartedRank
    when: float
    status: int | None  # as a shell shows it; None: unknown

    @property
    def is_killed(self) -> bool:
        """By SIGKILL, which is how a launcher ends the others."""
        return self.status == 128 + signal.SIGKILL

    @property
    def is_certain(self) -> bool:
        """Whether a rank failed by itself, and was not only the first of which we heard."""
        return bool(self.status) and not self.is_killed


class RankWatch:
    """Notes the ends of ranks while the group is waited for.

    By epoll, which tells them in the order in which they happened, also where this process is late.
    """

    def __init__(self, group: ChildGroup) -> None:
        self._group = group
        self._host = os.uname().nodename.partition(".")[0]
        self._epoll: select.epoll | None = None
        self._ranks: dict[int, StartedRank] = {}  # by their files
        self._ended: list[EndedRank] = []

    def add(self, rank: StartedRank) -> None:
        """Watch one, if it runs on this host; without pidfds (before Linux 5.3) nothing is known."""
        if rank.host.partition(".")[0] != self._host:
            return
        with contextlib.suppress(OSError, AttributeError):
            file = os.pidfd_open(rank.pid)
            self._ranks[file] = rank
            if self._epoll is None:
                self._epoll = select.epoll()
                self._group.watch_file(self._epoll.fileno(), select.POLLIN, self._note)
            self._epoll.register(file, select.EPOLLIN)

    def find_first(self, *, is_alone: bool) -> EndedRank | None:
        """The rank that failed first, if that can be told; `is_alone`: all ranks are on this host."""
        return find_culprit(self._ended, is_alone=is_alone)

    def close(self) -> None:
        """Watch no more."""
        if self._epoll is not None:
            self._note()
            self._group.forget_file(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        for file in self._ranks:
            os.close(file)
        self._ranks.clear()

    def _note(self) -> None:
        assert self._epoll is not None
        for file, _ in self._epoll.poll(0):
            rank = self._ranks.pop(file)
            self._ended.append(EndedRank(rank, time.monotonic(), _read_status(rank.pid)))
            self._epoll.unregister(file)
            os.close(file)


def find_culprit(ended: list[EndedRank], *, is_alone: bool) -> EndedRank | None:
    """Return of ranks in the order of their ends the first that failed, and was not killed with all others.

    Where none such is known, the first that ended shortly before or with those that were killed, if none ran elsewhere.
    """
    for each in ended:
        if each.is_certain:
            return each
    killed = next((each.when for each in ended if each.is_killed), None)
    if killed is None or not is_alone:
        return None
    return next(each for each in ended if each.status != 0 and each.when > killed - _TOGETHER)


def _read_status(pid: int) -> int | None:
    """How a process ended that nobody has waited for yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - the launcher is about to ask for it
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= _AFTER_NAME or fields[0] not in (b"Z", b"X"):
        return None
    code = os.waitstatus_to_exitcode(int(fields[_AFTER_NAME]))
    return code if code >= 0 else 128 - code
