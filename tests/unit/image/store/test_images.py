# SPDX-License-Identifier: BSD-3-Clause
"""Converted images, names, eviction and cleaning. Needs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.platform import Platform
from kedge.base.setting_values import LinkMode
from kedge.errors import FileProblem, OutputExists
from kedge.image.store import eviction
from kedge.image.store.eviction import ItemKind
from kedge.image.store.file_transfer import Delivery
from kedge.image.store.images import Handing
from kedge.image.store.store import Store
from kedge.image.store.use_marks import Use, find_used
from kedge.system.owned_names import machine_name
from tests.builders.blobs import BlobSource, describe, make_content
from tests.builders.rows import each_row
from tests.builders.waiting import wait_until

OWN = (Delivery.COPY, Delivery.CLONE)
ARM = Platform("arm64", "v8")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def write_image(file: BinaryIO) -> None:
    file.write(b"SIF" * 10_000)


def refuse_build(file: BinaryIO) -> None:
    raise AssertionError("it is in the store already")


def add_blob(store: Store, size: int, seed: str, age: float = 0) -> Digest:
    content = make_content(size, seed)
    with store.ingest(describe(content), BlobSource(content).open_at) as ingest:
        path = ingest.wait()
    when = time.time() - age
    os.utime(path, (when, when))
    return describe(content).digest


# -- images


def test_image_is_built_once(store: Store) -> None:
    path = store.build_image("key", write_image)
    assert path.read_bytes() == b"SIF" * 10_000
    assert store.build_image("key", refuse_build) == path
    assert store.find_image("other key") is None


def test_image_build_that_fails_leaves_nothing(store: Store) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyError("broken")

    with pytest.raises(KeyError):
        store.build_image("key", fail)
    assert store.find_image("key") is None
    assert [path for path in store.root.rglob("*") if path.is_file()] == [store.root / "CACHEDIR.TAG"]


def test_image_is_delivered_as_a_file_of_the_users_own(store: Store, tmp_path: Path) -> None:
    path = store.build_image("key", write_image)
    assert store.deliver("key", Handing(tmp_path / "out.sif")) in OWN
    assert (tmp_path / "out.sif").stat().st_ino != path.stat().st_ino
    (tmp_path / "out.sif").write_bytes(b"changed")
    assert store.find_image("key") == path
    assert path.read_bytes() == b"SIF" * 10_000


def test_image_is_delivered_as_a_hard_link_to_who_asks_for_it(store: Store, tmp_path: Path) -> None:
    path = store.build_image("key", write_image)
    wish = Handing(tmp_path / "out.sif", mode=LinkMode.HARDLINK)
    assert store.deliver("key", wish) is Delivery.LINK
    assert (tmp_path / "out.sif").stat().st_ino == path.stat().st_ino
    assert store.find_image("key") == path, "a link is no change"
    assert store.deliver("key", replace(wish, force=True)) is Delivery.LINK
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.sif", "store"]


def test_image_mode_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        store = Store(tmp_path / "store")
        store.build_image("key", write_image)
        store.deliver("key", Handing(tmp_path / "out.sif", mode=LinkMode.HARDLINK))
        store.deliver("key", Handing(tmp_path / "copy.sif"))
        store.build_into("fresh", write_image, Handing(tmp_path / "fresh.sif"))
    finally:
        os.umask(old)
    assert (tmp_path / "out.sif").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "copy.sif").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "fresh.sif").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("first", "second"), [(0o077, 0o022), (0o022, 0o077)])
def test_image_delivery_follows_the_umask_of_the_moment(tmp_path: Path, first: int, second: int) -> None:
    """What was built under another umask neither hides the file from the group nor shows it to everybody."""
    old = os.umask(first)
    try:
        store = Store(tmp_path / "store")
        store.build_image("key", write_image)
        os.umask(second)
        delivered = store.deliver("key", Handing(tmp_path / "out.sif", mode=LinkMode.HARDLINK))
    finally:
        os.umask(old)
    assert delivered is not Delivery.LINK
    assert (tmp_path / "out.sif").stat().st_mode & 0o777 == 0o755 & ~second


def test_store_that_is_shared_leaves_permissions_to_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o007)
    try:
        store = Store(tmp_path / "store", shared=True)
        digest = add_blob(store, 1000, "x")
    finally:
        os.umask(old)
    assert store.blob_path(digest).stat().st_mode & 0o777 == 0o660
    assert store.blob_path(digest).parent.stat().st_mode & 0o777 == 0o770


def test_image_delivery_does_not_overwrite(store: Store, tmp_path: Path) -> None:
    store.build_image("key", write_image)
    (tmp_path / "out.sif").write_bytes(b"mine")
    with pytest.raises(OutputExists):
        store.deliver("key", Handing(tmp_path / "out.sif"))
    with pytest.raises(OutputExists):
        store.build_into("fresh", write_image, Handing(tmp_path / "out.sif"))
    assert (tmp_path / "out.sif").read_bytes() == b"mine"
    assert store.deliver("key", Handing(tmp_path / "out.sif", force=True)) in OWN
    assert store.build_into("fresh", write_image, Handing(tmp_path / "out.sif", force=True)) in (*OWN, Delivery.MOVE)
    assert (tmp_path / "out.sif").read_bytes() == b"SIF" * 10_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.sif", "store"]


def test_image_delivery_names_a_missing_folder(store: Store, tmp_path: Path) -> None:
    store.build_image("key", write_image)
    with pytest.raises(FileProblem, match=r"nowhere/out\.sif"):
        store.deliver("key", Handing(tmp_path / "nowhere/out.sif"))
    with pytest.raises(FileProblem, match=r"nowhere"):
        store.build_into("fresh", write_image, Handing(tmp_path / "nowhere/out.sif"))


def test_image_delivery_of_an_absent_image_is_none(store: Store, tmp_path: Path) -> None:
    assert store.deliver("key", Handing(tmp_path / "out.sif")) is None
    assert not (tmp_path / "out.sif").exists()


@pytest.mark.parametrize("tamper", ["append", "overwrite", "truncate", "replace"])
def test_image_changed_through_its_link_is_noticed_and_dropped(store: Store, tmp_path: Path, tamper: str) -> None:
    path = store.build_image("key", write_image)
    out = tmp_path / "out.sif"
    store.deliver("key", Handing(out, mode=LinkMode.HARDLINK))
    before = path.stat()
    warnings: list[str] = []
    store.images.warn = warnings.append
    if tamper == "replace":
        path.unlink()
        path.write_bytes(b"FIS" * 10_000)
    else:
        with out.open("r+b") as file:
            {
                "append": lambda: file.seek(0, 2),
                "overwrite": lambda: file.seek(7),
                "truncate": lambda: file.truncate(5),
            }[tamper]()
            file.write(b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = out.read_bytes()
    assert store.find_image("key") is None
    assert len(warnings) == 1
    assert "'key' has been changed" in warnings[0]
    assert not path.exists()
    assert out.read_bytes() == changed, "the user's file is the user's"
    store.build_image("key", write_image)
    assert store.find_image("key") is not None


def test_image_without_a_record_does_not_count(store: Store) -> None:
    path = store.build_image("key", write_image)
    path.with_suffix(".json").write_text("[")
    assert store.find_image("key") is None
    assert store.build_image("key", write_image) == path
    assert store.find_image("key") == path


def test_image_is_built_straight_at_the_target_when_it_is_not_kept(store: Store, tmp_path: Path) -> None:
    assert store.build_into("key", write_image, Handing(tmp_path / "out.sif"), keep=False) is None
    assert (tmp_path / "out.sif").read_bytes() == b"SIF" * 10_000
    assert store.find_at_hand("key") is None
    store.build_into("key", write_image, Handing(tmp_path / "two.sif"))
    assert store.build_into("key", refuse_build, Handing(tmp_path / "three.sif"), keep=False) in OWN


# -- names


def test_names_are_recalled_by_reference_and_platform(store: Store) -> None:
    digest = Digest.of(b"manifest")
    store.remember("docker.io/library/debian:12", ARM, digest)
    found = store.recall("docker.io/library/debian:12", ARM)
    assert found.digest == digest
    assert store.recall("docker.io/library/debian:12", Platform("amd64")) is None
    store.remember("docker.io/library/debian:12", ARM, Digest.of(b"newer"))
    newer = store.recall("docker.io/library/debian:12", ARM)
    assert newer.digest == Digest.of(b"newer")


def name_with(when: str) -> bytes:
    return f'{{"reference": "x", "platform": "{ARM}", "digest": "{Digest.of(b"")}", "when": {when}}}'.encode()


ODD_TIMES = [name_with(when) for when in ("1" + "0" * 400, "1e999", "NaN")]


@each_row("data", [b"", b"[]", b"{", b'{"reference": 1}', b"[" * 70_000, b"\0" * 100, *ODD_TIMES])
def test_names_damaged_record_is_forgotten(store: Store, data: bytes) -> None:
    store.remember("x", ARM, Digest.of(b""))
    next((store.root / "names").iterdir()).write_bytes(data)
    assert store.recall("x", ARM) is None
    assert len(store.entries()) == 1


# -- eviction


def test_eviction_takes_what_was_used_longest_ago(store: Store) -> None:
    digests = [add_blob(store, 100_000, str(age), age) for age in (400, 300, 200, 100)]
    store.limit = 250_000
    removed = store.evict()
    assert [entry.name for entry in removed] == [str(digests[0]), str(digests[1])]
    assert [store.has_blob(digest) for digest in digests] == [False, False, True, True]


def test_eviction_counts_use_and_not_age(store: Store) -> None:
    old, young = add_blob(store, 100_000, "old", 400), add_blob(store, 100_000, "young", 200)
    assert store.read_blob(old, 1 << 20) is not None
    store.limit = 150_000
    store.evict()
    assert store.has_blob(old)
    assert not store.has_blob(young)


def test_eviction_runs_after_each_commit_and_spares_the_newcomer(store: Store) -> None:
    store.limit = 150_000
    first = add_blob(store, 100_000, "first")
    content = make_content(200_000, "second")
    with store.ingest(describe(content), BlobSource(content).open_at) as ingest:
        assert ingest.wait().exists()
        wait_until("the older one is evicted", lambda: not store.has_blob(first))
        assert store.has_blob(describe(content).digest), "larger than the cap, but in use"


def test_eviction_never_takes_what_is_in_use(store: Store) -> None:
    digest = add_blob(store, 100_000, "x", 1000)
    store.build_image("key", write_image)
    store.limit = 0
    with Use(store.layout, digest.hex), store.use_image("key"):
        assert store.evict() == []
        assert store.clean(list(ItemKind)) == []
    assert {entry.kind for entry in store.evict()} == {ItemKind.BLOB, ItemKind.IMAGE}
    assert list((store.root / "images").iterdir()) == []


def test_eviction_puts_back_what_is_taken_into_use_meanwhile(store: Store) -> None:
    digest = add_blob(store, 1000, "x")
    entry = store.entries()[0]
    with Use(store.layout, digest.hex):
        assert not entry.in_use, "as it was seen before the mark"
        assert not eviction.remove_entry(store.layout, entry)
    assert store.has_blob(digest)


def test_use_of_dead_processes_does_not_count(store: Store) -> None:
    digest = add_blob(store, 1000, "x")
    script = (
        "import sys, os; from pathlib import Path;"
        "from kedge.image.store.layout import Layout; from kedge.image.store.use_marks import Use;"
        "Use(Layout(Path(sys.argv[1])), sys.argv[2]); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(store.root), digest.hex], check=True)
    assert len(list((store.root / "using").iterdir())) == 1
    assert find_used(store.layout) == set()
    assert list((store.root / "using").iterdir()) == []


def test_use_of_another_host_counts_while_it_is_touched(store: Store) -> None:
    mark = store.layout.folder("using") / "abc.0123456789ab.12.34.feed"
    mark.touch()
    assert find_used(store.layout) == {"abc"}
    os.utime(mark, (1, 1))
    assert find_used(store.layout) == set()


# -- looking and cleaning


def fill(store: Store) -> None:
    add_blob(store, 5000, "old", 10 * 86400)
    add_blob(store, 6000, "new")
    store.build_image("key", write_image)
    store.remember("ref", ARM, Digest.of(b""))
    (store.layout.folder("partial") / ("f" * 64)).write_bytes(b"part")
    (store.layout.folder("tmp") / "build.0123456789ab.1.1.feed").write_bytes(b"other host")


def test_store_usage_counts_by_kind(store: Store) -> None:
    assert store.usage()[ItemKind.BLOB].count == 0
    fill(store)
    present = {kind.value: (usage.count, usage.size) for kind, usage in store.usage().items() if usage.count}
    del present["name"]
    assert present == {"blob": (2, 11000), "image": (1, 30000), "partial": (1, 4), "temporary": (1, 10)}


def test_store_clean_by_age_kind_and_rehearsal(store: Store) -> None:
    fill(store)
    assert [entry.size for entry in store.clean([ItemKind.BLOB], unused_for=86400, dry_run=True)] == [5000]
    assert len(store.entries()) == 6
    assert [entry.size for entry in store.clean([ItemKind.BLOB], unused_for=86400)] == [5000]
    assert [entry.kind for entry in store.clean([ItemKind.PARTIAL])] == [ItemKind.PARTIAL]
    store.clean(list(ItemKind))
    assert [entry.kind for entry in store.entries()] == [ItemKind.TEMPORARY], "its owner may live on that host"


def test_store_clean_spares_a_partial_that_grows(store: Store) -> None:
    content = make_content(2_000_000)
    with store.ingest(describe(content), BlobSource(content, piece=100_000, pause=0.01).open_at) as ingest:
        next(ingest.follow())
        assert store.clean([ItemKind.PARTIAL]) == []
        assert b"".join(ingest.follow()) == content


def test_store_sweep_removes_what_dead_processes_left(store: Store) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    folder = store.layout.folder("tmp")
    dead = folder / f"build.{machine_name()}.{process.pid}.1.feed"
    elsewhere = folder / "build.0123456789ab.1.1.feed"
    ancient = folder / "build.0123456789ab.2.1.feed"
    for path in (dead, elsewhere, ancient):
        path.write_bytes(b"1234")
    os.utime(ancient, (1, 1))
    assert store.sweep() == 8
    assert list(folder.iterdir()) == [elsewhere]


def test_store_verify_drops_the_damaged(store: Store) -> None:
    fill(store)
    broken = describe(make_content(5000, "old")).digest
    store.blob_path(broken).write_bytes(b"\0" * 5000)
    counted: list[int] = []
    assert [entry.name for entry in store.verify(counted.append).broken] == [str(broken)]
    assert sum(counted) == 41000
    assert not store.has_blob(broken)


def test_store_limit_is_kept_in_the_store(store: Store) -> None:
    assert not store.has_stored_limit
    store.set_limit(1 << 30)
    assert Store(store.root).stored_limit() == 1 << 30
    store.set_limit(None)
    assert store.has_stored_limit
    assert store.stored_limit() is None


def test_store_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("x")
    with pytest.raises(FileProblem, match="cannot use the cache") as caught:
        Store(tmp_path / "store").add_blob(b"x")
    assert "KEDGE_CACHEDIR" in (caught.value.hint or "")


def test_store_is_not_made_by_looking(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit=5)
    assert store.entries() == []
    assert store.evict() == []
    assert store.find_image("x") is None
    assert store.clean(list(ItemKind), unused_for=1) == []
    assert not (tmp_path / "store").exists()


def test_store_passes_over_files_that_nfs_keeps_for_readers(store: Store) -> None:
    digest = add_blob(store, 5000, "x")
    (store.blob_path(digest).parent / ".nfs0000000001a2b3c400000001").write_bytes(b"of a removed blob")
    assert [entry.name for entry in store.entries()] == [str(digest)]
    assert store.verify().broken == []


def test_store_says_when_what_was_built_is_gone_before_it_is_delivered(store: Store, tmp_path: Path) -> None:
    real = store.images._keep

    def keep(fresh: Any) -> Path:
        path = real(fresh)
        path.unlink()  # by somebody who cleans by hand
        return path

    store.images._keep = keep  # type: ignore[method-assign]
    with pytest.raises(FileProblem, match="disappeared"):
        store.build_into("key", write_image, Handing(tmp_path / "out.sif", mode=LinkMode.COPY))
