# SPDX-License-Identifier: BSD-3-Clause
"""Layers written into the cache, and records of build steps: whole or not there, done once, gone with their layer."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_LAYER_ZSTD, Descriptor
from kedge.errors import NoSpace
from kedge.image.layers.tar_writer import LayerResult
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.eviction import ItemKind
from kedge.image.store.lease import Lease
from kedge.image.store.store import Store
from tests.builders.rows import each_row

KEY = hashlib.sha256(b"step").hexdigest()


def write_bytes(data: bytes, file: BinaryIO) -> LayerResult:
    file.write(data)
    return LayerResult(Digest.of(data), Digest.of(b"tar of " + data), len(data))


def add(store: Store, data: bytes, key: str = KEY) -> StepRecord:
    layer, diff_id = store.add_layer(lambda file: write_bytes(data, file))
    record = StepRecord(key, layer, diff_id, "RUN make", {"seconds": 3})
    store.steps.write(record)
    return record


def test_steps_a_layer_stands_under_its_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    layer, diff_id = store.add_layer(lambda file: write_bytes(b"layer", file))
    assert layer == Descriptor(OCI_LAYER_ZSTD, Digest.of(b"layer"), 5)
    assert diff_id == Digest.of(b"tar of layer")
    assert store.blob_path(layer.digest).read_bytes() == b"layer"
    inode = store.blob_path(layer.digest).stat().st_ino
    store.add_layer(lambda file: write_bytes(b"layer", file))
    assert store.blob_path(layer.digest).stat().st_ino == inode, "the same layer was kept a second time"
    assert not list((tmp_path / "tmp").iterdir())


def test_steps_a_layer_of_another_size_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    layer, _ = store.add_layer(lambda file: write_bytes(b"layer", file))
    store.blob_path(layer.digest).write_bytes(b"cut")
    store.add_layer(lambda file: write_bytes(b"layer", file))
    assert store.blob_path(layer.digest).read_bytes() == b"layer"


def test_steps_nothing_stays_of_a_layer_that_fails(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail(file: BinaryIO) -> LayerResult:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(NoSpace):
        store.add_layer(fail)
    assert [item.kind for item in store.entries()] == []


def test_steps_a_record_is_read_back_and_counts_as_used(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = add(store, b"layer")
    for path in (store.steps.path(KEY), store.blob_path(record.layer.digest)):
        os.utime(path, (1, 1))
    assert store.steps.find(KEY) == record
    assert all(item.used > 1 for item in store.entries())
    assert {item.kind: item.name for item in store.entries()}[ItemKind.STEP] == "RUN make"
    assert store.steps.find(hashlib.sha256(b"other").hexdigest()) is None


def test_steps_a_step_may_change_no_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.steps.write(StepRecord(KEY, None, None, "RUN true"))
    assert store.steps.find(KEY) == StepRecord(KEY, None, None, "RUN true")


def test_steps_a_record_without_its_layer_is_no_hit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = add(store, b"layer")
    store.blob_path(record.layer.digest).write_bytes(b"other size")
    assert store.steps.find(KEY) is None
    store.blob_path(record.layer.digest).unlink()
    assert store.steps.find(KEY) is None


@each_row(
    "change",
    [
        {"format": 2},
        {"key": "0" * 64},
        {"layer": {"digest": "sha256:x", "size": 5, "mediaType": "m"}},
        {"layer": {"digest": str(Digest.of(b"layer")), "size": "5", "mediaType": "m"}},
        {"layer": []},
        {"layer": None},
        {"diff_id": "../../etc"},
        {"extra": 3},
    ],
)
def test_steps_a_damaged_record_is_no_hit(tmp_path: Path, change: dict[str, object]) -> None:
    store = Store(tmp_path)
    add(store, b"layer")
    path = store.steps.path(KEY)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert store.steps.find(KEY) is None
    for text in ("", "[", "[]", "{}", "\0" * 100):
        path.write_text(text)
        assert store.steps.find(KEY) is None


def test_steps_a_key_cannot_lead_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a key"):
        Store(tmp_path).steps.find("../../x")


def test_steps_one_does_it_and_the_others_wait(tmp_path: Path) -> None:
    done: list[int] = []

    def build(number: int) -> None:
        store = Store(tmp_path)
        claim = store.steps.claim(KEY)
        if isinstance(claim, Lease):
            with claim:
                done.append(number)
                add(store, b"layer")
        else:
            assert claim.created_by == "RUN make"

    threads = [threading.Thread(target=build, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 1


def test_steps_a_step_can_be_done_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    add(store, b"layer")
    claim = store.steps.claim(KEY, is_anew=True)
    assert isinstance(claim, Lease)
    claim.release()
    assert isinstance(store.steps.claim(KEY), StepRecord)


def test_steps_records_go_with_their_layers(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=100)
    old = hashlib.sha256(b"old").hexdigest()
    record = add(store, b"o" * 80, old)
    os.utime(store.blob_path(record.layer.digest), (1, 1))
    add(store, b"n" * 90)
    assert store.steps.find(old) is None
    assert not store.steps.path(old).exists()
    store.clean([ItemKind.BLOB])
    assert [item for item in store.entries() if item.kind is ItemKind.STEP] == []


def test_steps_a_layer_in_use_is_not_evicted(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=100)
    record = add(store, b"o" * 80)
    os.utime(store.blob_path(record.layer.digest), (1, 1))
    with store.steps.use_layer(record.layer):
        store.add_layer(lambda file: write_bytes(b"n" * 90, file))
        assert store.steps.find(KEY) == record
