# SPDX-License-Identifier: BSD-3-Clause
"""Many real processes on one store: one does the work, killed ones are replaced, nobody sees half a file.

Some tests need root: for a small file system of their own, and to run as an ordinary user.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import NoSpace
from kedge.image.store.download import IngestOptions
from kedge.image.store.images import Handing
from kedge.image.store.store import Store
from tests.builders.blobs import BlobSource, describe, make_content
from tests.builders.small_disks import small_memory
from tests.fakes.store_user import BLOB_SIZE, IMAGE_KEY
from tests.requirements import REPOSITORY, open_way, require_program, require_root

CONTENT = make_content(BLOB_SIZE)


def start(root: Path, log: Path, action: str, pause: float, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    command = [*prefix, sys.executable, "-m", "tests.fakes.store_user", str(root), str(log), action, str(pause)]
    environ = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    return subprocess.Popen(command, env=environ, cwd="/", stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def read_log(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def assert_clean(root: Path) -> None:
    for name in ("leases", "partial", "tmp", "using"):
        assert list((root / name).iterdir()) == [] if (root / name).exists() else True, name


@pytest.mark.parametrize(("action", "pause"), [("ingest", 0.02), ("build", 1.0)])
def test_store_many_processes_do_the_work_once(tmp_path: Path, action: str, pause: float) -> None:
    log = tmp_path / "log"
    processes = [start(tmp_path / "store", log, action, pause) for _ in range(6)]
    for process in processes:
        finish(process)
    assert len(read_log(log)) == 1
    assert_clean(tmp_path / "store")


def test_store_killed_downloads_are_resumed(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    partial = Store(root).layout.partial(describe(CONTENT).digest)
    sizes = []
    for _ in range(7):
        process = start(root, log, "ingest", 0.004)
        before = partial.stat().st_size if partial.exists() else 0
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            if partial.exists() and partial.stat().st_size > before:
                break
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.01))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        sizes.append(partial.stat().st_size if partial.exists() else None)
        if sizes[-1] is None:
            break
    finish(start(root, log, "ingest", 0.0))
    asked = read_log(log)
    assert asked[0] == 0
    assert asked == sorted(asked), "each began where the one before it was killed"
    assert asked[1:] == [size for size in sizes if size is not None][: len(asked) - 1]
    assert len(asked) > 3
    if sizes[-1] is not None:  # killed after the blob was whole it leaves its lease for a day
        assert_clean(root)


def test_store_killed_at_any_moment_serves_the_next_command(tmp_path: Path) -> None:
    """From the very start of the process: while it makes directories, claims, resumes, commits."""
    root, log = tmp_path / "store", tmp_path / "log"
    began = time.monotonic()
    finish(start(tmp_path / "first", log, "ingest", 0.001))
    whole = time.monotonic() - began
    for step in range(6):
        process = start(root, log, "ingest", 0.001)
        time.sleep(whole * (0.3 + 0.7 * step / 5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if step % 3 == 2:
            was_whole = Store(root).layout.blob(describe(CONTENT).digest).exists()
            finish(start(root, log, "ingest", 0.0))
            if not was_whole:  # else a lease may stay for a day, as above
                assert_clean(root)
            Store(root).blobs.drop(describe(CONTENT).digest)


def test_store_killed_build_is_taken_over_by_a_waiter(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    first = start(root, log, "build", 60.0)
    while not read_log(log):
        time.sleep(0.02)
    waiters = [start(root, log, "build", 0.0) for _ in range(4)]
    time.sleep(0.5)
    assert all(waiter.poll() is None for waiter in waiters)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    for waiter in waiters:
        finish(waiter)
    assert len(read_log(log)) == 2
    assert_clean(root)


def test_store_killed_waiter_disturbs_nobody(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    worker = start(root, log, "ingest", 0.05)
    waiter = start(root, log, "ingest", 0.05)
    time.sleep(0.6)
    waiter.send_signal(signal.SIGKILL)
    waiter.communicate()
    finish(worker)
    finish(start(root, log, "ingest", 0.0))
    assert Store(root).entries()


@pytest.mark.root
def test_store_works_under_a_process_limit(tmp_path: Path) -> None:
    """An ordinary user whose limit leaves no room for a single thread."""
    require_root()
    user = ("setpriv", "--reuid", "61501", "--regid", "61501", "--clear-groups", "prlimit", "--nproc=1")
    require_program("setpriv")
    require_program("prlimit")
    place = tmp_path / "place"
    place.mkdir()
    os.chown(place, 61501, 61501)
    open_way(place)
    finish(start(place / "store", place / "log", "ingest", 0.0, user))
    finish(start(place / "store", place / "log", "build", 0.0, user))
    store = Store(place / "store")
    assert store.blob_path(describe(CONTENT).digest).stat().st_uid == 61501
    assert store.find_image(IMAGE_KEY) is not None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_memory(tmp_path / "disk", 4 << 20) as place:
        yield place


@pytest.mark.root
@pytest.mark.parametrize("keep", [True, False])
def test_store_full_disk_is_named_and_the_download_resumed(small_disk: Path, keep: bool) -> None:
    source = BlobSource(CONTENT)
    with Store(small_disk / "store") as store:
        ingest = store.ingest(describe(CONTENT), source.open_at, IngestOptions(keep_partial=keep))
        with pytest.raises(NoSpace, match="the file system is full") as caught:
            b"".join(ingest.follow())
        assert "kedge cache clean" in (caught.value.hint or "")
        partial = store.layout.partial(describe(CONTENT).digest)
        assert partial.exists() is keep
        kept = partial.stat().st_size if keep else 0
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    later = BlobSource(CONTENT)
    with Store(small_disk / "store") as store, store.ingest(describe(CONTENT), later.open_at) as ingest:
        assert b"".join(ingest.follow()) == CONTENT
    assert later.offsets == [kept]


@pytest.mark.root
def test_store_full_disk_during_a_build_leaves_nothing(small_disk: Path) -> None:
    with Store(small_disk / "store") as store:
        with pytest.raises(NoSpace):
            store.build_image("key", lambda file: file.write(CONTENT) and None)
        assert store.find_image("key") is None
    assert_clean(small_disk / "store")


@pytest.mark.root
def test_store_delivers_a_copy_to_another_file_system(small_disk: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        store.build_image("key", lambda file: file.write(b"image") and None)
        assert store.deliver("key", Handing(small_disk / "out.sif")) == "copy"
    assert (small_disk / "out.sif").read_bytes() == b"image"
    assert [path.name for path in small_disk.iterdir()] == ["out.sif"]
