# SPDX-License-Identifier: BSD-3-Clause
"""Places that are written to: the gravest thing about each is what is said, with a command that helps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.answers.doctor.storage import (
    StoragePlace,
    check_home,
    check_node_place,
    check_old_caches,
    check_shared_memory,
    check_store,
    check_temporary,
    judge_home,
    judge_node_place,
    judge_shared_memory,
    judge_store,
    judge_temporary,
    look_at,
)
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Surroundings
from kedge.base.frozen import replace
from kedge.system.host.space import Space
from kedge.system.settings import Settings
from tests.builders.findings import require_whole
from tests.builders.ordinary_user import as_ordinary_user
from tests.builders.rows import each_row
from tests.requirements import require_root
from tests.wording import assert_reads, assert_says

GIGA = 10**9
ROOM = Space(Path("/home/ada"), 500 * GIGA, 900 * GIGA)
STORE = StoragePlace(Path("/home/ada/.cache/kedge"), "default", "nfs4", ROOM, 10**6, True, True)
SCRATCH = Space(Path("/scratch/ada"), 4000 * GIGA, 9000 * GIGA)


def make_surroundings(environ: dict[str, str]) -> Surroundings:
    return Surroundings(environ, Settings.load({}, environ))


def with_quota(left: int, limit: int) -> Space:
    return Space(ROOM.path, ROOM.free, ROOM.total, left, limit)


def test_store_levels(tmp_path: Path) -> None:
    finding = judge_store(STORE, None)
    assert finding.level == OK
    assert finding.what == "/home/ada/.cache/kedge (nfs4, default): 500 GB free"
    finding = require_whole(judge_store(replace(STORE, is_writable=False), SCRATCH), FAIL)
    assert finding.fix == "kedge config set cache_directory /scratch/ada/kedge"
    finding = require_whole(judge_store(replace(STORE, space=with_quota(1000, 50 * GIGA)), SCRATCH), FAIL)
    assert_says(finding.what, "doctor/kb-left-your-quota", "50 GB")
    assert "kedge cache clean --days 30" in finding.fix
    finding = require_whole(judge_store(replace(STORE, space=with_quota(5 * GIGA, 50 * GIGA)), None), WARNING)
    assert_says(finding.what, "doctor/left-your-quota", "5 GB", "50 GB")
    assert "kedge config set cache_directory DIRECTORY" in finding.fix
    finding = require_whole(judge_store(replace(STORE, files_left=12), None), WARNING)
    assert_says(finding.what, "doctor/space-only-more-files")
    assert "No space left on device" in finding.why
    place = replace(STORE, space=with_quota(100 * GIGA, 200 * GIGA))
    finding = require_whole(judge_store(place, SCRATCH), NOTE)
    assert finding.fix == "kedge config set cache_directory /scratch/ada/kedge"
    assert judge_store(place, None).level == OK
    assert judge_store(replace(STORE, files_left=None), None).level == OK
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "not/yet/there")}
    (finding,) = check_store(make_surroundings(environ))
    assert str(tmp_path / "not/yet/there") in finding.what
    assert "KEDGE_CACHEDIR" in finding.what
    assert not (tmp_path / "not").exists()


@each_row(("origin", "fix"), [
    ("environment: KEDGE_CACHEDIR", "export KEDGE_CACHEDIR=/scratch/ada/kedge"),
    ("flag: --cache-dir", "--cache-dir /scratch/ada/kedge"),
    ("user: /home/ada/.config/kedge/config.toml", "kedge config set cache_directory /scratch/ada/kedge"),
])  # fmt: skip
def test_store_is_moved_by_what_put_it_there(origin: str, fix: str) -> None:
    assert judge_store(replace(STORE, origin=origin, is_writable=False), SCRATCH).fix == fix


@as_ordinary_user
def test_place_of_another_user_cannot_be_written(tmp_path: Path) -> None:
    place = look_at(Path("/usr/kedge"), "x", make_surroundings({"HOME": str(tmp_path)}))
    assert not place.is_writable


def test_home_levels(tmp_path: Path) -> None:
    home = StoragePlace(Path("/home/ada"), "HOME", "nfs4", ROOM, None, True, True)
    assert judge_home(home, True).level == OK
    assert "/home/ada does not exist" in require_whole(judge_home(home, False), WARNING).what
    assert "is not writable" in require_whole(judge_home(replace(home, is_writable=False), True), WARNING).what
    full = require_whole(judge_home(replace(home, space=with_quota(GIGA, 50 * GIGA)), True), WARNING)
    assert_says(full.what, "doctor/left-your-quota", "1 GB", "50 GB")
    assert "du -xh" in full.fix
    (finding,) = check_home(make_surroundings({"HOME": str(tmp_path / "gone")}))
    assert finding.level == WARNING
    nowhere = StoragePlace(Path("/"), "HOME", "ext4", ROOM, None, False, True)
    assert_reads(require_whole(judge_home(nowhere, True), WARNING).what, "doctor/home-not-set")


def test_old_caches_are_found_where_they_hold_something(tmp_path: Path) -> None:
    surroundings = make_surroundings({"HOME": str(tmp_path)})
    (tmp_path / ".singularity/cache").mkdir(parents=True)
    assert check_old_caches(surroundings)[0].level == OK
    (tmp_path / ".singularity/cache/blob").mkdir()
    finding = require_whole(check_old_caches(surroundings)[0], NOTE)
    assert f"rm -r {tmp_path}/.singularity/cache" in finding.fix


TEMPORARY = StoragePlace(Path("/tmp"), "default", "ext4", ROOM, None, True, False)


def test_temporary_folder_levels(tmp_path: Path) -> None:
    usual = {"is_there": True, "kept_on": "disk", "is_noexec": False}
    assert judge_temporary(TEMPORARY, **usual).level == OK  # type: ignore[arg-type]
    noexec = judge_temporary(TEMPORARY, is_there=True, kept_on="disk", is_noexec=True)
    assert "TRITON_CACHE_DIR" in require_whole(noexec, NOTE).fix
    memory = judge_temporary(TEMPORARY, is_there=True, kept_on="memory", is_noexec=False)
    assert_says(require_whole(memory, NOTE).why, "doctor/count-against-memory-limit")
    little = replace(TEMPORARY, space=Space(Path("/tmp"), 10**8, GIGA))
    assert "100 MB free" in require_whole(judge_temporary(little, **usual), WARNING).what  # type: ignore[arg-type]
    (finding,) = check_temporary(make_surroundings({"HOME": str(tmp_path), "TMPDIR": str(tmp_path / "job.123")}))
    require_whole(finding, FAIL)
    assert_says(finding.what, "doctor/job-default-tmpdir-does-not", tmp_path)
    assert "export TMPDIR=" in finding.fix
    name = "x" * 300  # longer than a name may be: asking for it is an error of its own, as with directories of others
    (finding,) = check_temporary(make_surroundings({"HOME": str(tmp_path), "TMPDIR": str(tmp_path / name)}))
    assert "does not exist" in require_whole(finding, FAIL).what


def test_temporary_folder_mounted_noexec_is_seen(tmp_path: Path) -> None:
    """On the real thing: /dev/shm, however it is mounted here."""
    status = os.statvfs("/dev/shm")
    (finding,) = check_temporary(make_surroundings({"HOME": str(tmp_path), "TMPDIR": "/dev/shm"}))
    if status.f_bavail * status.f_frsize < 2 * GIGA:  # as Docker mounts it: that there is little room is graver
        assert finding.level == WARNING
    else:
        assert ("noexec" in finding.what) == bool(status.f_flag & os.ST_NOEXEC)


def test_node_place_levels_and_settings(tmp_path: Path) -> None:
    place = StoragePlace(Path("/var/tmp/kedge-1000"), "", "ext4", ROOM, None, True, False)
    assert judge_node_place(place, "disk").level == OK
    assert "memory of the job" in require_whole(judge_node_place(place, "memory"), NOTE).why
    assert "KEDGE_NODEDIR=" in require_whole(judge_node_place(place, "network"), WARNING).fix
    little = replace(place, space=Space(Path("/var/tmp"), GIGA, 2 * GIGA))
    assert "kedge cache clean --node" in require_whole(judge_node_place(little, "disk"), NOTE).fix
    require_whole(judge_node_place(replace(place, is_writable=False), "disk"), FAIL)
    environ = {"HOME": str(tmp_path), "KEDGE_NODEDIR": str(tmp_path / "node")}
    (finding,) = check_node_place(make_surroundings(environ))
    assert str(tmp_path / "node") in finding.what
    assert not (tmp_path / "node").exists()


def test_shared_memory_levels_and_place(tmp_path: Path) -> None:
    assert judge_shared_memory(64 * GIGA, 60 * GIGA, is_writable=True).level == OK
    assert "--shm-size" in require_whole(judge_shared_memory(64 << 20, 64 << 20, is_writable=True), WARNING).fix
    assert "ls -l /dev/shm" in require_whole(judge_shared_memory(64 * GIGA, 0, is_writable=True), WARNING).fix
    assert "does not exist" in require_whole(judge_shared_memory(None, 0, is_writable=False), FAIL).what
    assert "is not writable" in require_whole(judge_shared_memory(GIGA, GIGA, is_writable=False), FAIL).what
    surroundings = Surroundings({}, Settings.load({}, {"HOME": str(tmp_path)}), root=str(tmp_path))
    assert check_shared_memory(surroundings)[0].what == "/dev/shm does not exist"


def test_store_on_a_read_only_file_system_is_a_problem(tmp_path: Path) -> None:
    require_root()
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    target = str(tmp_path).encode()
    if libc.mount(b"none", target, b"tmpfs", 1, b"size=1m"):
        pytest.skip("mounting is refused here")
    try:
        (finding,) = check_store(make_surroundings({"HOME": "/root", "KEDGE_CACHEDIR": str(tmp_path / "kedge")}))
    finally:
        libc.umount2(target, 2)
    assert finding.level == FAIL
    assert "is not writable" in finding.what
