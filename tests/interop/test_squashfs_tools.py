# SPDX-License-Identifier: BSD-3-Clause
"""Our SquashFS images as unsquashfs, squashfuse and the kernel see them, and images of mksquashfs as we see them.

unsquashfs and the kernel need root (owners, devices, mounts); squashfuse needs /dev/fuse.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.squashfs_images import add_file, add_folder, add_special, fill_sample, mixed_bytes, write_image
from tests.requirements import require_program, require_root

CODECS = ["zstd", "zstd:19", "gzip", "lz4", "none"]
MANY = 800  # entries of 46 bytes: five metadata blocks
KINDS = {
    NodeKind.DIRECTORY: stat.S_IFDIR,
    NodeKind.FILE: stat.S_IFREG,
    NodeKind.SYMLINK: stat.S_IFLNK,
    NodeKind.BLOCK_DEVICE: stat.S_IFBLK,
    NodeKind.CHARACTER_DEVICE: stat.S_IFCHR,
    NodeKind.FIFO: stat.S_IFIFO,
    NodeKind.SOCKET: stat.S_IFSOCK,
}


def run(*argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, errors="surrogateescape", check=False)
    assert not check or done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


def fill(sink: ContentSink) -> Node:
    """The sample, and directories long enough for an index and for several metadata blocks."""
    root = fill_sample(sink)
    many = add_folder(root, b"many")
    for number in range(MANY):
        add_file(sink, many, b"a-rather-long-name-for-an-entry-%d" % number, b"%d" % number)
    nested = root
    for _ in range(30):
        nested = add_folder(nested, b"deeper")
    add_special(nested, b"end", NodeKind.SYMLINK, mode=0o777, target=b"x" * 4000)
    return root


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("images")
    for codec in CODECS:
        (folder / codec).write_bytes(write_image(fill, codec=codec, threads=2))
    return {codec: folder / codec for codec in CODECS}


def expect_same(tree: Path, image: Path, *, xattrs: bool = True) -> None:
    """A directory on disk shows what our reader finds in the image."""
    with image.open("rb") as file, SquashReader(file) as reader:
        root = reader.read_tree()
        paths = dict(walk(root))
        on_disk = {
            os.fsencode((Path(base) / name).relative_to(tree))
            for base, folders, files in os.walk(tree)
            for name in folders + files
        }
        assert on_disk == set(paths)
        inodes: dict[int, Node] = {}
        for path, node in paths.items():
            place = tree / os.fsdecode(path)
            compare(place, node, xattrs=xattrs)
            assert inodes.setdefault(os.lstat(place).st_ino, node) is node
            if node.kind is NodeKind.FILE:
                with place.open("rb") as found:
                    for chunk in reader.chunks(node):
                        assert found.read(len(chunk)) == chunk
                    assert not found.read(1)


def compare(place: Path, node: Node, *, xattrs: bool) -> None:
    found = os.lstat(place)
    assert stat.S_IFMT(found.st_mode) == KINDS[node.kind], place
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (node.mode, node.uid, node.gid), place
    assert int(found.st_mtime) == node.mtime, place
    if node.kind is NodeKind.FILE:
        assert found.st_size == node.size
    if node.kind is NodeKind.SYMLINK:
        assert os.fsencode(place.readlink()) == node.target
    if node.kind in (NodeKind.BLOCK_DEVICE, NodeKind.CHARACTER_DEVICE):
        assert found.st_rdev == node.rdev
    if xattrs:
        names = os.listxattr(place, follow_symlinks=False)
        shown = {os.fsencode(name): os.getxattr(place, name, follow_symlinks=False) for name in names}
        assert shown == dict(node.xattrs), place


@contextmanager
def mounted(image: Path, point: Path) -> Iterator[Path]:
    point.mkdir()
    run(require_program("mount"), "-t", "squashfs", "-o", "loop,ro", image, point)
    try:
        yield point
    finally:
        run(require_program("umount"), point)


@pytest.mark.root
@pytest.mark.parametrize("codec", CODECS)
def test_kernel_shows_our_image(codec: str, images: dict[str, Path], tmp_path: Path) -> None:
    require_root()
    with mounted(images[codec], tmp_path / "mount") as point:
        expect_same(point, images[codec])
        holes = (point / "holes" / "all").stat()
        assert holes.st_blocks <= 8
        for number in (0, 1, 234, MANY - 1):
            assert (point / "many" / f"a-rather-long-name-for-an-entry-{number}").read_text() == str(number)


@pytest.mark.root
@pytest.mark.parametrize(
    ("codec", "block_size"),  # both ends, and each codec of the kernel's at one of them
    [
        ("zstd", 1 << 20),
        ("gzip", 4096),
        ("lz4", 1 << 20),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in (("zstd", 4096), ("gzip", 1 << 20), ("lz4", 4096))),
    ],
)
def test_kernel_shows_our_image_with_other_blocks(codec: str, block_size: int, tmp_path: Path) -> None:
    require_root()
    image = tmp_path / "image"
    image.write_bytes(write_image(fill, codec=codec, block_size=block_size))
    with mounted(image, tmp_path / "mount") as point:
        expect_same(point, image)


@pytest.mark.root
@pytest.mark.parametrize("codec", CODECS)
def test_unsquashfs_extracts_our_image(codec: str, images: dict[str, Path], tmp_path: Path) -> None:
    require_root()
    unsquashfs = require_program("unsquashfs")
    run(unsquashfs, "-no-progress", "-quiet", "-d", tmp_path / "tree", images[codec])
    expect_same(tmp_path / "tree", images[codec])


def test_unsquashfs_lists_our_image(images: dict[str, Path]) -> None:
    unsquashfs = require_program("unsquashfs")
    listed = run(unsquashfs, "-lln", "-d", "", images["zstd"]).stdout
    for line in ("-rwsr-xr-x 0/0", "crw-rw-rw- 0/0", "lrwxrwxrwx 0/0", "drwxrwxrwt 0/0", "prw------- 0/0"):
        assert line in listed
    shown = run(unsquashfs, "-s", images["gzip"]).stdout
    assert "Compression gzip" in shown
    assert "compression-level 6" in shown
    assert "Inodes are uncompressed" in run(unsquashfs, "-s", images["none"]).stdout


def test_squashfuse_shows_our_image(images: dict[str, Path], tmp_path: Path) -> None:
    squashfuse = require_program("squashfuse")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse")
    unmount = [require_program("umount")] if os.geteuid() == 0 else [require_program("fusermount3"), "-u"]
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        pytest.skip("fusermount serves only users that have a name")
    point = tmp_path / "mount"
    for codec in ("zstd", "gzip", "lz4"):
        point.mkdir(exist_ok=True)
        mount = run(squashfuse, images[codec], point, check=False)
        if mount.returncode and codec != "zstd":
            continue  # a build of squashfuse without this codec
        assert mount.returncode == 0, mount.stderr
        try:
            expect_same(point, images[codec], xattrs=False)
        finally:
            run(*unmount, point)


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


CASES: dict[str, list[str]] = {
    "gzip": ["-comp", "gzip"],
    "gzip strategies": ["-comp", "gzip", "-Xcompression-level", "3", "-Xstrategy", "default,filtered"],
    "lzo": ["-comp", "lzo"],
    "lzo level": ["-comp", "lzo", "-Xalgorithm", "lzo1x_1_15"],
    "lz4": ["-comp", "lz4"],
    "lz4 high": ["-comp", "lz4", "-Xhc"],
    "xz": ["-comp", "xz"],
    "xz bcj": ["-comp", "xz", "-Xbcj", "x86,arm", "-Xdict-size", "50%"],
    "zstd": ["-comp", "zstd", "-Xcompression-level", "3"],
    "lzma": ["-comp", "lzma"],
    "no fragments": ["-no-fragments"],
    "tail ends": ["-always-use-fragments"],
    "all stored": ["-noI", "-noD", "-noF", "-noX"],
    "inodes stored": ["-noI", "-noId"],
    "small blocks": ["-b", "4096"],
    "large blocks": ["-b", "1M"],
    "no exports": ["-no-exports"],
    "no duplicates": ["-no-duplicates"],
    "no xattrs": ["-no-xattrs"],
    "no sparse": ["-no-sparse"],
    "no padding": ["-nopad"],
}


@pytest.mark.parametrize("case", CASES)
def test_reader_reads_images_of_mksquashfs(case: str, source: Path, tmp_path: Path) -> None:
    mksquashfs = require_program("mksquashfs")
    image = tmp_path / "image"
    made = run(mksquashfs, source, image, "-noappend", "-no-progress", "-quiet", *CASES[case], check=False)
    if made.returncode and case == "lzma":
        pytest.skip("this mksquashfs has no lzma")
    assert made.returncode == 0, made.stderr
    expect_same(source, image, xattrs=case != "no xattrs")
    with image.open("rb") as file, SquashReader(file, threads=2) as reader:
        node = reader.find("text")
        assert node is not None
        assert b"".join(reader.chunks(node)) == (source / "text").read_bytes()


@pytest.mark.slow
@pytest.mark.root
def test_kernel_mounts_an_image_beyond_four_gigabytes(tmp_path: Path) -> None:
    """Block positions that need 64 bits, in a file that is larger than 4 GiB."""
    require_root()
    noise = os.urandom(1 << 20)
    size = (4 << 30) + (300 << 20)

    def pieces() -> Iterator[bytes]:
        for number in range(size >> 20):
            yield number.to_bytes(8, "big") + noise[8:]

    image = tmp_path / "image"
    with image.open("w+b") as file, SquashWriter(file, SquashOptions(codec="none", threads=2)) as writer:
        root = Node(NodeKind.DIRECTORY)
        large = add_special(root, b"large", NodeKind.FILE)
        large.size, large.content = size, writer.add_stream(size, pieces())
        add_file(writer, root, b"after", b"after all that\n" * 20_000)
        writer.finish(root)
    with mounted(image, tmp_path / "mount") as point, (point / "large").open("rb") as shown:
        assert (point / "after").read_bytes() == b"after all that\n" * 20_000
        for number in (0, 1, 4097, (size >> 20) - 1):
            shown.seek(number << 20)
            assert shown.read(100) == number.to_bytes(8, "big") + noise[8:100]
    image.unlink()
