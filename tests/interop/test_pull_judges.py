# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge pull` writes, seen by the kernel, unsquashfs, squashfuse and kedge's own reader, beside GNU tar.

Needs root (mounts, owners, devices), squashfs-tools and squashfuse.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.formats.sif.reader import SifReader
from kedge.image.sources.open_local import open_sif
from tests.builders import layers as build
from tests.builders.image_judges import DECORATION, see_nodes
from tests.builders.images import kedge, make_config, rich_layers
from tests.builders.judged_trees import SPARSE_SIZE, Seen, extract_layers, make_lengths_layer, make_odd_layer, scan_tree
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program, require_root

pytestmark = pytest.mark.root

# The codecs of images that are written by calls are in test_squashfs_tools.py; here it is the way of a pull.
CODECS = ["zstd", *(pytest.param(codec, marks=pytest.mark.long) for codec in ("gzip", "lz4", "none"))]
LISTED = re.compile(  # a line of `unsquashfs -lln`
    rb"(.{10}) (\d+)/(\d+) +(?:(\d+)|(\d+), *(\d+)) (\d{4}-\d\d-\d\d \d\d:\d\d) /?(.*?)(?: -> (.*))?"
)
# The decoration adds to the first three; no layer names the others when it changes them, so tar's clock is in them.
CHANGED = frozenset({b"", b"etc", b"tmp", b"data", b"data/full", b"lengths"})


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory for files of all owners and names, removed whatever is in it."""
    require_root()
    path = Path(tempfile.mkdtemp(prefix="kedge-judges-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def layers(place: Path) -> list[bytes]:
    return [*rich_layers(), make_odd_layer(place), make_lengths_layer()]


@pytest.fixture(scope="module")
def expected(place: Path, layers: list[bytes]) -> Seen:
    """What GNU tar makes of the layers."""
    extract_layers(place / "expected", layers)
    seen = scan_tree(place / "expected")
    assert len(seen) > 3500
    return seen


@pytest.fixture(scope="module")
def registry(layers: list[bytes]) -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        blobs = [build.compress(tar) for tar in layers]
        running.add_image("team/odd", "1", blobs, make_config(layers))
        yield running


@pytest.fixture(scope="module", params=CODECS)
def sif(request: pytest.FixtureRequest, registry: FakeRegistry, place: Path) -> Iterator[Path]:
    path = place / f"{request.param}.sif"
    kedge("pull", "--compress", request.param, path, f"docker://{registry.host}/team/odd:1", cache=place / "cache")
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def mounted(sif: Path, place: Path) -> Iterator[Seen]:
    """What the kernel sees."""
    with mount_partition(sif, place / "kernel") as top:
        yield scan_tree(top)


def find_partition(sif: Path) -> tuple[int, int]:
    with sif.open("rb") as file:
        partition = SifReader(file).root_partition()
    return partition.offset, partition.size


@contextlib.contextmanager
def mount_partition(sif: Path, top: Path) -> Iterator[Path]:
    """Mount with the kernel's own SquashFS, at the partition's offset."""
    offset, size = find_partition(sif)
    top.mkdir()
    options = f"ro,loop,offset={offset},sizelimit={size}"
    done = subprocess.run(["mount", "-t", "squashfs", "-o", options, sif, top], capture_output=True, check=False)
    try:
        assert done.returncode == 0, done.stderr
        yield top
    finally:
        subprocess.run(["umount", top], capture_output=True, check=False)
        top.rmdir()


def compare(found: Seen, wanted: Seen, *, but: frozenset[bytes] = frozenset()) -> None:
    """Name the first differences instead of printing thousands of lines."""
    wrong = [
        f"{name!r}: {one!r} where {other!r} belongs"
        for name in wanted
        if name not in but and found.get(name) != wanted[name]
        for one, other in zip(found.get(name, ("nothing",)), wanted[name], strict=False)
        if one != other
    ]
    assert not wrong, "\n".join(wrong[:8])


def test_kernel_sees_what_gnu_tar_extracts(mounted: Seen, expected: Seen) -> None:
    """Everything that the layers have is there and equal; what is there besides is what a container needs."""
    more = sorted(set(mounted) - set(expected))
    assert [name for name in more if not DECORATION.match(name)] == []
    assert b".singularity.d/runscript" in more
    compare(mounted, expected, but=CHANGED)
    assert mounted[b"data"][:3] == expected[b"data"][:3]
    assert mounted[b""][:3] == expected[b""][:3]


def test_unsquashfs_extracts_what_the_kernel_sees(sif: Path, mounted: Seen, place: Path) -> None:
    target = place / "extracted"
    argv = [require_program("unsquashfs"), "-o", str(find_partition(sif)[0]), "-no-progress", "-d", str(target)]
    done = subprocess.run([*argv, sif], capture_output=True, check=False)
    try:
        assert done.returncode == 0, done.stderr[-2000:]
        assert (target / "odd/sizes/sparse").stat().st_size == SPARSE_SIZE
        assert (target / "odd/sizes/sparse").stat().st_blocks * 512 < 2 << 20, "the holes are stored as holes"
        compare(scan_tree(target), mounted)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def test_unsquashfs_lists_what_the_kernel_sees(sif: Path, mounted: Seen) -> None:
    argv = [require_program("unsquashfs"), "-o", str(find_partition(sif)[0]), "-lln", "-d", "", str(sif)]
    done = subprocess.run(argv, capture_output=True, check=True, env={**os.environ, "TZ": "UTC", "LC_ALL": "C"})
    listed: Seen = {}
    for line in done.stdout.splitlines():
        match = LISTED.fullmatch(line)
        if match:
            mode, uid, gid, size, major, minor, when, name, target = match.groups()
            device = (int(major), int(minor)) if major else None
            listed[name] = (mode.decode(), int(uid), int(gid), device, int(size or 0), when.decode(), target or b"")
    wanted: Seen = {}
    for name, (mode, uid, gid, mtime, rdev, size, *_, content) in mounted.items():
        bits = int(str(mode), 8)
        shown = size if size is not None else listed[name][4]  # the size of a directory is the tool's own affair
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(mtime))  # type: ignore[arg-type]
        target = content if stat.S_ISLNK(bits) else b""
        wanted[name] = (stat.filemode(bits), uid, gid, show_device(rdev) if rdev else None, shown, when, target)  # type: ignore[arg-type]
    assert sorted(set(listed) ^ set(wanted))[:5] == []
    compare(listed, wanted)


def show_device(rdev: int) -> tuple[int, int]:
    """As unsquashfs shows the kernel's packed number: it splits it at bit 8, as if minors had no more than 8 bits."""
    major, minor = os.major(rdev), os.minor(rdev)
    packed = minor & 0xFF | major << 8 | (minor & ~0xFF) << 12
    return packed >> 8, packed & 0xFF


