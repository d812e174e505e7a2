# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong with a bundle and its unpacked copy: one clear error, and it mends itself where it can."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from kedge.tools.bundle.layout import INDEX, MAGIC
from tests.builders.bundles import BareHost, make_bundle, make_busybox_host
from tests.builders.containers import USER
from tests.builders.rows import each_row
from tests.builders.small_disks import small_memory
from tests.wording import assert_reads, assert_says

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def host(tmp_path: Path) -> BareHost:
    return make_host(tmp_path)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> BareHost:
    """One on which the bundle has been started, for tests after which it mends itself."""
    made = make_host(tmp_path_factory.mktemp("used"))
    assert made.run("--version").returncode == 0
    return made


def make_host(place: Path) -> BareHost:
    for folder in (place, place.parent, place.parent.parent):
        folder.chmod(0o755)
    return make_busybox_host(place / "root")


def make_folder(path: Path, *, owner: int = USER, mode: int = 0o700) -> Path:
    path.mkdir(parents=True)
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def test_faults_truncated_bundle_says_copy_it_again(host: BareHost) -> None:
    size = host.command.stat().st_size
    with host.command.open("rb+") as file:
        file.truncate(size - 1000)
    done = host.run("--version")
    assert done.returncode == 30
    assert_reads(done.stderr, "bundle/usr-local-bin-truncated-bytes", size - 1000, size)
    assert host.run("exec", "image", "true").returncode == 255, "as every failure of kedge itself to start a container"


def test_faults_changed_bundle_says_copy_it_again(host: BareHost) -> None:
    with host.command.open("rb+") as file:
        file.seek(1 << 20)
        file.write(b"changed")
    done = host.run("--version")
    assert (done.returncode, done.stderr.count("\n")) == (30, 2)
    assert_says(done.stderr, "bundle/does-not-match-checksum")
    assert not list(host.root.glob("var/tmp/kedge-*/bundle/*/complete"))


@each_row("name", ["so/libc.so.6", "complete", "so/ld.so"])
def test_faults_missing_file_is_unpacked_again(used: BareHost, name: str) -> None:
    (used.copy() / name).unlink()
    done = used.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert (used.copy() / name).exists()
    assert sorted(path.name for path in used.copy().parent.iterdir()) == sorted([used.copy().name, "lock"])


def test_faults_module_damaged_before_the_verb_mends_itself(used: BareHost) -> None:
    next(used.copy().glob("lib*/python3*/kedge/__init__.pyc")).write_bytes(b"")
    done = used.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert next(used.copy().glob("lib*/python3*/kedge/__init__.pyc")).stat().st_size


@each_row("change", ["missing", "damaged"])
def test_faults_module_of_a_verb_is_no_bug(used: BareHost, change: str) -> None:
    module = next(used.copy().glob("lib*/python3*/kedge/cli/doctor.pyc"))
    content = module.read_bytes()
    module.unlink()
    if change == "damaged":
        module.write_bytes(content[:16] + b"\xff" * (len(content) - 16))
    done = used.run("doctor")
    assert done.returncode == 30
    assert "kedge/cli/doctor.pyc" in done.stderr
    assert "run the command again" in done.stderr
    assert "bug" not in done.stderr
    assert used.run("doctor", "--help").returncode == 0


@pytest.mark.parametrize("fault", ["foreign", "symlink", "writable", "made by others"])
def test_faults_directory_of_others_is_passed_over(host: BareHost, fault: str) -> None:
    """Even with a copy of the right name and mark below it: the directory above is what counts."""
    own = host.root / f"var/tmp/kedge-{USER}"
    if fault == "symlink":
        own.symlink_to("/elsewhere")
        own = make_folder(host.root / "elsewhere")
    elif fault == "made by others":
        assert host.run("--version").returncode == 0
        os.chown(own, 1508, 1508)
        own.chmod(0o755)
    else:
        make_folder(own, owner=USER if fault == "writable" else 1508, mode=0o777)
    before = sorted(own.rglob("*"))
    done = host.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(own.rglob("*")) == before
    assert (host.copy("tmp") / "complete").exists()


