# SPDX-License-Identifier: BSD-3-Clause
"""What ranks print, on its way to the user: by rank, without the launcher's labels, the newest lines kept.

When the launcher says that a rank failed, further output is held back: the failing rank's last lines come first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.cluster.launchers.program import LaunchProgram, RankEnd
from kedge.launch.line_buffer import LineBuffer
from kedge.launch.rank_input import TAKEN

_KEPT = 20  # lines of each rank
_LONGEST = 1 << 20  # bytes of a line that are written at once
_SHOWN = 2000  # letters of a kept line
_MOST_HELD = 8 << 20  # letters

Write = Callable[[bool, str], None]  # whether on standard error, and the text


@frozen
class StartedRank(JsonValue):
    """Where a rank is, as it says itself."""

    rank: int
    host: str
    pid: int


@frozen
class RankFailure(JsonValue):
    """The rank that failed first. None and empty: unknown."""

    rank: int | None
    status: int | None
    host: str = ""
    lines: tuple[str, ...] = ()
    is_shown: bool = False  # these lines were the last that the user saw
    launcher_lines: tuple[str, ...] = ()  # what the launcher and the scheduler said themselves
    how: str = ""  # where its status does not say it


class OutputFollower:
    """Reads the pieces that the launcher's processes print, and writes them line by line."""

    def __init__(self, program: LaunchProgram, write: Write, *, token: str = "", is_labelled: bool = True) -> None:
        self.ranks: dict[int, StartedRank] = {}
        self.when_taken: Callable[[], None] = lambda: None  # rank 0 has taken what was sent to it
        self.when_started: Callable[[StartedRank], None] = lambda _: None
        self.finished: set[int] = set()  # nodes that kedge itself started, and whose ranks have all ended well
        self.end = RankEnd()  # what is known of the rank that failed first
        self.ended_at = 0.0
        self._aborted: RankEnd | None = None  # what a rank said of itself
        self.shows_rank = False
        self._program = program
        self._write = write
        self._token = token
        self._is_labelled = is_labelled
        self._lines = LineBuffer(self._take, _LONGEST)
        self._parts: dict[tuple[int, bool], int | None] = {}  # whose long line it is that goes on
        self._kept: dict[int | None, deque[str]] = {}
        self._held: list[tuple[bool, str]] = []
        self._held_size = 0
        self._writers: deque[int | None] = deque(maxlen=_KEPT)  # whose lines the user saw last

    def hear(self, index: int, is_error: bool, data: bytes) -> None:
        """A piece of output of the process `index`."""
        self._lines.hear((index, is_error), data)

    def finish(self) -> None:
        """No more comes: lines without an end count, too."""
        self._lines.flush()

    def find_failure(self, status: int | None) -> RankFailure:
        """The rank that failed first; `status` is the launcher's own, for what it does not say."""
        if self.end == RankEnd() and self._aborted is not None:
            self.end = self._aborted
        rank = self.end.rank
        if rank is None and self.end.pid:
            started = (each for each in self.ranks.values() if each.pid == self.end.pid)
            rank = next((each.rank for each in started if _same_host(each.host, self.end.host)), None)
        known = self.ranks.get(rank) if rank is not None else None
        host = known.host if known else self.end.host
        said = self.end.status if self.end.status is not None else status
        lines = tuple(self._kept.get(rank, ()))
        is_shown = list(self._writers)[-len(lines) :] == [rank] * len(lines)
        others = tuple(self._kept.get(None, ())) if rank is not None else ()
        return RankFailure(rank=rank, status=said, host=host, lines=lines, is_shown=is_shown, launcher_lines=others)

    @property
    def has_abort(self) -> bool:
        """Whether a rank said that it ends all."""
        return self._aborted is not None

    def release(self) -> None:
        """Write what was held back."""
        held, self._held, self._held_size = self._held, [], 0
        for is_error, line in held:
            self._write(is_error, line)

    def _take(self, stream: tuple[int, bool], line: bytes) -> None:
        text, is_error = line.decode(errors="surrogateescape"), stream[1]
        if stream in self._parts:  # it has no label, and is no word of the launcher's
            rank = self._parts[stream]
        else:
            rank, text = self._program.split_label(text) if self._is_labelled else (None, text)
            if self._is_for_us(rank, is_error, text):
                return
            kept = self._kept.setdefault(rank, deque(maxlen=_KEPT))
            kept.append(text.rstrip()[:_SHOWN])
            if self.shows_rank and rank is not None:
                text = f"{rank}: {text}"
        self._show(rank, is_error, text)
        self._parts.pop(stream, None)
        if not line.endswith(b"\n"):
            self._parts[stream] = rank

    def _is_for_us(self, rank: int | None, is_error: bool, text: str) -> bool:
        """Whether the user need not see a line: that of a rank that starts, or kedge's own on one that ended."""
        if self._token and text.startswith(self._token + " "):
            self._note_rank(text)
            return True
        if rank is not None and is_error:
            self._note_abort(rank, text)
            return False
        return rank is None and is_error and self._note_end(text) and self._program.is_own

    def _show(self, rank: int | None, is_error: bool, text: str) -> None:
        if self.ended_at and self._held_size < _MOST_HELD:
            self._held_size += len(text)
            self._held.append((is_error, text))
        else:
            self._write(is_error, text)
            self._writers.append(rank)

    def _note_rank(self, text: str) -> None:
        """A rank that starts, a node whose ranks have ended, or one that took a piece of standard input."""
        words = text.split()
        if words[1:] == [TAKEN]:
            self.when_taken()
        if len(words) == 3 and words[1] == "node" and words[2].isdecimal():
            self.finished.add(int(words[2]))
        if len(words) == 4 and words[1].isdecimal() and words[3].isdecimal():
            started = self.ranks[int(words[1])] = StartedRank(int(words[1]), words[2], int(words[3]))
            self.when_started(started)

    def _note_abort(self, rank: int, text: str) -> None:
        """MPI in a rank says that it ends all: Hydra hands that on as the rank's line, and says nothing itself.

        A program may print such a line, too: it is no end, and counts where a launch that failed names nobody.
        """
        said = self._program.read_end(text.rstrip("\n"))
        if said is not None and said.rank == rank and self._aborted is None:
            self._aborted = said

    def _note_end(self, text: str) -> bool:
        """Learn from a line of the launcher which rank failed; whether it said so."""
        said = self._program.read_end(text.rstrip("\n"))
        if said is None:
            return False
        self.ended_at = self.ended_at or time.monotonic()
        end = self.end
        if end.rank is None and not end.pid:
            end = replace(end, rank=said.rank, host=end.host or said.host, pid=said.pid)
            self.end = replace(end, status=said.status if end.status is None else end.status)
        elif end.status is None and said.rank in (None, end.rank):
            self.end = replace(end, status=said.status)
        return True


def _same_host(one: str, other: str) -> bool:
    return not other or one.partition(".")[0] == other.partition(".")[0]
