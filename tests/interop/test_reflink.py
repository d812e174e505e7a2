# SPDX-License-Identifier: BSD-3-Clause
"""File systems that share blocks between files: a pulled image costs no room twice and is the user's. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from kedge.image.store.file_transfer import Delivery
from kedge.image.store.images import Handing
from kedge.image.store.store import Store
from tests.builders.blobs import make_content
from tests.builders.images import add_rich_image
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program, require_root

pytestmark = pytest.mark.root
CONTENT = make_content(40_000_000)


@pytest.fixture(params=["btrfs", "xfs"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system in a file."""
    require_root()
    file, place = tmp_path / "disk.img", tmp_path / "disk"
    with file.open("wb") as made:
        made.truncate(512 << 20)
    subprocess.run([require_program(f"mkfs.{request.param}"), "-q", file], check=True)
    place.mkdir()
    mounted = subprocess.run(["mount", "-o", "loop", file, place], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this kernel does not mount {request.param} from a file: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def write_image(file: BinaryIO) -> None:
    file.write(CONTENT)


def used(disk: Path) -> int:
    os.sync()
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def test_image_is_shared_by_blocks_and_by_nothing_else(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, before = Store(disk / "cache"), used(disk)
    assert store.build_into("key", write_image, Handing(disk / "one.sif")) is Delivery.CLONE
    kept = store.find_image("key")
    assert kept is not None
    monkeypatch.setattr("kedge.image.store.images.hash_file", lambda *_: pytest.fail("its change time says enough"))
    monkeypatch.setattr(
        "kedge.image.store.file_transfer.hash_open", lambda *_: pytest.fail("its change time says enough")
    )
    assert store.deliver("key", Handing(disk / "two.sif")) is Delivery.CLONE
    assert used(disk) - before < 1.3 * len(CONTENT), "three files, one copy"
    with (disk / "one.sif").open("r+b") as file:
        file.write(b"changed")
    assert kept.read_bytes() == (disk / "two.sif").read_bytes() == CONTENT
    assert store.find_image("key") == kept


def test_blocks_of_an_image_that_was_changed_are_not_shared(disk: Path) -> None:
    store = Store(disk / "cache")
    kept = store.build_image("key", write_image)
    before = kept.stat()
    with kept.open("r+b") as file:
        file.write(b"changed")
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.deliver("key", Handing(disk / "one.sif")) is None
    assert not (disk / "one.sif").exists()


def test_pull_again_says_reflink(disk: Path) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        reference = f"docker://{registry.host}/team/rich:1"
        kedge("pull", disk / "a.sif", reference, cache=disk / "c")
        again = kedge("pull", "--json", disk / "b.sif", reference, cache=disk / "c")
    assert json.loads(again.stdout)["how"] == "reflink"
    assert (disk / "a.sif").read_bytes() == (disk / "b.sif").read_bytes()
