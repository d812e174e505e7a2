# SPDX-License-Identifier: BSD-3-Clause
"""Reads segments of a layer in their order while threads inflate the next ones; memory is bounded by places."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator

from kedge.formats.compression import GzipSegment, inflate_segment
from kedge.frozen import frozen
from kedge.layers.piece_feed import PieceFeed, SharedPlaces, count_places

_SHARED = 8 << 20  # bytes for each segment beyond its own


@frozen
class SegmentSource:
    """Where segments come from: noted by the thread that scans, None after the last."""

    segments: queue.SimpleQueue[GzipSegment | None]
    open_at: Callable[[int], Iterator[bytes]]
    where: str
    piece: int
    at_once: int  # threads


def read_segments(source: SegmentSource) -> Iterator[bytes]:
    """The pieces of all segments."""
    places = SharedPlaces(source.at_once * _SHARED // source.piece)
    opened: deque[PieceFeed] = deque()
    has_more = True
    try:
        while has_more or opened:
            has_more = has_more and _open_more(source, places, opened)
            if not opened:
                continue
            feed = opened[0]
            for piece in feed:
                yield piece
                has_more = has_more and _open_more(source, places, opened)
            opened.popleft()
            places.feeds.remove(feed)
            feed.leave()
            feed.close()
    finally:
        for feed in opened:
            feed.stop()
        for feed in opened:
            feed.close()


def _open_more(source: SegmentSource, places: SharedPlaces, opened: deque[PieceFeed]) -> bool:
    """Open what was noted meanwhile; waits for the first only. Whether more may come."""
    while len(opened) < source.at_once and (not opened or opened[-1].is_threaded):
        try:
            segment = source.segments.get() if not opened else source.segments.get_nowait()
        except queue.Empty:
            return True
        if segment is None:
            return False
        chunks = _open_late(source, segment)
        pieces = inflate_segment(segment, chunks, where=source.where, piece=source.piece)
        feed = PieceFeed(pieces, threaded=True, shared=places, places=count_places(source.piece))
        opened.append(feed)
        places.feeds.append(feed)
    return True


def _open_late(source: SegmentSource, segment: GzipSegment) -> Iterator[bytes]:
    """On the segment's own thread: opening may wait for a download to be in its place."""
    yield from source.open_at(segment.offset)
