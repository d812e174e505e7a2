# SPDX-License-Identifier: BSD-3-Clause
"""Unpacked copies of a bundle on a node: which are believed, and which are removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from kedge.tools.bundle.read_bundle import describe_bundle
from tests.builders.bundles import BareHost, make_bundle, make_busybox_host
from tests.builders.containers import USER
from tests.builders.rows import each_row

pytestmark = [pytest.mark.root, pytest.mark.slow]

DAY = 24 * 60 * 60
OLD, RECENT, USED = ("a" * 32, "b" * 32, "c" * 32)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> BareHost:
    place = tmp_path_factory.mktemp("host")
    for folder in (place, place.parent):
        folder.chmod(0o755)
    return make_busybox_host(place / "root")


@pytest.fixture
def host(root: BareHost) -> BareHost:
    """One on which the bundle has been started, and no other."""
    place = root.root / f"var/tmp/kedge-{USER}/bundle"
    for path in place.glob("*"):
        if path.is_dir() and path != find_copy(root):
            shutil.rmtree(path)
    assert root.run("--version").returncode == 0
    return root


def find_copy(host: BareHost) -> Path:
    """The one of this bundle, among others."""
    return host.root / f"var/tmp/kedge-{USER}/bundle" / describe_bundle(make_bundle()).digest


def set_age(path: Path, days: float) -> None:
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))


def age_copy(copy: Path, days: float) -> None:
    """As if it had been unpacked then, and not used since."""
    for path in copy.rglob("*"):
        set_age(path, days + 1)
    set_age(copy / "complete", days)


def add_copy(host: BareHost, name: str, days: float) -> Path:
    """What another version left."""
    place = find_copy(host).parent / name
    shutil.copytree(find_copy(host), place)
    for path in (place, *place.rglob("*")):
        os.chown(path, USER, USER)
    age_copy(place, days)
    return place


def unpack_again(host: BareHost) -> None:
    """What the first start of a new version does."""
    (find_copy(host) / "complete").unlink()
    done = host.run("--version")
    assert (done.returncode, done.stderr) == (0, "")


@each_row("name", ["bin/interpreter", "start.pyc"])
def test_copy_with_changed_bytes_is_unpacked_again(host: BareHost, name: str) -> None:
    """The size stays the same, as after a slip of the hand or a program that writes to the wrong place."""
    path = find_copy(host) / name
    content = path.read_bytes()
    with path.open("rb+") as file:
        file.seek(len(content) // 2)
        file.write(bytes(64))
    done = host.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes() == content


def test_copy_notes_the_day_of_its_last_use(host: BareHost) -> None:
    mark = find_copy(host) / "complete"
    age_copy(find_copy(host), days=2)
    identity = mark.stat().st_ino
    assert host.run("--version").returncode == 0
    assert time.time() - mark.stat().st_mtime < DAY
    assert mark.stat().st_ino == identity, "it is the same copy"
    before = mark.stat().st_mtime_ns
    assert host.run("--version").returncode == 0
    assert mark.stat().st_mtime_ns == before, "once a day is enough"


def test_copies_that_nobody_used_for_a_month_are_removed(host: BareHost) -> None:
    old, recent = add_copy(host, OLD, days=31), add_copy(host, RECENT, days=29)
    stopped = find_copy(host).parent / f"new-{OLD}"
    stopped.mkdir()
    (stopped / "half").write_text("")
    os.chown(stopped, USER, USER)
    set_age(stopped, days=31)
    foreign = find_copy(host).parent / "notes"
    foreign.write_text("the user's own")
    set_age(foreign, days=400)
    assert host.run("--version").returncode == 0
    assert old.exists(), "only who unpacks looks"
    unpack_again(host)
    names = {path.name for path in find_copy(host).parent.iterdir()}
    foreign.unlink()
    assert names == {find_copy(host).name, recent.name, foreign.name, "lock"}


def test_copy_that_a_process_runs_from_is_kept(host: BareHost) -> None:
    used = add_copy(host, USED, days=3)
    program = "/" + str((used / "bin/python3").relative_to(host.root))
    code = "import time; print('begun', flush=True); time.sleep(100)"
    running = subprocess.Popen(
        host.argv("-c", code, program=program), env=host.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        set_age(used / "complete", days=60)
        unpack_again(host)
        assert (used / "so/libc.so.6").exists()
    finally:
        running.kill()
        running.communicate()
    unpack_again(host)
    assert not used.exists()


def test_copy_below_a_directory_of_others_is_not_believed(host: BareHost) -> None:
    """Not only the directory right above counts: who owns one of them can put another tree in its place."""
    above, env = host.root / "data", {"KEDGE_NODEDIR": "/data/team/user"}
    own = above / "team/user"
    own.mkdir(parents=True)
    own.chmod(0o700)
    subprocess.run(["mv", find_copy(host).parent, own / "bundle"], check=True)
    os.chown(own, USER, USER)
    refused = {
        (0, 0o777): "anybody could replace it: a directory above it is world-writable and not sticky",
        (1508, 0o755): "another user could replace it: a directory above it is theirs",
        (USER, 0o2775): "its group could replace it: a directory above it is group-writable and not sticky",
    }
    places = [host.root / name for name in ("var/tmp", "tmp")]
    for place in places:
        shutil.rmtree(place / f"kedge-{USER}", ignore_errors=True)
        place.chmod(0o555)
    for (owner, mode), reason in refused.items():
        os.chown(above, owner, 1508)
        above.chmod(mode)
        done = host.run("--version", env=env, shm=1 << 20)
        assert done.returncode == 30, reason
        assert f"/data/team/user: {reason}\n" in done.stderr
    for place in places:
        place.chmod(0o1777)
    assert host.run("--version", env=env).returncode == 0
    assert find_copy(host).exists(), "it unpacked to the next place"
