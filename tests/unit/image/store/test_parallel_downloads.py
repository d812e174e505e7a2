# SPDX-License-Identifier: BSD-3-Clause
"""Ingests in one process: streaming, resuming, verifying, failing. Needs nothing."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor
from kedge.errors import DigestMismatch, KedgeError, NetworkFailed
from kedge.image.store import download
from kedge.image.store.download import IngestOptions
from kedge.image.store.lease import acquire
from kedge.image.store.store import Store
from tests.builders.blobs import BlobSource, describe, make_content
from tests.builders.rows import each_row

CONTENT = make_content(3_000_001)
QUICK = IngestOptions(first_pause=0.001)


def receive(store: Store, source: BlobSource, options: IngestOptions = QUICK, content: bytes = CONTENT) -> bytes:
    with store.ingest(describe(content), source.open_at, options) as ingest:
        received = b"".join(ingest.follow())
        assert ingest.wait() == store.blob_path(describe(content).digest)
        return received


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def partial_of(store: Store, content: bytes = CONTENT) -> Path:
    return store.layout.partial(describe(content).digest)


@pytest.mark.parametrize("piece", [1 << 10, 100_000, 256 << 10, 5 << 20])
def test_ingest_gives_the_bytes_and_keeps_the_blob(store: Store, piece: int) -> None:
    assert receive(store, BlobSource(CONTENT, piece=piece)) == CONTENT
    assert store.blob_path(describe(CONTENT).digest).read_bytes() == CONTENT
    assert not partial_of(store).exists()
    assert list((store.root / "leases").iterdir()) == []
    assert list((store.root / "tmp").iterdir()) == []
    assert list((store.root / "using").iterdir()) == []


def test_ingest_of_a_present_blob_opens_nothing(store: Store) -> None:
    receive(store, BlobSource(CONTENT))
    again = BlobSource(CONTENT)
    assert receive(store, again) == CONTENT
    assert again.offsets == []


@each_row("algorithm", ["sha384", "sha512"])
def test_ingest_knows_other_algorithms(store: Store, algorithm: str) -> None:
    descriptor = Descriptor("", Digest(algorithm, hashlib.new(algorithm, CONTENT).hexdigest()), len(CONTENT))
    with store.ingest(descriptor, BlobSource(CONTENT).open_at) as ingest:
        assert b"".join(ingest.follow()) == CONTENT


def test_ingest_of_an_empty_blob_needs_no_source(store: Store) -> None:
    source = BlobSource(b"")
    assert receive(store, source, content=b"") == b""
    assert source.offsets == []


def test_ingest_resumes_where_a_connection_broke(store: Store) -> None:
    source = BlobSource(CONTENT, piece=100_000, break_at=[450_001, 2_000_000])
    assert receive(store, source) == CONTENT
    assert source.offsets == [0, 450_001, 2_000_000]


def test_ingest_skips_what_it_has_when_the_range_is_ignored(store: Store) -> None:
    source = BlobSource(CONTENT, piece=100_000, break_at=[450_001], ignores_range=True)
    assert receive(store, source) == CONTENT
    assert source.offsets == [0, 450_001]


def test_ingest_gives_up_after_failures_without_progress_and_keeps_the_partial(store: Store) -> None:
    source = BlobSource(CONTENT, break_at=[1_000_000] * 10)
    with pytest.raises(NetworkFailed, match=r"given up: .*; 1 MB of 3") as caught:
        receive(store, source, IngestOptions(first_pause=0.001, tries=3))
    assert source.offsets == [0, 1_000_000, 1_000_000]
    assert "resumes this download" in (caught.value.hint or "")
    assert partial_of(store).stat().st_size == 1_000_000
    later = BlobSource(CONTENT)
    assert receive(store, later) == CONTENT
    assert later.offsets == [1_000_000]


def test_ingest_progress_resets_the_count_of_failures(store: Store) -> None:
    source = BlobSource(CONTENT, piece=100_000, break_at=[200_000 * (step + 1) for step in range(12)])
    assert receive(store, source, IngestOptions(first_pause=0.001, tries=2)) == CONTENT
    assert len(source.offsets) == 13


def test_ingest_removes_the_partial_when_asked(store: Store) -> None:
    source = BlobSource(CONTENT, break_at=[1_000_000] * 10)
    with pytest.raises(NetworkFailed):
        receive(store, source, IngestOptions(first_pause=0.001, tries=1, keep_partial=False))
    assert not partial_of(store).exists()


def test_ingest_refuses_a_wrong_digest_and_keeps_nothing(store: Store) -> None:
    wrong = bytearray(CONTENT)
    wrong[1_234_567] ^= 1
    with pytest.raises(DigestMismatch, match="not what the manifest promises"):
        receive(store, BlobSource(bytes(wrong)))
    assert not partial_of(store).exists()
    assert not store.has_blob(describe(CONTENT).digest)


def test_ingest_stops_at_once_when_more_comes_than_promised(store: Store) -> None:
    descriptor = Descriptor("", Digest.of(CONTENT[:1000]), 1000)
    taken = []

    class Endless:
        offset = 0

        def __iter__(self):
            while True:
                taken.append(1)
                yield b"x" * 100_000

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    with (
        store.ingest(descriptor, lambda _: Endless(), QUICK) as ingest,
        pytest.raises(DigestMismatch, match="more than"),
    ):
        b"".join(ingest.follow())
    assert len(taken) == 1
    assert list((store.root / "partial").iterdir()) == []


def test_ingest_of_less_than_promised_is_a_broken_connection(store: Store) -> None:
    descriptor = Descriptor("", Digest.of(CONTENT), len(CONTENT) + 5)
    with store.ingest(descriptor, BlobSource(CONTENT).open_at, QUICK) as ingest, pytest.raises(NetworkFailed):
        b"".join(ingest.follow())


def test_ingest_begins_anew_when_the_partial_was_damaged(store: Store) -> None:
    store.layout.folder("partial")
    partial_of(store).write_bytes(b"\0" * 1_000_000)
    source = BlobSource(CONTENT)
    with store.ingest(describe(CONTENT), source.open_at, QUICK) as ingest:
        assert ingest.wait().read_bytes() == CONTENT
    assert source.offsets == [1_000_000, 0]


def test_ingest_never_gives_wrong_bytes_from_a_damaged_partial(store: Store) -> None:
    store.layout.folder("partial")
    partial_of(store).write_bytes(b"\0" * 1_000_000)
    source = BlobSource(CONTENT, pause=0.01)
    with store.ingest(describe(CONTENT), source.open_at, QUICK) as ingest:
        with pytest.raises(DigestMismatch, match="removed the damaged rest"):
            b"".join(ingest.follow())
        ingest.wait()
    assert receive(store, BlobSource(CONTENT)) == CONTENT


def test_ingest_ignores_a_partial_that_is_too_long(store: Store) -> None:
    store.layout.folder("partial")
    partial_of(store).write_bytes(CONTENT + b"more")
    source = BlobSource(CONTENT)
    assert receive(store, source) == CONTENT
    assert source.offsets == [0]


@each_row("damage", ["flip", "truncate", "extend", "empty"])
def test_ingest_fetches_a_damaged_blob_again(store: Store, damage: str) -> None:
    receive(store, BlobSource(CONTENT))
    path = store.blob_path(describe(CONTENT).digest)
    flipped = CONTENT[:100] + bytes([CONTENT[100] ^ 4]) + CONTENT[101:]
    path.write_bytes({"flip": flipped, "truncate": CONTENT[:-1], "extend": CONTENT + b"x", "empty": b""}[damage])
    source = BlobSource(CONTENT)
    assert receive(store, source) == CONTENT
    assert source.offsets == [0]
    assert path.read_bytes() == CONTENT


def test_ingest_keeps_a_good_blob_when_the_manifest_lies_about_its_size(store: Store) -> None:
    receive(store, BlobSource(CONTENT))
    lie = Descriptor("", Digest.of(CONTENT), 17)
    with (
        store.ingest(lie, BlobSource(CONTENT).open_at, QUICK) as ingest,
        pytest.raises(DigestMismatch, match="promises 17"),
    ):
        ingest.wait()
    assert store.has_blob(Digest.of(CONTENT), len(CONTENT))


def test_ingest_can_be_followed_twice_and_by_several_threads(store: Store) -> None:
    source = BlobSource(CONTENT, piece=65536, pause=0.002)
    results: list[bytes] = []
    with store.ingest(describe(CONTENT), source.open_at) as ingest:
        threads = [threading.Thread(target=lambda: results.append(b"".join(ingest.follow()))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results.append(b"".join(ingest.follow()))
    assert results == [CONTENT] * 4
    assert source.offsets == [0]


def test_ingest_slow_follower_does_not_hold_up_the_download(store: Store) -> None:
    content = make_content(12 << 20)
    source = BlobSource(content)
    with store.ingest(describe(content), source.open_at) as ingest:
        pieces = ingest.follow()
        first = next(pieces)
        ingest.wait()
        assert first + b"".join(pieces) == content


def test_ingest_runs_several_at_once_and_no_more_than_allowed(tmp_path: Path) -> None:
    contents = [make_content(300_000, f"layer {number}") for number in range(6)]
    running, most = 0, 0
    lock = threading.Lock()

    def make_open(content: bytes):
        source = BlobSource(content, piece=50_000, pause=0.01)

        @contextlib.contextmanager
        def open_at(offset: int):
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            with source.open_at(offset) as stream:
                yield stream
            with lock:
                running -= 1

        return open_at

    with Store(tmp_path / "store", downloads=2) as store:
        ingests = [store.ingest(describe(content), make_open(content)) for content in contents]
        assert [b"".join(ingest.follow()) for ingest in ingests] == contents
    assert most == 2


def test_ingest_works_where_no_thread_can_be_started(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    source = BlobSource(CONTENT, break_at=[1_000_000])
    assert receive(store, source) == CONTENT
    other = make_content(100_000, "other")
    with store.ingest(describe(other), BlobSource(other).open_at) as ingest:
        assert ingest.wait().read_bytes() == other


def test_ingest_close_stops_the_download_and_keeps_what_arrived(store: Store) -> None:
    source = BlobSource(CONTENT, piece=65536, pause=0.02)
    ingest = store.ingest(describe(CONTENT), source.open_at)
    next(ingest.follow())
    began = time.monotonic()
    ingest.close()
    ingest.close()
    assert time.monotonic() - began < 30
    kept = partial_of(store).stat().st_size
    assert 0 < kept < len(CONTENT)
    assert list((store.root / "leases").iterdir()) == []
    with pytest.raises(KedgeError, match="stopped"):
        ingest.wait()
    later = BlobSource(CONTENT)
    assert receive(store, later) == CONTENT
    assert later.offsets == [kept]


def test_ingest_reports_each_byte_once(store: Store) -> None:
    counted: list[int] = []
    options = IngestOptions(first_pause=0.001, advance=counted.append)
    receive(store, BlobSource(CONTENT, break_at=[1_000_000]), options)
    assert sum(counted) == len(CONTENT)
    counted.clear()
    receive(store, BlobSource(CONTENT), options)
    assert sum(counted) == len(CONTENT)


def test_ingest_error_of_the_source_reaches_the_follower(store: Store) -> None:
    def refuse(offset: int):
        raise ValueError("a bug in the source")

    with store.ingest(describe(CONTENT), refuse) as ingest, pytest.raises(ValueError, match="a bug"):
        b"".join(ingest.follow())


def test_ingest_does_not_repeat_what_cannot_succeed(store: Store) -> None:
    asked: list[int] = []

    def refuse(offset: int):
        asked.append(offset)
        raise NetworkFailed("no such host", hint="check the name", is_transient=False)

    with store.ingest(describe(CONTENT), refuse, QUICK) as ingest, pytest.raises(NetworkFailed, match="no such host"):
        ingest.wait()
    assert asked == [0]
    assert not partial_of(store).exists(), "nothing had arrived"


def test_ingest_that_gives_up_keeps_the_hint_of_the_cause(store: Store) -> None:
    def refuse(offset: int):
        raise NetworkFailed("the proxy is silent", context={"proxy": "p:1"}, hint="check https_proxy")

    with store.ingest(describe(CONTENT), refuse, QUICK) as ingest, pytest.raises(NetworkFailed) as caught:
        ingest.wait()
    assert caught.value.hint == "check https_proxy"
    assert caught.value.context["proxy"] == "p:1"


def test_store_read_blob_is_verified(store: Store) -> None:
    digest = store.add_blob(b'{"schemaVersion": 2}')
    assert store.read_blob(digest, 1000) == b'{"schemaVersion": 2}'
    assert store.read_blob(digest, 5) is None
    store.blob_path(digest).write_bytes(b'{"schemaVersion": 3}')
    assert store.read_blob(digest, 1000) is None
    assert not store.has_blob(digest)


def test_ingest_closed_while_its_thread_sits_in_a_read_writes_into_no_other_file(store: Store, tmp_path: Path) -> None:
    reading, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        offset = 0

        def __iter__(self) -> Iterator[bytes]:
            yield b"a" * 100  # small: gathered, and written when the stream ends
            reading.set()
            go_on.wait(10)
            yield b"b" * 100

    @contextlib.contextmanager
    def open_at(_offset: int) -> Iterator[Slow]:
        try:
            yield Slow()
        finally:
            ended.set()

    ingest = store.ingest(describe(CONTENT), open_at, QUICK)
    assert reading.wait(10)
    ingest.close()
    others = [(tmp_path / f"other{number}").open("w+b") for number in range(8)]  # one has the number that became free
    go_on.set()
    assert ended.wait(10)
    time.sleep(0.05)
    assert [other.read() for other in others] == [b""] * 8
    with pytest.raises(KedgeError, match="stopped"):
        ingest.wait()
    for other in others:
        other.close()


def test_ingest_closed_while_its_thread_gets_the_lease_asks_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    claiming, go_on = threading.Event(), threading.Event()

    def acquire_late(*given: object) -> object:
        claiming.set()
        go_on.wait(10)
        return acquire(*given)  # type: ignore[arg-type]  # what it is called with

    monkeypatch.setattr(download, "acquire", acquire_late)
    source = BlobSource(CONTENT)
    ingest = store.ingest(describe(CONTENT), source.open_at, QUICK)
    assert claiming.wait(10)
    ingest.close()
    go_on.set()
    with pytest.raises(KedgeError, match="stopped"):
        ingest.wait()
    ingest.run()  # until its thread has done its last step
    assert source.offsets == []
    assert list((store.root / "leases").iterdir()) == []


def test_ingest_does_not_follow_a_link_that_somebody_laid(store: Store, tmp_path: Path) -> None:
    """In a shared store others may write: a link must not lead our bytes into a file of ours elsewhere."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * 1_000_000)
    partial = partial_of(store)
    store.layout.folder("partial")
    partial.symlink_to(victim)
    with contextlib.suppress(KedgeError):
        receive(store, BlobSource(CONTENT))
    assert victim.read_bytes() == b"precious" * 1_000_000
