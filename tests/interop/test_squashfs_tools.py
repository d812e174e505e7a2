# SPDX-License-Identifier: BSD-3-Clause
"""SquashFS images of mksquashfs as we read them, and the ends of ours: empty, huge, many owners, beyond 4 GiB.

What every reader sees of ordinary trees of ours is the concern of test_generated_trees.py. The kernel needs root.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.image.formats.squashfs import writer
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.image_judges import find_differences, see_by_kedge
from tests.builders.judged_trees import scan_tree
from tests.builders.squashfs_images import add_file, add_special, fill_sample, mixed_bytes, write_image
from tests.requirements import require_program, require_root


def run(*argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, errors="surrogateescape", check=False)
    assert not check or done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


@contextmanager
def mounted(image: Path, point: Path) -> Iterator[Path]:
    point.mkdir()
    run(require_program("mount"), "-t", "squashfs", "-o", "loop,ro", image, point)
    try:
        yield point
    finally:
        run(require_program("umount"), point)


def test_unsquashfs_lists_our_image(tmp_path: Path) -> None:
    unsquashfs = require_program("unsquashfs")
    for codec in ("zstd", "gzip", "none"):
        (tmp_path / codec).write_bytes(write_image(fill_sample, codec=codec))
    listed = run(unsquashfs, "-lln", "-d", "", tmp_path / "zstd").stdout
    for line in ("-rwsr-xr-x 0/0", "crw-rw-rw- 0/0", "lrwxrwxrwx 0/0", "drwxrwxrwt 0/0", "prw------- 0/0"):
        assert line in listed
    shown = run(unsquashfs, "-s", tmp_path / "gzip").stdout
    assert "Compression gzip" in shown
    assert "compression-level 6" in shown
    assert "Inodes are uncompressed" in run(unsquashfs, "-s", tmp_path / "none").stdout


@pytest.mark.root
def test_kernel_mounts_an_empty_root_and_a_huge_folder(tmp_path: Path) -> None:
    require_root()

    def fill_many(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(70_000):
            add_file(sink, root, b"entry-%d" % number, b"%d" % number)
        return root

    empty, huge = tmp_path / "empty", tmp_path / "huge"
    empty.write_bytes(write_image(lambda _: Node(NodeKind.DIRECTORY)))
    huge.write_bytes(write_image(fill_many))
    with mounted(empty, tmp_path / "m1") as point:
        assert list(point.iterdir()) == []
    with mounted(huge, tmp_path / "m2") as point:
        assert len(list(point.iterdir())) == 70_000
        for number in (0, 9, 10, 34_567, 69_999):
            assert (point / f"entry-{number}").read_text() == str(number)
        assert not (point / "entry-70000").exists()


@pytest.mark.root
def test_kernel_and_unsquashfs_take_many_owners(tmp_path: Path) -> None:
    require_root()

    def fill_owners(_: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(20_000):
            add_special(root, b"%d" % number, NodeKind.FIFO).gid = 4_000_000_000 + number
        return root

    image = tmp_path / "image"
    image.write_bytes(write_image(fill_owners))
    with mounted(image, tmp_path / "mount") as point:
        assert all(os.lstat(point / str(number)).st_gid == 4_000_000_000 + number for number in range(0, 20_000, 777))


def make_tree(base: Path) -> Path:
    """A directory for mksquashfs; owners and attributes only where we may set them."""
    tree = base / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "empty").write_bytes(b"")
    for size in (1, 100, 4095, 4096, 131071, 131072, 131073, 500_000):
        (tree / f"file-{size}").write_bytes(mixed_bytes(size, size))
    (tree / "copy").write_bytes(mixed_bytes(500_000, 500_000))
    with (tree / "sparse").open("wb") as file:
        file.truncate(3 << 20)
        file.seek(1 << 20)
        file.write(b"island")
    (tree / "text").write_bytes(
        b"".join(b"line %d of a text that repeats itself\n" % number for number in range(20_000))
    )
    os.link(tree / "text", tree / "deep" / "er" / "hard")
    (tree / "deep" / "symlink").symlink_to("../text")
    os.mkfifo(tree / "fifo")
    for number in range(600):
        (tree / "deep" / f"entry-{number}").write_bytes(b"%d" % number)
    if os.geteuid() == 0:
        os.chown(tree / "text", 12, 3_000_000_000)
        os.mknod(tree / "device", 0o600 | stat.S_IFCHR, os.makedev(259, 70_000))
    for name in ("text", "empty", "file-1"):
        os.setxattr(tree / name, "user.long", b"a value that is long enough to be stored once and referred to" * 5)
    os.setxattr(tree / "deep", "user.short", b"1")
    return tree


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("source")
    try:
        return make_tree(base)
    except OSError as problem:
        pytest.skip(f"no extended attributes in {base}: {problem}")


CASES = {
    "gzip": "-comp gzip",
    "gzip strategies": "-comp gzip -Xcompression-level 3 -Xstrategy default,filtered",
    "lzo": "-comp lzo",
    "lzo level": "-comp lzo -Xalgorithm lzo1x_1_15",
    "lz4": "-comp lz4",
    "lz4 high": "-comp lz4 -Xhc",
    "xz": "-comp xz",
    "xz bcj": "-comp xz -Xbcj x86,arm -Xdict-size 50%",
    "zstd": "-comp zstd -Xcompression-level 3",
    "lzma": "-comp lzma",
    "no fragments": "-no-fragments",
    "tail ends": "-always-use-fragments",
    "all stored": "-noI -noD -noF -noX",
    "inodes stored": "-noI -noId",
    "small blocks": "-b 4096",
    "large blocks": "-b 1M",
    "no exports": "-no-exports",
    "no duplicates": "-no-duplicates",
    "no xattrs": "-no-xattrs",
    "no sparse": "-no-sparse",
    "no padding": "-nopad",
}


def test_reader_reads_images_of_mksquashfs(source: Path, tmp_path: Path) -> None:
    mksquashfs, image, seen = require_program("mksquashfs"), tmp_path / "image", scan_tree(source)
    without = scan_tree(source, xattrs=False)
    wrong = {}
    for case, options in CASES.items():
        made = run(mksquashfs, source, image, "-noappend", "-no-progress", "-quiet", *options.split(), check=False)
        if made.returncode and case == "lzma":
            continue  # this mksquashfs has none
        assert made.returncode == 0, made.stderr
        wrong[case] = find_differences(see_by_kedge(image, threads=2), without if case == "no xattrs" else seen)
        with image.open("rb") as file, SquashReader(file, threads=2) as reader:
            node = reader.find("text")
            assert node is not None
            assert b"".join(reader.chunks(node)) == (source / "text").read_bytes()
    assert not any(wrong.values()), wrong


@pytest.mark.root
@pytest.mark.parametrize("is_written", [False, pytest.param(True, marks=pytest.mark.long)], ids=["a hole", "written"])
def test_kernel_mounts_an_image_beyond_four_gigabytes(
    is_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block positions that need 64 bits: behind a hole in the image, or behind a file that is larger than 4 GiB."""
    require_root()
    noise, beyond = os.urandom(1 << 20), 4 << 30
    size = beyond + (300 << 20) if is_written else 5 << 20
    if not is_written:
        pipeline = writer.BlockPipeline
        monkeypatch.setattr(writer, "BlockPipeline", lambda *words, start: pipeline(*words, start=start + beyond))

    def pieces() -> Iterator[bytes]:
        for number in range(size >> 20):
            yield number.to_bytes(8, "big") + noise[8:]

    image = tmp_path / "image"
    with image.open("w+b") as file, SquashWriter(file, SquashOptions(codec="none", threads=2)) as made:
        root = Node(NodeKind.DIRECTORY)
        large = add_special(root, b"large", NodeKind.FILE)
        large.size, large.content = size, made.add_stream(size, pieces())
        add_file(made, root, b"after", b"after all that\n" * 20_000)
        made.finish(root)
    assert image.stat().st_size > beyond
    with mounted(image, tmp_path / "mount") as point, (point / "large").open("rb") as shown:
        assert (point / "after").read_bytes() == b"after all that\n" * 20_000
        for number in (0, 1, (size >> 20) // 2, (size >> 20) - 1):
            shown.seek(number << 20)
            assert shown.read(100) == number.to_bytes(8, "big") + noise[8:100]
    image.unlink()
