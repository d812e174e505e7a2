# SPDX-License-Identifier: BSD-3-Clause
"""What the cache writes down about images, and whom it believes: digests, change times, files it gave away."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kedge.base.setting_values import LinkMode
from kedge.errors import NoSpace
from kedge.image.store import file_transfer
from kedge.image.store.eviction import ItemKind
from kedge.image.store.file_transfer import Delivery
from kedge.image.store.held_images import Holds
from kedge.image.store.image_records import ImageRecord
from kedge.image.store.images import Handing
from kedge.image.store.store import Store
from tests.builders.blobs import make_content
from tests.wording import assert_reads

CONTENT = make_content(3_000_000)
CHANGED = b"changed" + CONTENT[7:]


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cache whose file system cannot share blocks, wherever the test runs."""
    monkeypatch.setattr(file_transfer, "_share_blocks", lambda source, target: False)
    store = Store(tmp_path / "store")
    store.images.warn = warnings.append
    return store


def write_image(file: BinaryIO) -> None:
    file.write(CONTENT)


def refuse_build(file: BinaryIO) -> None:
    raise AssertionError("it is at hand already")


def deliver_first(store: Store, target: Path) -> Path:
    assert store.build_into("key", write_image, Handing(target)) is Delivery.MOVE
    return target


def change_in_place(path: Path, *, inode: bool = True) -> None:
    """What a hostile program does: other bytes, the old length, the old times."""
    before = path.stat()
    if not inode:
        path.unlink()
        path.touch()
    with path.open("r+b") as file:
        file.write(CHANGED)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


# -- what was given away


def test_first_delivery_leaves_one_copy_which_is_the_users(store: Store, tmp_path: Path) -> None:
    out = deliver_first(store, tmp_path / "out.sif")
    assert out.read_bytes() == CONTENT
    assert out.stat().st_nlink == 1
    large = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 10_000]
    assert large == [out]
    assert store.usage()[ItemKind.RECORD].count == 1
    assert sum(each.size for each in store.usage().values()) < 1000, "what the user has does not count"


def test_delivery_again_is_copied_from_the_users_file(store: Store, tmp_path: Path) -> None:
    deliver_first(store, tmp_path / "out.sif")
    assert store.build_into("key", refuse_build, Handing(tmp_path / "two.sif")) is Delivery.COPY
    (tmp_path / "out.sif").unlink()
    assert store.deliver("key", Handing(tmp_path / "three.sif")) is Delivery.COPY, "from the second"
    assert (tmp_path / "three.sif").read_bytes() == CONTENT
    assert (tmp_path / "three.sif").stat().st_ino != (tmp_path / "two.sif").stat().st_ino


def test_delivered_file_is_looked_at_only_as_long_as_it_has_the_bytes(store: Store, tmp_path: Path) -> None:
    out = deliver_first(store, tmp_path / "out.sif")
    assert store.images.find_delivered("key") == out
    change_in_place(out)
    assert store.images.find_delivered("key") is None


def test_delivery_onto_the_file_itself_makes_a_new_one(store: Store, tmp_path: Path) -> None:
    """A program that has the old one open for writing keeps the old one."""
    out = deliver_first(store, tmp_path / "out.sif")
    with out.open("r+b") as held:
        assert store.deliver("key", Handing(out, force=True)) is Delivery.COPY
        held.write(b"changed")
    assert out.read_bytes() == CONTENT


def test_delivery_never_copies_what_was_changed(store: Store, tmp_path: Path, warnings: list[str]) -> None:
    out = deliver_first(store, tmp_path / "out.sif")
    change_in_place(out)
    assert store.deliver("key", Handing(tmp_path / "two.sif")) is None
    assert not (tmp_path / "two.sif").exists()
    assert_reads(warnings, "pull/been-changed-since-delivered-does", out)
    assert store.find_at_hand("key") is None
    assert store.build_into("key", write_image, Handing(tmp_path / "two.sif")) is Delivery.MOVE
    assert (tmp_path / "two.sif").read_bytes() == CONTENT
    assert out.read_bytes() == CHANGED, "the user's file is the user's"


def test_delivery_passes_over_a_changed_file_to_a_good_one(store: Store, tmp_path: Path) -> None:
    deliver_first(store, tmp_path / "one.sif")
    store.deliver("key", Handing(tmp_path / "two.sif"))
    change_in_place(tmp_path / "two.sif")  # the newest is asked first
    assert store.deliver("key", Handing(tmp_path / "three.sif")) is Delivery.COPY
    assert (tmp_path / "three.sif").read_bytes() == CONTENT


