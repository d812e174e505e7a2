# SPDX-License-Identifier: BSD-3-Clause
"""One node of a launch without an MPI launcher: starts the node's ranks, labels what they print, and ends them.

It ends all of them when one fails, when it is asked to, and when whoever started it is gone: then its standard input
ends. Through it comes what rank 0 reads, too (`rank_input`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kedge.base.frozen import replace
from kedge.base.rank_variables import OWN_LAUNCH, OWN_TOKEN
from kedge.cluster.launchers.own import label_line, tell_end
from kedge.cluster.ranks import Rank, own_variables
from kedge.errors import LaunchFailed
from kedge.launch.line_buffer import LineBuffer
from kedge.launch.order import RankOrder
from kedge.launch.rank_input import TAKEN, InputReceiver, read_first_piece
from kedge.system.child_group import ChildGroup, GroupMember
from kedge.system.start_kedge import own_start_command

_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
_MOMENT = 0.1
_LONGEST = 1 << 16  # bytes of a line that are handed on at once


class _Node:
    """The ranks of one node while they run."""

    def __init__(self, order: RankOrder, token: str) -> None:
        self._order = order
        self._token = token
        self._first = sum(order.layout[: order.node])
        self._lines = LineBuffer(self._label, _LONGEST)
        self._group = ChildGroup(lambda index, is_error, data: self._lines.hear((index, is_error), data))
        self._input: InputReceiver | None = None
        self.failed: GroupMember | None = None

    def start(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        reading, writing = os.pipe() if self._order.node == 0 else (None, None)
        self._group.hand_on_signals()
        self._input = InputReceiver(self._group, writing, self._tell_taken)
        for local in range(self._order.layout[self._order.node]):
            argv = own_start_command("rank", make_rank_order(self._order).encode(), "--", *words)
            variables = {**own_variables(self._rank(local)), OWN_LAUNCH: self._order.id, OWN_TOKEN: self._token}
            given = reading if local == 0 else None
            self._group.start(argv, {**environ, **variables}, stdin=given, own_group=False)
        if reading is not None:
            os.close(reading)

    def watch(self) -> int:
        """Until all have ended, one has failed, or the launch is gone; the status of the first that failed."""
        assert self._input is not None
        while self._group.is_running:
            ended = [member for member in self._group.wait(_MOMENT) if member.status]
            if ended:
                self.failed = ended[0]
                self._tell(ended[0])
            if ended or not self._input.is_attended:
                self._group.end(grace=_GRACE)
                break
        self._lines.flush()
        return self.failed.status if self.failed else 0

    def end(self) -> None:
        self._group.end(grace=_GRACE)
        self._lines.flush()

    def _rank(self, local: int) -> Rank:
        order = self._order
        nodes, count = len(order.layout), order.layout[order.node]
        return Rank(
            self._first + local,
            size=sum(order.layout),
            local_rank=local,
            local_size=count,
            node_rank=order.node,
            node_count=nodes,
        )

    def _tell_taken(self) -> None:
        _write(True, f"{self._token} {TAKEN}\n")

    def _tell(self, member: GroupMember) -> None:
        self._lines.flush()
        _write(True, tell_end(self._first + member.index, member.status, os.uname().nodename) + "\n")

    def _label(self, stream: tuple[int, bool], line: bytes) -> None:
        index, is_error = stream
        text = line.decode(errors="surrogateescape")
        is_part = len(line) > _LONGEST and not text.endswith("\n")
        _write(is_error, label_line(self._first + index, text.removesuffix("\n"), is_part=is_part) + "\n")


def start_node(order: RankOrder, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Start and watch the ranks of the order's node; the status of the first that failed.

    Standard input is the launch's: what it says first is its token, which no command line may hold.
    """
    token = read_first_piece(0).decode()
    if not token:
        raise LaunchFailed("the launch ended before this node began", hint="use 'kedge launch', which starts it")
    node = _Node(order, token)
    try:
        node.start(words, environ)
        status = node.watch()
        if not status:  # qrsh ends with 0 as well when it loses the node
            _write(True, f"{token} node {order.node}\n")
        return status
    except BaseException:
        node.end()
        raise


def make_rank_order(order: RankOrder) -> RankOrder:
    """Return the order without a node, for one rank."""
    return replace(order, node=-1)


def _write(is_error: bool, text: str) -> None:
    data = text.encode(errors="surrogateescape")
    while data:
        data = data[os.write(2 if is_error else 1, data) :]
