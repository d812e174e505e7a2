# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pull` where there is no room, or no permission: refused early and in words, and nothing half-written stays.

Small file systems are tmpfs mounts, so most of it needs root.
"""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import FileProblem, NoSpace
from tests.builders import layers as build
from tests.builders.containers import Runner, each_role, give_to
from tests.builders.images import add_rich_image, hash_file, make_config, noise, rich_layers
from tests.builders.small_disks import small_memory
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program, require_root
from tests.wording import assert_says

MEBIBYTE = 1 << 20


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        add_rich_image(running)
        yield running


@functools.cache
def make_large_layer(size: int) -> tuple[list[bytes], bytes]:
    tar = build.layer(build.file("data", noise(size, "large")))
    return [build.compress(tar)], make_config([tar])


def add_large_image(registry: FakeRegistry, size: int) -> str:
    """One layer that no codec makes smaller."""
    registry.add_image("team/large", "1", *make_large_layer(size))
    return f"docker://{registry.host}/team/large:1"


@functools.cache
def make_swelling_layer(size: int) -> tuple[list[bytes], bytes]:
    piece = noise(100_000, "piece")
    data = b"".join(bytes([n % 256, n // 256 % 256]) + piece[n % 97 :] for n in range(size // 100_000))
    tar = build.layer(build.file("data", data))
    blob = subprocess.run(
        [require_program("zstd"), "-q", "-3", "--long=24", "-c"], input=tar, capture_output=True, check=True
    ).stdout
    assert len(blob) < size // 20
    return [blob], make_config([tar])


def add_swelling_image(registry: FakeRegistry, size: int) -> str:
    """A layer that packs a thousand times tighter in the registry than block by block in the image."""
    registry.add_image("team/swells", "1", *make_swelling_layer(size))
    return f"docker://{registry.host}/team/swells:1"


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


FULL_CACHE = (
    r"warning: the cache is not used: .* needs about [0-9.]+ MB in .*disk/cache, which has only [0-9.]+ MB free"
)


@pytest.mark.root
def test_pull_goes_around_a_store_that_is_too_small(registry: FakeRegistry, tmp_path: Path) -> None:
    reference = add_large_image(registry, 12 * MEBIBYTE)
    (tmp_path / "tmp").mkdir()
    with small_memory(tmp_path / "disk", 16 * MEBIBYTE) as disk:
        words = ("pull", "--json", "--tmpdir", tmp_path / "tmp", tmp_path / "x.sif", reference)
        done = kedge(*words, cache=disk / "cache")
        assert sum((disk / "cache" / name).stat().st_size for name in files_below(disk / "cache")) < MEBIBYTE
    assert re.search(FULL_CACHE, done.stderr)
    assert_says(done.stderr, "pull/use-free-some-space-cache")
    assert "KEDGE_CACHEDIR=" in done.stderr
    assert done.stderr.count("warning: ") == 1
    assert len(registry.server.seen("GET .*/blobs/")) == 2, "the config and the layer, once"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert json.loads(done.stdout)["output"] == str(tmp_path / "x.sif")
    kedge("pull", tmp_path / "y.sif", reference, cache=tmp_path / "cache")
    assert hash_file(tmp_path / "x.sif") == hash_file(tmp_path / "y.sif")


@pytest.mark.root
def test_pull_is_refused_before_the_download_where_the_store_and_the_way_around_it_are_too_small(registry, tmp_path):
    reference = add_large_image(registry, 12 * MEBIBYTE)
    with small_memory(tmp_path / "disk", 10 * MEBIBYTE) as disk:
        here = {"cache": disk / "cache", "check": False}
        around = kedge("pull", "--json", "--tmpdir", disk, tmp_path / "x.sif", reference, **here)
        there = kedge("pull", disk / "x.sif", reference, **here)
        assert [name for name in files_below(disk) if not name.startswith("cache/")] == []
    assert not registry.server.seen("GET .*/blobs/")
    assert not (tmp_path / "x.sif").exists()
    for done in (around, there):
        assert done.returncode == NoSpace.exit_code, done.stderr
        assert re.search(FULL_CACHE, done.stderr)
    (warned,) = [line for line in around.stderr.splitlines() if line.startswith("warning: ")]
    needed = re.search(r"needs about ([0-9.]+) MB", warned)
    assert needed is not None
    assert float(needed[1]) > 20, "the layer and the image would both be in the store"
    assert "KEDGE_CACHEDIR=" in warned
    answer = json.loads(around.stdout)
    assert 12 * MEBIBYTE < int(answer["context"]["needed"]) < 14 * MEBIBYTE, "the layer alone"
    assert int(answer["context"]["usable"]) <= 10 * MEBIBYTE
    assert "--tmpdir " in answer["hint"]
    lacks = r"kedge: the pull .* needs about [0-9.]+ MB in .*disk, which has only 10[0-9.]* MB free"
    assert re.search(lacks, there.stderr)
    assert "--dir " in there.stderr


@pytest.mark.root
def test_pull_of_a_sif_goes_around_a_small_store_unless_the_target_is_small_too(registry, tmp_path):
    kedge("pull", tmp_path / "large.sif", add_large_image(registry, 12 * MEBIBYTE), cache=tmp_path / "cache")
    kedge("push", tmp_path / "large.sif", f"oras://{registry.host}/team/sif:1", cache=tmp_path / "cache")
    registry.server.log.clear()
    (tmp_path / "tmp").mkdir()
    words = ("pull", "--tmpdir", tmp_path / "tmp")
    with small_memory(tmp_path / "disk", 8 * MEBIBYTE) as disk:
        reference = f"oras://{registry.host}/team/sif:1"
        refused = kedge(*words, disk / "x.sif", reference, cache=disk / "cache", check=False)
        assert not registry.server.seen("GET .*/blobs/")
        assert refused.returncode == NoSpace.exit_code, refused.stderr
        assert "--dir " in refused.stderr
        done = kedge(*words, tmp_path / "x.sif", reference, cache=disk / "cache")
        assert [name for name in files_below(disk) if not name.startswith("cache/")] == []
    assert re.search(FULL_CACHE, done.stderr)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert hash_file(tmp_path / "x.sif") == hash_file(tmp_path / "large.sif")


@pytest.mark.root
def test_pull_is_refused_before_the_download_where_the_target_is_too_small(registry, tmp_path):
    reference = add_large_image(registry, 12 * MEBIBYTE)
    with small_memory(tmp_path / "disk", 8 * MEBIBYTE) as disk:
        for form in ("sif", "squashfs", "sandbox", "oci-archive"):
            done = kedge("pull", "--format", form, disk / "x", reference, cache=tmp_path / "cache", check=False)
            assert done.returncode == NoSpace.exit_code, done.stderr
            assert re.search(r"needs about [0-9.]+ MB in .*disk, which has only 8[0-9.]* MB free", done.stderr)
        assert not registry.server.seen("GET .*/blobs/")
        assert list(disk.iterdir()) == []


@pytest.mark.root
def test_pull_that_just_fits_is_not_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    reference = add_large_image(registry, 12 * MEBIBYTE)
    with small_memory(tmp_path / "disk", 30 * MEBIBYTE) as disk:
        kedge("pull", disk / "x.sif", reference, cache=disk / "cache")
        assert list((disk / "cache/images").glob("*")) == [], "it is there once, not twice"


@pytest.mark.root
def test_pull_without_a_store_needs_room_for_the_layers_only(registry: FakeRegistry, tmp_path: Path) -> None:
    """A small /tmp and a large target: the SIF is written straight there."""
    reference = add_large_image(registry, 12 * MEBIBYTE)
    with small_memory(tmp_path / "disk", 16 * MEBIBYTE) as disk:
        words = ("pull", "--disable-cache", "--tmpdir", disk, tmp_path / "x.sif", reference)
        kedge(*words, cache=tmp_path / "cache")
        assert list(disk.iterdir()) == []
    with small_memory(tmp_path / "disk", 8 * MEBIBYTE) as disk:
        done = kedge(*words, "--force", cache=tmp_path / "cache", check=False)
    assert done.returncode == NoSpace.exit_code
    assert "--tmpdir" in done.stderr


@pytest.mark.root
def test_pull_whose_disk_fills_in_the_middle_leaves_nothing_half_written(registry, tmp_path):
    """The image turns out larger than anybody could know beforehand."""
    reference = add_swelling_image(registry, 40 * MEBIBYTE)
    with small_memory(tmp_path / "disk", 20 * MEBIBYTE) as disk:
        done = kedge("pull", "--compress", "none", disk / "x.sif", reference, cache=disk / "cache", check=False)
        assert done.returncode == NoSpace.exit_code, done.stderr
        assert_says(done.stderr, "base/file-system-full")
        assert "Traceback" not in done.stderr
        assert not (disk / "x.sif").exists()
        kept = files_below(disk / "cache")
        assert [name for name in kept if name.startswith(("tmp/", "images/", "attempts/", "leases/"))] == []
        assert sum((disk / "cache" / name).stat().st_size for name in kept) < 4 * MEBIBYTE
        kedge("pull", disk / "y.sif", f"docker://{registry.host}/team/rich:1", cache=disk / "cache")
    with small_memory(tmp_path / "disk", 120 * MEBIBYTE) as disk:
        kedge("pull", "--compress", "none", disk / "x.sif", reference, cache=disk / "cache")


@pytest.mark.root
@pytest.mark.parametrize("form", ["sif", "squashfs", "sandbox"])
def test_pull_whose_target_fills_in_the_middle_leaves_nothing_there(registry, tmp_path, form):
    reference = add_swelling_image(registry, 40 * MEBIBYTE)
    words = ("pull", "--compress", "none", "--format", form)
    with small_memory(tmp_path / "disk", 20 * MEBIBYTE) as disk:
        done = kedge(*words, disk / "x", reference, cache=tmp_path / "cache", check=False)
        assert done.returncode == NoSpace.exit_code, done.stderr
        assert "Traceback" not in done.stderr
        assert list(disk.iterdir()) == []
        with (disk / "mine").open("wb") as file:
            file.write(bytes(19 * MEBIBYTE))
    kedge(*words, tmp_path / "x", reference, cache=tmp_path / "cache")


@pytest.mark.root
def test_pull_whose_store_fills_while_downloading_resumes_elsewhere(registry: FakeRegistry, tmp_path: Path) -> None:
    """Somebody else takes the room after it was looked at: what has arrived is of use to the next pull."""
    reference = add_large_image(registry, 12 * MEBIBYTE)
    with small_memory(tmp_path / "disk", 40 * MEBIBYTE) as disk:
        environment = {**os.environ, "KEDGE_CACHEDIR": str(disk / "cache")}
        registry.server.fail("GET .*/blobs/", times=2, delay=1.0)
        argv = [sys.executable, "-m", "kedge", "pull", str(disk / "x.sif"), reference]
        process = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)
        while not registry.server.seen("GET .*/blobs/"):
            assert process.poll() is None
        taken = disk / "taken"
        taken.write_bytes(bytes(36 * MEBIBYTE))
        _, errors = process.communicate(timeout=60)
        assert process.returncode == NoSpace.exit_code, errors
        assert "Traceback" not in errors
        assert not (disk / "x.sif").exists()
        taken.unlink()
        registry.server.faults.clear()
        kedge("pull", disk / "x.sif", reference, cache=disk / "cache")


@pytest.mark.root
def test_pull_to_a_read_only_file_system_says_so(registry: FakeRegistry, tmp_path: Path) -> None:
    with small_memory(tmp_path / "disk", 20 * MEBIBYTE) as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        reference = f"docker://{registry.host}/team/rich:1"
        for form in ("sif", "sandbox", "oci", "docker-archive"):
            done = kedge("pull", "--format", form, disk / "x", reference, cache=tmp_path / "cache", check=False)
            check_refusal(done, str(disk), "read-only")
        done = kedge("pull", tmp_path / "x.sif", reference, cache=disk / "cache", check=False)
        check_way_around(done, tmp_path / "x.sif", reference, str(disk / "cache"), "Read-only file system")
        assert list(disk.iterdir()) == []


def check_refusal(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One error of the file kind that says these words, and no more lines than an error has."""
    assert done.returncode == FileProblem.exit_code, done.stderr
    assert done.stderr.count("kedge: ") == 1
    for word in (*words, "hint: "):
        assert word.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def check_way_around(done: subprocess.CompletedProcess[str], image: Path, reference: str, *words: str) -> None:
    """The image is as with a cache, and one warning says why none was used, and how another is chosen."""
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: ") == 1
    (warned,) = [line for line in done.stderr.splitlines() if line.startswith("warning: the cache is not used: ")]
    for word in (*words, "Choose another directory with KEDGE_CACHEDIR"):
        assert word in warned
    with tempfile.TemporaryDirectory() as folder:
        kedge("pull", f"{folder}/same.sif", reference, cache=Path(folder) / "cache")
        assert hash_file(image) == hash_file(Path(folder) / "same.sif")
    image.unlink()