@pytest.mark.parametrize("put", ["link", "pipe", "folder", "longer"])
def test_delivery_reads_nothing_else_that_has_the_name(store: Store, tmp_path: Path, put: str) -> None:
    out = deliver_first(store, tmp_path / "out.sif")
    (tmp_path / "elsewhere").write_bytes(CONTENT)
    out.unlink()
    puts: dict[str, Callable[[], Any]] = {
        "link": lambda: out.symlink_to(tmp_path / "elsewhere"),
        "pipe": lambda: os.mkfifo(out),
        "folder": out.mkdir,
        "longer": lambda: out.write_bytes(CONTENT + b"!"),
    }
    puts[put]()
    assert store.find_at_hand("key") is None
    assert store.deliver("key", Handing(tmp_path / "two.sif")) is None


def test_image_for_the_cache_is_copied_from_the_users_file(store: Store, tmp_path: Path, warnings: list[str]) -> None:
    out = deliver_first(store, tmp_path / "out.sif")
    kept = store.build_image("key", refuse_build)
    assert kept.read_bytes() == CONTENT
    change_in_place(out)
    assert store.find_image("key") == kept
    store.images.drop("key")
    assert store.build_image("key", write_image).read_bytes() == CONTENT
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"{",
        b'{"digest": "sha256:00", "size": 3, "paths": ["/etc/passwd"]}',
        b'{"key": "key", "digest": "sha256:' + b"0" * 64 + b'", "size": "3", "paths": ["/etc/passwd"]}',
        b'{"key": "key", "digest": "sha256:' + b"0" * 64 + b'", "size": 3, "paths": {}}',
        b'{"key": "key", "digest": "sha256:' + b"0" * 64 + b'", "size": 3, "paths": [1, "relative", "/\\u0000"]}',
    ],
)
def test_record_that_is_damaged_or_forged_is_not_followed(store: Store, tmp_path: Path, damage: bytes) -> None:
    deliver_first(store, tmp_path / "out.sif")
    store.images.deliveries.path("key").write_bytes(damage)
    assert store.deliver("key", Handing(tmp_path / "two.sif")) is None
    assert store.build_into("key", write_image, Handing(tmp_path / "two.sif")) is Delivery.MOVE


def test_record_that_is_damaged_is_dropped_by_verify(store: Store, tmp_path: Path) -> None:
    deliver_first(store, tmp_path / "out.sif")
    store.images.deliveries.path("key").write_bytes(b"{")
    assert [entry.kind for entry in store.verify().broken] == [ItemKind.RECORD]
    assert store.entries() == []


def test_record_of_a_name_that_is_no_text_is_kept(store: Store, tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"\xff.sif")
    deliver_first(store, out)
    assert store.find_at_hand("key") == out


