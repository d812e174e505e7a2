# SPDX-License-Identifier: BSD-3-Clause
"""Random layer stacks: our tree equals what a plain, slow, bottom-up unpacker over a dictionary gives. No root."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import CorruptImage, HostileImage, KedgeError
from kedge.image.layers.flatten import flatten
from tests.builders import layers as build
from tests.builders.layers import MemorySink, describe, sources


@dataclass
class Inode:
    """What the reference keeps per file; directories are entries of the dictionary like any other."""

    kind: str
    meta: tuple[object, ...]
    inside: object = 0
    implied: bool = False


@dataclass
class Refused(Exception):
    kind: type[KedgeError]


@dataclass
class Unpacker:
    """A file system as {path: inode}, changed entry by entry with the rules of unpacking in a chroot."""

    files: dict[str, Inode] = field(default_factory=lambda: {"": implied()})
    hidden: dict[str, Inode] = field(default_factory=dict)

    def apply(self, tar: bytes) -> None:
        members = list(tarfile.open(fileobj=io.BytesIO(tar)))
        archive = tarfile.open(fileobj=io.BytesIO(tar))
        named = {clean(m.name) for m in members if m.isdir()}
        split = [(m, *clean(m.name).rpartition("/")[::2]) for m in members]
        targets = {clean(m.linkname) for m in members if m.islnk()}
        before = {target: self.find(target) for target in targets}
        for _, parent, name in split:
            if name == ".wh..wh..opq":
                self.hide(parent, None, named)
        for _, parent, name in split:
            if name.startswith(".wh.") and not name.startswith(".wh..wh."):
                self.hide(parent, name[4:], named)
        self.hidden = {target: inode for target, inode in before.items() if inode and not self.find(target)}
        for member, parent, name in split:
            if not name.startswith(".wh."):
                data = archive.extractfile(member).read() if member.isreg() else b""  # type: ignore[union-attr]
                self.put(member, parent, name, data)

    def hide(self, parent: str, name: str | None, named: set[str]) -> None:
        try:
            place = self.walk(parent, make=False, stops=named)
        except Refused:
            return
        if place is None:
            return
        prefix = f"{place}/" if place else ""
        for path in list(self.files):
            if path and path.startswith(prefix):
                rest = path[len(prefix) :]
                if name is None or rest == name or rest.startswith(name + "/"):
                    del self.files[path]

    def put(self, member: tarfile.TarInfo, parent: str, name: str, data: bytes) -> None:
        place = self.walk(parent, make=True, stops=set())
        path = f"{place}/{name}" if place else name
        if member.islnk():
            self.replace(path, self.target(member))
            return
        meta = (oct(member.mode), member.uid, member.gid, int(member.mtime), ())
        if member.isdir():
            if path in self.files and self.files[path].kind == "DIRECTORY":
                self.files[path] = Inode("DIRECTORY", meta)
            else:
                self.replace(path, Inode("DIRECTORY", meta))
        elif member.issym():
            self.replace(path, Inode("SYMLINK", meta, member.linkname.encode()))
        else:
            self.replace(path, Inode("FILE", meta, data))

    def replace(self, path: str, inode: Inode) -> None:
        for other in list(self.files):
            if other == path or other.startswith(path + "/"):
                del self.files[other]
        self.files[path] = inode

    def find(self, path: str) -> Inode | None:
        parent, _, name = path.rpartition("/")
        try:
            place = self.walk(parent, make=False, stops=set())
        except Refused:
            place = None
        return None if place is None or not name else self.files.get(f"{place}/{name}" if place else name)

    def target(self, member: tarfile.TarInfo) -> Inode:
        path = clean(member.linkname)
        inode = self.find(path) or self.hidden.get(path)
        if inode is None or inode.kind == "DIRECTORY":
            raise Refused(CorruptImage)
        return inode

    def walk(self, path: str, *, make: bool, stops: set[str]) -> str | None:
        """Resolve in a chroot, by recursion over links; `make` adds what is missing."""
        place: str = ""
        for count, part in enumerate(path.split("/") if path else [], 1):
            inode = self.files.get(f"{place}/{part}" if place else part)
            if inode is not None and inode.kind == "SYMLINK":
                if "/".join(path.split("/")[:count]) in stops:
                    return None
                place = self.follow(place, part, [0])
                continue
            step = f"{place}/{part}" if place else part
            if inode is not None and inode.kind != "DIRECTORY":
                if not make:
                    return None
                self.replace(step, implied())
            place = step
        parts = place.split("/") if place and make else []
        for count in range(1, len(parts) + 1):
            self.files.setdefault("/".join(parts[:count]), implied())
        return place

    def follow(self, place: str, part: str, hops: list[int]) -> str:
        hops[0] += 1
        if hops[0] > 40:
            raise Refused(HostileImage)
        text = self.files[f"{place}/{part}" if place else part].inside.decode()  # type: ignore[attr-defined]
        if text.startswith("/"):
            place = ""
        for step in text.split("/"):
            if step in ("", "."):
                continue
            if step == "..":
                if not place:
                    raise Refused(HostileImage)
                place = place.rpartition("/")[0]
                continue
            inode = self.files.get(f"{place}/{step}" if place else step)
            if inode is not None and inode.kind not in ("DIRECTORY", "SYMLINK"):
                raise Refused(HostileImage)
            is_link = inode is not None and inode.kind == "SYMLINK"
            place = self.follow(place, step, hops) if is_link else (f"{place}/{step}" if place else step)
        return place

    def describe(self) -> dict[str, tuple[object, ...]]:
        """In the form of `builders.layers.describe`."""
        firsts: dict[int, str] = {}
        out: dict[str, tuple[object, ...]] = {}
        for path in sorted(self.files, key=lambda text: text.encode().split(b"/")):
            inode = self.files[path]
            out[path] = (inode.kind, *inode.meta, inode.inside, firsts.setdefault(id(inode), path))
        return out


def implied() -> Inode:
    return Inode("DIRECTORY", ("0o755", 0, 0, 0, ()), implied=True)


def clean(name: str) -> str:
    return os.path.normpath("/" + name).lstrip("/")


PART = st.sampled_from(["a", "b", "c", "lib"])
PLAIN = st.lists(PART, min_size=1, max_size=4).map("/".join)
PATH = st.one_of(PLAIN, PLAIN, PLAIN.map(lambda path: "/" + path), PLAIN.map(lambda path: "lib/../" + path))
TARGET = st.one_of(
    PATH, PATH.map(lambda path: "/" + path), PATH.map(lambda path: "../" + path), st.just(".."), st.just("b/../a")
)
DATA = st.binary(max_size=3)
MODE = st.sampled_from([0o755, 0o700, 0o4711])
TIME = st.integers(0, 3)
ENTRY = st.one_of(
    st.builds(lambda path, data, mode, mtime: build.file(path, data, mode=mode, mtime=mtime), PATH, DATA, MODE, TIME),
    st.builds(build.file, PATH, DATA),
    st.builds(lambda path, mode, mtime: build.folder(path, mode=mode, mtime=mtime), PATH, MODE, TIME),
    st.builds(build.symlink, PATH, TARGET),
    st.builds(build.hard_link, PATH, PATH),
    st.builds(build.whiteout, PATH),
    st.builds(build.opaque, PATH),
)
STACK = st.lists(st.lists(ENTRY, max_size=8), min_size=1, max_size=5)


def unpack(stack: list[bytes]) -> dict[str, tuple[object, ...]] | type[KedgeError]:
    unpacker = Unpacker()
    try:
        for tar in stack:
            unpacker.apply(tar)
    except Refused as refused:
        return refused.kind
    return unpacker.describe()


def compare(stack: list[bytes]) -> None:
    expected = unpack(stack)
    if isinstance(expected, type):
        with pytest.raises(expected):
            flatten(sources(*stack), MemorySink())
        return
    found = describe(flatten(sources(*stack), MemorySink()))
    assert list(found) == list(expected)
    assert found == expected


def drop_refused(stack: list[list[bytes]]) -> list[bytes]:
    """The stack without the entries that make an image corrupt or hostile: most random hard links, for example."""
    kept: list[bytes] = []
    for entries in stack:
        good: list[bytes] = []
        for entry in entries:
            if not isinstance(unpack([*kept, build.layer(*good, entry)]), type):
                good.append(entry)
        kept.append(build.layer(*good))
    return kept


@settings(max_examples=100, deadline=None)
@given(STACK.map(lambda stack: [build.layer(*entries) for entries in stack]))
def test_flatten_refuses_and_accepts_what_unpacking_would(stack: list[bytes]) -> None:
    compare(stack)


@settings(max_examples=120, deadline=None)
@given(STACK.map(drop_refused))
def test_flatten_equals_unpacking_layer_by_layer(stack: list[bytes]) -> None:
    compare(stack)


NO_LINKS = st.lists(
    st.lists(
        st.one_of(
            st.builds(build.file, PATH, DATA),
            st.builds(build.folder, PATH),
            st.builds(build.whiteout, PATH),
            st.builds(build.opaque, PATH),
        ),
        max_size=12,
    ).map(lambda entries: build.layer(*entries)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(NO_LINKS)
def test_flatten_without_links_stores_nothing_that_does_not_show(stack: list[bytes]) -> None:
    compare(stack)
    sink = MemorySink()
    root = flatten(sources(*stack), sink)
    duplicates = any(
        len({clean(m.name) for m in members}) < len(members)
        for members in (tarfile.open(fileobj=io.BytesIO(tar)).getmembers() for tar in stack)
    )
    if not duplicates:
        shown = [node[6] for node in describe(root).values() if node[0] == "FILE" and node[6]]
        replaced = len(sink.stored) - len(shown)
        # a file over which its own layer puts something below it ("x", then "x/y") is the only thing stored in vain
        assert replaced >= 0
        if not any(has_file_as_parent(tar) for tar in stack):
            assert replaced == 0


def has_file_as_parent(tar: bytes) -> bool:
    members = tarfile.open(fileobj=io.BytesIO(tar)).getmembers()
    files = {clean(m.name) for m in members if not m.isdir()}
    return any(clean(m.name).startswith(tuple(f"{file}/" for file in files)) for m in members)