def test_pull_into_a_missing_folder_says_so_before_the_download(registry: FakeRegistry, tmp_path: Path) -> None:
    target, reference = tmp_path / "missing/folder/x", f"docker://{registry.host}/team/rich:1"
    for form in ("sif", "squashfs", "sandbox", "oci", "oci-archive", "docker-archive"):
        done = kedge("pull", "--format", form, target, reference, cache=tmp_path / "cache", check=False)
        check_refusal(done, str(tmp_path / "missing"))
    assert not registry.server.seen("GET .*/blobs/")
    assert not (tmp_path / "missing").exists()


def test_pull_into_a_path_through_a_file_says_so(registry: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    reference = f"docker://{registry.host}/team/rich:1"
    check_refusal(kedge("pull", tmp_path / "file/x.sif", reference, cache=tmp_path / "c", check=False), "file")
    done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "file", check=False)
    check_way_around(done, tmp_path / "x.sif", reference, str(tmp_path / "file"), "Not a directory")
    done = kedge("pull", "--offline", tmp_path / "x.sif", reference, cache=tmp_path / "file", check=False)
    check_refusal(done, "file", "KEDGE_CACHEDIR")
    assert (tmp_path / "file").read_text() == "x"


@pytest.fixture
def user() -> Iterator[Runner]:
    """An ordinary user beside root, with a place for temporary files in which nothing may stay."""
    require_root()
    for each in each_role("user", is_warm=True):
        (each.home / "tmp").mkdir()
        give_to(each, each.home)
        yield each
        assert list((each.home / "tmp").iterdir()) == [], "temporary files of a way around the cache"


