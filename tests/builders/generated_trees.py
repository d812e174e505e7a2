# SPDX-License-Identifier: BSD-3-Clause
"""Trees by seed whose sizes, contents, names and numbers crowd at the edges, and what must be seen of each.

Nothing here uses kedge: it says what a tree is, and readers of others are asked whether an image has it.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
from dataclasses import dataclass, field

from tests.builders.judged_trees import Seen

OWNERS = (0, 1, 1000, 65534, 65535, 65536, (1 << 21) - 1, 1 << 21, (1 << 31) - 1, 1 << 31, (1 << 32) - 2)
TIMES = (0, 1, 1_700_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
MODES = (0o644, 0o755, 0o600, 0, 0o777, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777)
ODD_NAMES = (
    b"\xff\xfe",
    b"two words",
    b"tab\there",
    b"line\nbreak",
    b"quote'\"$`\\",
    "日本".encode(),
    b"-x",
    b"*",
    b"...",
)
EDGE_LENGTHS = (1, 2, 99, 100, 101, 154, 155, 156, 254, 255)


@dataclass(slots=True, eq=False)
class Thing:
    """One inode; the same object under several paths is a hard link."""

    kind: int  # stat.S_IFREG and the like
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    data: bytes = b""
    target: bytes = b""
    rdev: int = 0
    xattrs: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        return self.kind == stat.S_IFDIR


Tree = dict[bytes, Thing]  # by path, b"" is the root; parents stand before what is in them


def expect(tree: Tree) -> Seen:
    """What a reader must see, as `judged_trees.scan_tree` tells it."""
    names: dict[int, list[bytes]] = {}
    folders: dict[bytes, int] = {}
    for path, thing in tree.items():
        names.setdefault(id(thing), []).append(path)
        if thing.is_folder and path:
            parent = path.rpartition(b"/")[0]
            folders[parent] = folders.get(parent, 0) + 1
    seen: Seen = {}
    for path, thing in tree.items():
        content = thing.target if thing.kind == stat.S_IFLNK else b""
        if thing.kind == stat.S_IFREG:
            content = hashlib.sha256(thing.data).digest()
        size = len(thing.target) if thing.kind == stat.S_IFLNK else len(thing.data)
        seen[path] = (
            oct(thing.kind | thing.mode),
            thing.uid,
            thing.gid,
            min(max(thing.mtime, 0), (1 << 32) - 1),
            thing.rdev,
            None if thing.is_folder else size,
            2 + folders.get(path, 0) if thing.is_folder else len(names[id(thing)]),
            path if thing.is_folder else min(names[id(thing)]),
            tuple(sorted((os.fsdecode(key), value) for key, value in thing.xattrs.items())),
            content,
        )
    return seen


def count_holes(thing: Thing, block: int) -> int:
    """Bytes of a file that are whole blocks of zeros, or a last one that is shorter; small files have none."""
    if len(thing.data) < block:
        return 0
    blocks = [thing.data[start : start + block] for start in range(0, len(thing.data), block)]
    return sum(len(each) for each in blocks if not any(each))


class Contents:
    """Contents out of a few blocks, so that equal blocks, tails and whole files are common."""

    def __init__(self, rng: random.Random, block: int) -> None:
        self._rng = rng
        self._block = block
        self._text = (b"all work and no play %d " % rng.randrange(1000)) * (block // 20 + 1)
        self._palette = [bytes(block), self._text[:block], rng.randbytes(block), rng.randbytes(block)]
        self._made: list[bytes] = []

    def make(self, size: int) -> bytes:
        """A file of this size."""
        data = self._vary(size) if self._made and self._rng.random() < 0.4 else b"".join(self._blocks(size))
        self._made.append(data)
        return data

    def _blocks(self, size: int) -> list[bytes]:
        rng, parts = self._rng, []
        fresh = rng.choice((0.0, 0.1, 0.9))  # how many blocks no other file has
        for start in range(0, size, self._block):
            length = min(self._block, size - start)
            parts.append(rng.randbytes(length) if rng.random() < fresh else rng.choice(self._palette)[:length])
        return parts

    def _vary(self, size: int) -> bytes:
        """A file that agrees with an earlier one at its beginning or at its end, but for a byte, or all over."""
        rng, known = self._rng, self._rng.choice(self._made)
        long = (known + b"".join(self._blocks(size)))[:size]
        way = rng.randrange(5)
        if not long or way == 0:
            return known
        if way == 1:
            return long
        if way == 2:  # other blocks, the same end
            return (b"".join(self._blocks(size)) + known)[-size:]
        large = [each for each in self._made if len(each) >= 2 * self._block]
        if large and rng.random() < 0.8:
            long = rng.choice(large)  # of the same size, so that the writer compares them block by block
        place = rng.choice((0, len(long) - 1, len(long) - 1, min(self._block, len(long) - 1), rng.randrange(len(long))))
        return long[:place] + bytes((long[place] ^ 1,)) + long[place + 1 :]


def choose_sizes(rng: random.Random, block: int) -> list[int]:
    """The sizes of the files of a tree, in their order."""
    edges = [0, 1, 2, block // 2 - 1, block // 2, block // 2 + 1, block - 2, block - 1, block, block + 1]
    for count in (2, 3, rng.randrange(4, 7)):
        edges += [count * block - 1, count * block, count * block + 1]
    way = rng.randrange(7)
    if way == 0:
        return [rng.choice(edges)]
    if way == 1:
        return rng.choices(edges, k=rng.randrange(2, 13))
    if way == 2:
        return [rng.choice((block, block, 2 * block, 0)) for _ in range(rng.randrange(2, 12))]
    if way == 3:  # all edges around one block, in any order
        some = edges[: rng.randrange(6, 11)]
        return rng.sample(some, len(some))
    if way == 4:  # fragments that are exactly full, or off by one
        sizes = []
        for _ in range(rng.randrange(1, 5)):
            sizes += _cut(rng, block + rng.choice((0, 0, 0, -1, 1)), rng.randrange(1, 7))
            sizes += rng.choices((block, block + 1, 0, 1), k=rng.choice((0, 0, 1, 2)))
        return sizes
    if way == 5:  # the tails of large files, which share no fragment, add up to a block
        tails = _cut(rng, block, rng.randrange(2, 5))
        return [rng.randrange(1, 4) * block + tail for tail in tails]
    return [rng.randrange(0, block // 8) for _ in range(rng.randrange(20, 60))]


def _cut(rng: random.Random, total: int, count: int) -> list[int]:
    places = sorted(rng.randrange(0, total + 1) for _ in range(count - 1))
    return [end - start for start, end in zip([0, *places], [*places, total], strict=True)]


class Grower:
    """Makes one tree. `plain`: without what a tar or a disk of small blocks cannot keep (sockets, long links …)."""

    def __init__(self, rng: random.Random, block: int, *, plain: bool = False) -> None:
        self._rng = rng
        self._plain = plain
        self._contents = Contents(rng, block)
        self._block = block
        self._folders = [b""]
        self.tree: Tree = {b"": self._dress(Thing(stat.S_IFDIR, 0o755))}

    def grow(self) -> Tree:
        """Folders, files in the order of their sizes, then all that has no content."""
        rng = self._rng
        if rng.random() < 0.5:
            for _ in range(rng.randrange(1, 6)):
                path = self._new_path()
                self.tree[path] = self._dress(Thing(stat.S_IFDIR, 0o755))
                self._folders.append(path)
        for size in choose_sizes(rng, self._block):
            self.add_file(size)
        if rng.random() < 0.5:
            self._add_links()
        if rng.random() < 0.3:
            self._add_special()
        if rng.random() < 0.08:
            self._add_crowd()
        return self.tree

    def add_file(self, size: int) -> bytes:
        """A file of this size, or of that of an earlier one."""
        path = self._new_path()
        self.tree[path] = self._dress(Thing(stat.S_IFREG, data=self._contents.make(size)))
        return path

    def _new_path(self) -> bytes:
        """A path that is free, in one of the folders."""
        rng = self._rng
        while True:
            folder = rng.choice(self._folders)
            name = b"%s%d" % (rng.choice((b"f", b"a", b"z", b"\x01")), rng.randrange(100_000))
            if rng.random() < 0.1:
                name = rng.choice(ODD_NAMES)
            elif rng.random() < 0.2:
                name = (name + b"n" * 255)[: rng.choice(EDGE_LENGTHS)]
            path = folder + b"/" + name if folder else name
            if path not in self.tree and len(path) < 1500:
                return path

    def _dress(self, thing: Thing) -> Thing:
        """Mostly ordinary metadata, some at the edges."""
        rng = self._rng
        thing.mtime = 1_700_000_000
        if rng.random() < 0.4:
            thing.mtime = rng.choice(TIMES)
        if rng.random() < 0.2:
            thing.uid, thing.gid = rng.choice(OWNERS), rng.choice(OWNERS)
        if rng.random() < 0.2:
            thing.mode = rng.choice(MODES)
        if rng.random() < 0.05:
            self._add_xattrs(thing)
        return thing

    def _add_xattrs(self, thing: Thing) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 5))):
            prefix = rng.choice((b"user.", b"trusted."))
            value = (
                rng.randbytes(rng.choice((1, 2, 20, 100 if self._plain else 300)))
                if rng.random() < 0.5
                else b"the same"
            )
            if not self._plain and rng.random() < 0.2:
                value = b""
            thing.xattrs[prefix + b"k%d" % rng.randrange(3)] = value
        if not self._plain and thing.kind == stat.S_IFREG and rng.random() < 0.2:
            thing.xattrs[b"security.capability"] = bytes.fromhex("0100000200200000000000000000000000000000")

    def _add_links(self) -> None:
        rng = self._rng
        for _ in range(rng.randrange(1, 5)):
            known = [thing for thing in self.tree.values() if not thing.is_folder]
            path = self._new_path()
            if known and rng.random() < 0.6:
                self.tree[path] = rng.choice(known)
            else:
                target = b"t" * rng.choice((1, 99, 100, 101, 255, 1000 if self._plain else 4095))
                self.tree[path] = self._dress_link(Thing(stat.S_IFLNK, 0o777, target=target))

    def _dress_link(self, thing: Thing) -> Thing:
        self._dress(thing)
        thing.mode, thing.xattrs = 0o777, {}
        return thing

    def _add_special(self) -> None:
        rng = self._rng
        kinds = [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO] + ([] if self._plain else [stat.S_IFSOCK])
        for kind in rng.sample(kinds, rng.randrange(1, len(kinds) + 1)):
            thing = self._dress(Thing(kind))
            thing.xattrs = {}
            if kind in (stat.S_IFCHR, stat.S_IFBLK):
                thing.rdev = os.makedev(rng.choice((0, 1, 255, 256, 4095)), rng.choice((0, 255, 256, (1 << 20) - 1)))
            self.tree[self._new_path()] = thing

    def _add_crowd(self) -> None:
        """A directory whose listing is longer than a block of metadata, so that it has an index."""
        rng = self._rng
        folder = self._new_path()
        if len(folder) > 300:
            return
        self.tree[folder] = self._dress(Thing(stat.S_IFDIR, 0o755))
        length = rng.choice((1, 8, 60, 240))
        others = rng.choice((0.0, 0.02, 0.5))  # how many are no plain small files
        for number in range(rng.choice((255, 256, 257, 8192 // (length + 12), 8192 // (length + 12) + 1, 600))):
            name = b"%05d" % number + b"c" * rng.randrange(max(length - 5, 1), max(length - 4, 2))
            thing = Thing(stat.S_IFREG, data=b"%d" % number)
            if rng.random() < others:
                thing.data = rng.choice((b"", thing.data))
                self._dress(thing)
            self.tree[folder + b"/" + name] = thing


def grow_tree(rng: random.Random, block: int, *, plain: bool = False) -> Tree:
    """A tree whose files crowd at the edges of blocks of this size."""
    return Grower(rng, block, plain=plain).grow()