def test_verify_names_changed_files_and_forgets_those_that_are_gone(store: Store, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        store.build_into("key", write_image, Handing(tmp_path / name))
    change_in_place(tmp_path / "one")
    (tmp_path / "two").unlink()
    found = store.verify()
    assert (found.broken, found.changed) == ([], [tmp_path / "one"])
    assert (tmp_path / "one").read_bytes() == CHANGED
    record = store.images.deliveries.read("key")
    assert record.paths == (tmp_path / "three",)
    change_in_place(tmp_path / "three")
    store.verify()
    assert store.entries() == []


def test_clean_takes_records_and_leaves_files(store: Store, tmp_path: Path) -> None:
    out = deliver_first(store, tmp_path / "out.sif")
    assert [entry.kind for entry in store.clean(list(ItemKind))] == [ItemKind.RECORD]
    assert out.read_bytes() == CONTENT
    assert store.find_at_hand("key") is None


def test_eviction_leaves_records(store: Store, tmp_path: Path) -> None:
    deliver_first(store, tmp_path / "out.sif")
    store.limit = 0
    assert store.evict() == []


# -- what the cache keeps


def test_kept_image_that_was_changed_is_not_delivered(store: Store, tmp_path: Path) -> None:
    change_in_place(store.build_image("key", write_image))
    assert store.deliver("key", Handing(tmp_path / "out.sif")) is None
    assert not (tmp_path / "out.sif").exists()


def test_kept_image_is_believed_again_after_a_harmless_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.build_image("key", write_image)
    path.chmod(0o700)
    assert store.find_image("key") == path
    monkeypatch.setattr("kedge.image.store.images.hash_file", lambda *_: pytest.fail("it was hashed a moment ago"))
    assert store.find_image("key") == path


def test_kept_image_that_was_linked_once_is_hashed_each_time(store: Store, tmp_path: Path) -> None:
    """Whoever had it open for writing can go on changing pages in memory, which no time tells."""
    path = store.build_image("key", write_image)
    store.deliver("key", Handing(tmp_path / "out.sif", mode=LinkMode.HARDLINK))
    (tmp_path / "out.sif").unlink()
    assert store.find_image("key") == path
    record = ImageRecord.read(path)
    assert record.is_linked
    assert not record.is_witnessed(path.stat())


def test_verify_hashes_images_that_look_untouched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.build_image("key", write_image)
    change_in_place(path)
    monkeypatch.setattr(ImageRecord, "is_witnessed", lambda *_: True)
    assert store.find_image("key") == path
    assert [entry.name for entry in store.verify().broken] == ["key"]
    assert store.entries() == []


def test_verify_drops_an_image_without_a_record(store: Store) -> None:
    path = store.build_image("key", write_image)
    path.with_suffix(".json").unlink()
    assert len(store.verify().broken) == 1
    assert not path.exists()


# -- ways and places


def test_copy_mode_keeps_the_image(store: Store, tmp_path: Path) -> None:
    wish = Handing(tmp_path / "out.sif", mode=LinkMode.COPY)
    assert store.build_into("key", write_image, wish) is Delivery.COPY
    assert store.find_image("key") is not None


def test_other_file_system_keeps_the_image(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_transfer, "is_same_device", lambda *_: False)
    assert store.build_into("key", write_image, Handing(tmp_path / "out.sif")) is Delivery.COPY
    assert store.find_image("key") is not None


def test_move_gives_a_folders_group_to_the_file(store: Store, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs another group")
    (tmp_path / "group").mkdir()
    os.chown(tmp_path / "group", -1, 4711)
    (tmp_path / "group").chmod(0o2775)
    out = deliver_first(store, tmp_path / "group/out.sif")
    assert out.stat().st_gid == 4711


def test_file_that_cannot_be_moved_is_copied(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_transfer, "_has_default_acl", lambda _: True)
    assert store.build_into("key", write_image, Handing(tmp_path / "out.sif")) is Delivery.COPY
    assert (tmp_path / "out.sif").read_bytes() == CONTENT
    assert store.find_image("key") is None
    assert store.find_at_hand("key") == tmp_path / "out.sif"
    assert list((store.root / "tmp").iterdir()) == []


def test_copy_onto_a_full_disk_leaves_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver_first(store, tmp_path / "out.sif")

    def fill_up(source: BinaryIO, target: BinaryIO) -> str:
        target.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_transfer, "copy_hashed", fill_up)
    with pytest.raises(NoSpace):
        store.deliver("key", Handing(tmp_path / "two.sif"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.sif", "store"]
    assert store.find_at_hand("key") == tmp_path / "out.sif"


def test_kill_between_move_and_record_loses_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.images.deliveries, "note", die)
        with pytest.raises(KeyboardInterrupt):
            store.build_into("key", write_image, Handing(tmp_path / "out.sif"))
    assert (tmp_path / "out.sif").read_bytes() == CONTENT
    assert (tmp_path / "out.sif").stat().st_nlink == 1
    assert store.entries() == []
    assert store.build_into("key", write_image, Handing(tmp_path / "two.sif")) is Delivery.MOVE


def test_record_that_cannot_be_written_fails_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NoSpace("full")

    monkeypatch.setattr(store.images.deliveries, "_write", refuse)
    deliver_first(store, tmp_path / "out.sif")
    assert store.find_at_hand("key") is None


def test_hold_is_no_change_of_the_image_and_keeps_it(store: Store) -> None:
    holds, path = Holds(store.layout), store.build_image("key", write_image)
    before = path.stat()
    held = holds.hold(path, "job-1", "image.sqsh")
    assert held.samefile(path)
    assert path.stat().st_ctime_ns == before.st_ctime_ns
    store.limit = 0
    assert store.evict() == store.clean(list(ItemKind)) == []
    holds.release("job-1")
    assert [entry.kind for entry in store.evict()] == [ItemKind.IMAGE]


def test_copies_need_no_thread(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    deliver_first(store, tmp_path / "out.sif")
    assert store.deliver("key", Handing(tmp_path / "two.sif")) is Delivery.COPY
    assert (tmp_path / "two.sif").read_bytes() == CONTENT