def pull_as_user(user: Runner, cache: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"KEDGE_CACHEDIR": str(cache), "KEDGE_TMPDIR": str(user.home / "tmp")}
    return user.run("pull", *map(str, words), env=env)


@pytest.mark.root
def test_pull_with_the_store_of_another_user_says_so(registry: FakeRegistry, user: Runner) -> None:
    home = user.home
    reference = f"docker://{registry.host}/team/rich:1"
    theirs = home / "theirs"
    kedge("pull", "--format", "oci", home / "roots", reference, cache=theirs)
    before = files_below(theirs)
    for mode in (0o700, 0o777):
        theirs.chmod(mode)
        done = pull_as_user(user, theirs, "x.sif", reference)
        check_way_around(done, home / "x.sif", reference, str(theirs), "another user")
        assert files_below(theirs) == before
        check_refusal(pull_as_user(user, theirs, "--offline", "x.sif", reference), "another user", "KEDGE_CACHEDIR")


@pytest.mark.root
def test_pull_without_permission_says_so(registry: FakeRegistry, user: Runner) -> None:
    home = user.home
    forbidden = home / "forbidden"
    forbidden.mkdir(mode=0o755)  # root's
    reference = f"docker://{registry.host}/team/rich:1"
    for form in ("sif", "sandbox", "oci-archive"):  # a file, a tree, and what is packed from parts
        done = pull_as_user(user, home / "cache", "--format", form, forbidden / "x", reference)
        check_refusal(done, str(forbidden), "permission")
        assert not registry.server.seen("GET .*/blobs/")
    for mode in (0o755, 0o700):
        forbidden.chmod(mode)
        check_refusal(pull_as_user(user, home / "cache", forbidden / "x.sif", reference), str(forbidden))
        done = pull_as_user(user, forbidden / "cache", "x.sif", reference)
        check_way_around(done, home / "x.sif", reference, str(forbidden / "cache"), "Permission denied")
        assert list(forbidden.iterdir()) == []
    assert pull_as_user(user, home / "cache", "x.sif", reference).returncode == 0
    assert stat.S_IMODE((home / "x.sif").stat().st_mode) == 0o755


@pytest.mark.root
def test_pull_from_a_store_that_only_reads_is_served(registry: FakeRegistry, user: Runner) -> None:
    """A site's store that users cannot write to: what is there is used, what is not is fetched around it."""
    home = user.home
    reference = f"docker://{registry.host}/team/rich:1"
    cache = home / "site"
    kedge("pull", home / "root.sif", reference, cache=cache)
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    done = pull_as_user(user, cache, "x.sif", reference)
    assert done.returncode == 0, done.stderr
    assert "warning: " not in done.stderr
    assert hash_file(home / "x.sif") == hash_file(home / "root.sif")
    before = files_below(cache)
    tars = rich_layers()[:1]
    registry.add_image("team/other", "1", [build.compress(tar) for tar in tars], make_config(tars))
    other = f"docker://{registry.host}/team/other:1"
    check_way_around(pull_as_user(user, cache, "y.sif", other), home / "y.sif", other, str(cache), "Permission denied")
    assert files_below(cache) == before