@contextlib.contextmanager
def mount_with_fuse(program: str, image: Path, offset: int, top: Path) -> Iterator[Path]:
    top.mkdir()
    argv = [require_program(program), "-o", f"ro,offset={offset}", image, top]
    done = subprocess.run(argv, capture_output=True, check=False)
    try:
        assert done.returncode == 0, done.stderr
        yield top
    finally:
        subprocess.run(["umount", top], check=False)
        top.rmdir()


@pytest.fixture(scope="module")
def control(place: Path, expected: Seen) -> Path:
    """The same tree as mksquashfs writes it: what a tool shows strangely there is the tool's doing."""
    assert expected
    path = place / "control.squashfs"
    argv = [
        require_program("mksquashfs"),
        place / "expected",
        path,
        "-comp",
        "gzip",
        "-quiet",
        "-no-progress",
        "-noappend",
    ]
    subprocess.run(argv, check=True, capture_output=True)
    return path


@pytest.mark.parametrize("program", ["squashfuse", "squashfuse_ll"])
def test_squashfuse_sees_what_the_kernel_sees(
    sif: Path, mounted: Seen, control: Path, place: Path, program: str
) -> None:
    """Releases before 0.2 swap security.* and trusted.*, and one of the two programs makes up inode numbers."""
    with mount_with_fuse(program, sif, find_partition(sif)[0], place / "fuse") as top:
        found = scan_tree(top)
    assert sorted(set(found) ^ set(mounted))[:5] == []
    compare({n: (*x[:7], x[9]) for n, x in found.items()}, {n: (*x[:7], x[9]) for n, x in mounted.items()})
    with mount_with_fuse(program, control, 0, place / "fuse") as top:
        compare(found, scan_tree(top), but=CHANGED)


def test_our_reader_sees_what_the_kernel_sees(sif: Path, mounted: Seen) -> None:
    image = open_sif(sif)
    try:
        found = see_nodes(image.root, image.source)
    finally:
        image.close()
    compare(found, mounted)


def test_small_reads_at_odd_places_agree(sif: Path, place: Path, expected: Seen) -> None:
    """The kernel reads pages, not files: pieces around block borders, mounted and extracted."""
    assert expected
    with mount_partition(sif, place / "pieces") as top:
        for size in (131071, 131072, 131073, 262144, 393221):
            for kind in ("noise", "text", "zero"):
                name = f"odd/sizes/{kind}-{size}"
                with (top / name).open("rb", 0) as one, (place / "expected" / name).open("rb", 0) as other:
                    for start in (0, 1, 4095, 131070, 131072, size - 1, size, size + 5):
                        one.seek(start)
                        other.seek(start)
                        assert one.read(4099) == other.read(4099), (name, start)
        sparse = (top / "odd/sizes/sparse").stat()
        assert sparse.st_size == SPARSE_SIZE


def test_sandbox_is_what_gnu_tar_extracts(registry: FakeRegistry, expected: Seen, place: Path) -> None:
    target = place / "sandbox"
    kedge("pull", "--sandbox", target, f"docker://{registry.host}/team/odd:1", cache=place / "cache")
    try:
        found = scan_tree(target)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    assert [name for name in set(found) - set(expected) if not DECORATION.match(name)] == []
    compare(found, expected, but=CHANGED)