def test_faults_full_places_are_named(host: BareHost) -> None:
    with small_memory(host.root / "var/tmp", 1 << 20), small_memory(host.root / "tmp", 1 << 20):
        for name in ("var/tmp", "tmp"):
            (host.root / name).chmod(0o1777)
        by_memory = host.run("--version")
        assert (by_memory.returncode, by_memory.stderr) == (0, "")
        done = host.run("--version", shm=1 << 20)
        assert not [path for name in ("var/tmp", "tmp") for path in (host.root / name).glob("kedge-*/bundle/new-*")]
    assert done.returncode == 30
    for place in ("/var/tmp", "/tmp", "/dev/shm"):
        assert_says(done.stderr, "bundle/no-space-left-device", place, USER)
    assert "KEDGE_NODEDIR=DIRECTORY" in done.stderr


@pytest.mark.parametrize(
    "option",
    ["nr_inodes=200", "noexec"],  # room that statfs shows and the file system does not give; no programs run there
)
def test_faults_file_system_that_will_not_do_is_passed_over(host: BareHost, option: str) -> None:
    folder = host.root / "var/tmp"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=1777,{option}", "tmpfs", folder], check=True)
    try:
        done = host.run("--version")
        assert (done.returncode, done.stderr) == (0, "")
        assert not list(folder.glob("kedge-*/bundle/new-*")), "what was begun is removed"
        assert not list(folder.glob("kedge-*/bundle/*/complete"))
    finally:
        subprocess.run(["umount", folder], check=True)
    assert (host.copy("tmp") / "complete").exists()


def test_faults_chosen_directory_comes_first(host: BareHost) -> None:
    make_folder(host.root / "local", mode=0o1777)
    assert host.run("--version", env={"KEDGE_NODEDIR": "/local/mine/kedge/"}).returncode == 0
    assert len(list(host.root.glob("local/mine/kedge/bundle/*/complete"))) == 1
    settings = host.home / ".config/kedge/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('threads = 2\nnode_directory = "/local/$USER/node"\n')
    assert host.run("--version").returncode == 0
    assert len(list(host.root.glob("local/user/node/bundle/*/complete"))) == 1
    assert not list(host.root.glob("var/tmp/kedge-*"))
    os.chown(settings, 1508, 1508)  # settings of others choose nothing
    assert host.run("--version").returncode == 0
    assert list(host.root.glob("var/tmp/kedge-*"))


def test_faults_many_at_once_unpack_it_once(host: BareHost) -> None:
    start = {"args": host.argv("--version"), "env": host.environment(), "text": True}
    children = [subprocess.Popen(**start, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    answers = [child.communicate(timeout=200) for child in children]
    assert {text for text, _ in answers} == {answers[0][0]}
    assert answers[0][0].startswith("kedge version ")
    assert {errors for _, errors in answers} == {""}
    assert sorted(path.name for path in host.copy().parent.iterdir()) == sorted([host.copy().name, "lock"])


def test_faults_killed_while_unpacking_leaves_nothing_in_the_way(host: BareHost) -> None:
    child = subprocess.Popen(host.argv("--version"), env=host.environment(), stdout=-1, stderr=-1)
    while not list(host.root.glob("var/tmp/kedge-*/bundle/new-*")) and child.poll() is None:
        time.sleep(0.01)
    child.kill()
    child.communicate()
    assert host.run("--version").returncode == 0
    assert not list(host.copy().parent.glob("new-*"))


def test_faults_copy_removed_while_in_use_is_said(used: BareHost) -> None:
    program = (
        "import sys, kedge.cli.entry; print('ready', flush=True); input(); sys.exit(kedge.cli.entry.main(['doctor']))"
    )
    child = subprocess.Popen(
        used.argv("python", "-c", program), env=used.environment(), stdin=-1, stdout=-1, stderr=-1, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    shutil.rmtree(used.copy())
    _, errors = child.communicate("\n", timeout=60)
    assert child.returncode != 0
    assert "kedge" in errors
    assert used.run("--version").returncode == 0


def test_faults_the_copy_is_named_after_its_content(used: BareHost) -> None:
    """So a newer bundle has a copy of its own, and two of them run side by side."""
    data = make_bundle().read_bytes()
    _, offset, size, _, digest = INDEX.unpack_from(data, data.index(MAGIC))
    assert (used.copy().name, offset + size) == (digest.hex()[:32], len(data))
