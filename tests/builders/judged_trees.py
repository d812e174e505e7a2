# SPDX-License-Identifier: BSD-3-Clause
"""An image with every oddity a file system can hold, extracted by GNU tar, and what can be seen of a tree on disk.

Nothing here uses kedge: it is what kedge's images are compared with. Needs root and GNU tar.
"""

# pathlib takes no names that are bytes:
# ruff: noqa: PTH101, PTH102, PTH103, PTH115, PTH118, PTH123, PTH211

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

from tests.builders.images import noise
from tests.requirements import require_program

BLOCK = 131072
SIZES = (1, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5)
SPARSE_SIZE = 40 << 20
TIMES = (1, 86_399, 1_600_000_000, (1 << 31) + 5, (1 << 32) - 1)
Seen = dict[bytes, tuple[object, ...]]


def make_odd_layer(place: Path) -> bytes:
    """A tar that GNU tar wrote of a real folder: sizes, names, times, holes, links, devices, xattrs, one big folder."""
    root = os.fsencode(place / "odd")
    os.makedirs(root)
    _add_contents(root)
    _add_names(root)
    _add_metadata(root)
    _add_crowd(root)
    for number, path in enumerate(sorted(_walk(root), reverse=True)):
        if not path.startswith(root + b"/when"):
            moment = 1_500_000_000 + number
            os.utime(path, (moment, moment), follow_symlinks=False)
    argv = [require_program("tar"), "-C", str(place), "--format=pax", "--pax-option=delete=atime,delete=ctime"]
    argv += ["--sort=name", "--sparse", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-cf", "-", "odd"]
    tar = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    shutil.rmtree(root)
    return tar


def _write(path: bytes, data: bytes = b"") -> None:
    with open(path, "xb") as file:
        file.write(data)


def _add_contents(root: bytes) -> None:
    os.mkdir(root + b"/sizes")
    for size in SIZES:
        _write(root + b"/sizes/noise-%d" % size, noise(size, str(size)))
        _write(root + b"/sizes/text-%d" % size, (b"all work and no play " * (size // 20 + 1))[:size])
        _write(root + b"/sizes/zero-%d" % size, bytes(size))
        _write(root + b"/sizes/copy-%d" % size, noise(size, str(size)))
    for number in range(5):
        _write(root + b"/sizes/empty-%d" % number)
    with open(root + b"/sizes/sparse", "xb") as file:
        for place in (0, 5 << 20, (20 << 20) + 77):
            file.seek(place)
            file.write(noise(9_000, str(place)))
        file.truncate(SPARSE_SIZE)
    with open(root + b"/sizes/hole", "xb") as file:
        file.truncate(BLOCK * 8 + 1)


def _add_names(root: bytes) -> None:
    os.mkdir(root + b"/names")
    for name in (
        b"n" * 255,
        b"\xff\xfe not utf-8",
        b"two words",
        b"tab\there",
        b"quote'\"$`\\",
        "日本".encode(),
        b"-x",
        b"*",
    ):
        _write(root + b"/names/" + name, name)
    os.symlink(b"\xff\xfe not utf-8", root + b"/names/to-bytes")
    os.symlink(b"t" * 3000, root + b"/names/to-far")
    os.symlink(b"n" * 255, root + b"/names/" + b"l" * 255)
    deep = root + b"/deep"
    for level in range(60):
        os.mkdir(deep)
        _write(deep + b"/file", b"%d" % level)
        deep += b"/level-%d-" % level + b"d" * 30
    os.mkdir(root + b"/names/empty-folder")


def _add_metadata(root: bytes) -> None:
    os.mkdir(root + b"/modes")
    for mode in (0, 0o1, 0o222, 0o644, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777):
        path = root + b"/modes/%o" % mode
        _write(path, b"%o" % mode)
        os.chmod(path, mode)
        os.mkdir(path + b"-folder", 0o700)
        os.chmod(path + b"-folder", mode)
    os.mkdir(root + b"/owners")
    for uid, gid in ((0, 0), (1, 2), (1000, 100), (65534, 65534), (70_000, 80_000), (4_000_000_000, 3)):
        path = root + b"/owners/%d-%d" % (uid, gid)
        _write(path)
        os.symlink(b"x", path + b"-link")
        os.chown(path, uid, gid)
        os.chown(path + b"-link", uid, gid, follow_symlinks=False)
    os.mkdir(root + b"/when")
    for moment in TIMES:
        _write(root + b"/when/%d" % moment)
        os.utime(root + b"/when/%d" % moment, (moment, moment))
    os.utime(root + b"/when", (7, 7))
    _add_special(root + b"/special")


def _add_special(folder: bytes) -> None:
    os.mkdir(folder)
    os.mknod(folder + b"/character", stat.S_IFCHR | 0o620, os.makedev(5, 1))
    os.mknod(folder + b"/block", stat.S_IFBLK | 0o660, os.makedev(259, 300))
    os.mknod(folder + b"/minor", stat.S_IFCHR | 0o600, os.makedev(10, 70_000))
    os.mkfifo(folder + b"/fifo", 0o600)
    _write(folder + b"/first", b"linked" * 50_000)
    for name in (b"second", b"../names/third"):
        os.link(folder + b"/first", folder + b"/" + name)
    os.link(folder + b"/fifo", folder + b"/fifo-too")
    _write(folder + b"/attributes", b"x")
    attributes = {b"user.long": noise(1500, "x"), b"user.bytes": b"\0\xff\n=", b"trusted.t": b"t"}
    for key, value in attributes.items():
        os.setxattr(folder + b"/attributes", key, value)
    os.setxattr(folder, b"user.folder", b"yes")
    _write(folder + b"/same-attributes", b"y")
    os.setxattr(folder + b"/same-attributes", b"user.long", attributes[b"user.long"])


def _add_crowd(root: bytes) -> None:
    os.mkdir(root + b"/crowd")
    for number in range(3000):
        path = root + b"/crowd/entry-%04d-%s" % (number, b"c" * (number % 200))
        if number % 50 == 0:
            os.mkdir(path)
        elif number % 7 == 0:
            os.symlink(b"entry-%04d" % (number - 1), path)
        else:
            _write(path, b"%d\n" % number)


def make_lengths_layer() -> bytes:
    """A layer with a name of every length from 1 to 255, which tar headers hold in three different ways."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for length in range(1, 256):
            member = tarfile.TarInfo("lengths/" + "x" * length)
            member.size, member.mtime = length, length
            archive.addfile(member, io.BytesIO(b"y" * length))
    return out.getvalue()


def extract_layers(target: Path, tars: list[bytes]) -> None:
    """What the layers mean, by GNU tar: the names that whiteouts hide are removed before each layer is extracted."""
    target.mkdir()
    target.chmod(0o755)
    for tar in tars:
        for name in _list_names(tar):
            folder, base = os.path.split(name)
            if base == ".wh..wh..opq":
                for child in (target / folder).iterdir() if (target / folder).is_dir() else ():
                    _remove(child)
            elif base.startswith(".wh."):
                _remove(target / folder / base.removeprefix(".wh."))
        argv = [require_program("tar"), "-C", str(target), "--exclude=.wh.*", "--xattrs", "--xattrs-include=*"]
        argv += ["--numeric-owner", "--same-owner", "-p", "-xf", "-"]
        subprocess.run(argv, input=tar, check=True, stderr=subprocess.DEVNULL)  # it warns of times to come


def _list_names(tar: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return [member.name for member in archive]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _walk(top: bytes) -> list[bytes]:
    found = [top]
    for folder, folders, names in os.walk(top):
        found += [os.path.join(folder, name) for name in (*folders, *names)]
    return found


def scan_tree(top: Path, *, xattrs: bool = True) -> Seen:
    """By path: type and mode, owner, group, time, device, size, links, first name of the same file, xattrs, content."""
    root = os.fsencode(top)
    firsts: dict[tuple[int, int], bytes] = {}
    seen: Seen = {}
    for path in sorted(_walk(root)):
        name = path[len(root) + 1 :]
        found = os.lstat(path)
        is_folder = stat.S_ISDIR(found.st_mode)
        first = name if is_folder else firsts.setdefault((found.st_dev, found.st_ino), name)
        seen[name] = (
            oct(found.st_mode),
            found.st_uid,
            found.st_gid,
            int(found.st_mtime_ns // 10**9),
            found.st_rdev if stat.S_IFMT(found.st_mode) in (stat.S_IFBLK, stat.S_IFCHR) else 0,
            None if is_folder else found.st_size,
            found.st_nlink,
            first,
            tuple(
                sorted(
                    (key, os.getxattr(path, key, follow_symlinks=False))
                    for key in (_list_xattrs(path) if xattrs else ())
                )
            ),
            _read_content(path, found),
        )
    return seen


def _list_xattrs(path: bytes) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError as problem:
        if problem.errno != errno.ENOTSUP:  # what the kernel says of an image that has none
            raise
        return []


def _read_content(path: bytes, found: os.stat_result) -> bytes:
    if stat.S_ISLNK(found.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(found.st_mode):
        return b""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()
