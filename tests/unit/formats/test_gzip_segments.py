# SPDX-License-Identifier: BSD-3-Clause
"""Segments of gzip streams: noted while a stream is inflated, inflated on their own, the same bytes in the end."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.errors import CorruptImage
from kedge.formats.compression import GzipSegment, SegmentScan, gzip_segments, inflate, inflate_segment


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_segments, "_FIRST_MEMBER", 500)
    monkeypatch.setattr(gzip_segments, "_LATER_MEMBERS", 100)
    monkeypatch.setattr(gzip_segments, "_LENGTH", 2000)
    monkeypatch.setattr(gzip_segments, "_MANY", 3)


def make_content(size: int, seed: int = 16) -> bytes:
    """Content that gzip makes a little smaller."""
    return bytes(random.Random(seed).choices(b"abcdefghijklmnop", k=size))


class Scanned:
    """A stream of which a part was skipped."""

    def __init__(self, blob: bytes, begin: int, end: int, chunk: int = 700) -> None:
        self.given: list[bytes] = []
        self.segments: list[GzipSegment | None] = []
        self.begun_after = -1
        asked = 0

        def is_wanted() -> bool:
            nonlocal asked
            asked += 1
            return begin <= asked < end

        def note_begin() -> None:
            self.begun_after = len(self.given)

        scan = SegmentScan(is_wanted, note_begin, self.segments.append)
        self.blob, chunks = blob, [blob[start : start + chunk] for start in range(0, len(blob), chunk)]
        for piece in inflate(chunks, where="layer x", piece=300, scan=scan):
            if not scan.is_scanning:
                self.given.append(piece)

    def join(self) -> bytes:
        skipped = b"".join(b"".join(self.read(segment)) for segment in self.segments if segment is not None)
        cut = self.begun_after if self.begun_after >= 0 else len(self.given)
        return b"".join(self.given[:cut]) + skipped + b"".join(self.given[cut:])

    def read(self, segment: GzipSegment, blob: bytes | None = None) -> Iterator[bytes]:
        rest = (blob or self.blob)[segment.offset :]
        chunks = [rest[start : start + 900] for start in range(0, len(rest), 900)]
        return inflate_segment(segment, chunks, where="layer x", piece=300)


@pytest.mark.parametrize(("begin", "end"), [(1, 10**6), (5, 10**6), (1, 2), (7, 20), (10**6, 10**6)])
def test_segments_give_what_was_skipped(begin: int, end: int) -> None:
    content = make_content(60_000)
    scanned = Scanned(gzip.compress(content), begin, end)
    assert scanned.join() == content
    if begin < 10**6:
        assert scanned.segments[-1] is None
        assert scanned.segments.count(None) == 1
        assert scanned.begun_after >= 0
    if end - begin > 10**5:
        assert len(scanned.segments) > 4
        assert sum(map(len, scanned.given)) < len(content)


@given(
    st.lists(st.integers(0, 9000), min_size=1, max_size=5),
    st.integers(0, 40),
    st.integers(0, 60),
    st.integers(0, 3),
    st.integers(1, 3000),
)
def test_segments_of_members_and_padding(sizes: list[int], begin: int, length: int, padding: int, chunk: int) -> None:
    contents = [make_content(size, seed) for seed, size in enumerate(sizes)]
    blob = b"".join(gzip.compress(content) + bytes(padding) for content in contents)
    assert Scanned(blob, begin, begin + length, chunk).join() == b"".join(contents)


def test_segments_grow_so_that_the_states_of_a_huge_layer_stay_few() -> None:
    scanned = Scanned(gzip.compress(make_content(200_000)), 1, 10**6)
    lengths = [segment.length for segment in scanned.segments if segment is not None]
    assert lengths[0] < lengths[4] < lengths[7]


def test_a_segment_that_changed_meanwhile_is_refused() -> None:
    content = make_content(60_000)
    scanned, other = Scanned(gzip.compress(content), 1, 10**6), gzip.compress(make_content(60_000, 17))
    segment = scanned.segments[0]
    assert segment is not None
    with pytest.raises(CorruptImage, match=r"changed between two reads|is damaged"):
        list(scanned.read(segment, other))
    segment = scanned.segments[1]
    assert segment is not None
    with pytest.raises(CorruptImage, match="layer x changed between two reads"):
        list(scanned.read(segment, scanned.blob[: segment.offset + 100]))


def test_a_stream_that_is_cut_short_ends_its_scan_and_is_refused() -> None:
    segments: list[GzipSegment | None] = []
    scan = SegmentScan(lambda: True, lambda: None, segments.append)
    blob = gzip.compress(make_content(60_000))[:-20]
    with pytest.raises(CorruptImage, match="ends too early"):
        list(inflate([blob], where="layer x", scan=scan))
    assert segments[-1] is None
