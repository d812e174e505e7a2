# SPDX-License-Identifier: BSD-3-Clause
"""Layers by seed, as tars of several kinds, and the tree that they mean: whiteouts, opaque folders, links, holes.

Nothing here uses kedge; `tests/builders/layers.py` makes the bytes of each member.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator

from tests.builders import layers as build
from tests.builders.generated_trees import Thing, Tree, grow_tree

_FLAGS = {stat.S_IFREG: b"0", stat.S_IFLNK: b"2", stat.S_IFCHR: b"3", stat.S_IFBLK: b"4", stat.S_IFDIR: b"5",
          stat.S_IFIFO: b"6"}  # fmt: skip


def write_tars(rng: random.Random, block: int) -> tuple[list[bytes], Tree]:
    """The tars, lowest first, and what they are together."""
    tree: Tree = {b"": Thing(stat.S_IFDIR, 0o755)}
    tars = []
    for number in range(rng.choice((1, 1, 2, 3, 4))):
        tree, tar = _add_layer(rng, tree, grow_tree(rng, block, plain=True), is_first=not number)
        tars.append(tar)
    return tars, tree


def write_tar(rng: random.Random, tree: Tree) -> bytes:
    """A tree as one layer, directory after directory: GNU tar leaves each with its time then."""
    return build.layer(*_write_members(rng, dict(sorted(tree.items(), key=lambda item: item[0].split(b"/")))))


def _add_layer(rng: random.Random, below: Tree, own: Tree, *, is_first: bool) -> tuple[Tree, bytes]:
    """A layer over a tree: what it hides, what it brings, and a few names that stand below already."""
    parts: list[bytes] = []
    tree = dict(below)
    if not is_first:
        _replace_some(rng, below, own)
        hidden = _hide_some(rng, below, own)
        for path in hidden:
            is_opaque = path in own and own[path].is_folder
            parts.append(build.opaque(path) if is_opaque else build.whiteout(path))
            _remove(tree, path, keep_itself=is_opaque)
    elif rng.random() < 0.5:
        own.pop(b"")  # a root that no layer names
    for path, thing in own.items():
        known = tree.get(path)
        if path and known is not None and not (known.is_folder and thing.is_folder):
            _remove(tree, path, keep_itself=False)
        tree[path] = thing
    if not is_first and b"" in own:
        tree[b""] = own[b""]
    members = list(_write_members(rng, own))
    if rng.random() < 0.5:
        return tree, build.layer(*parts, *members)  # what is hidden may be said before or after the rest
    return tree, build.layer(*members, *parts)


def _replace_some(rng: random.Random, below: Tree, own: Tree) -> None:
    """Give some things of the layer names that lower layers have: file over file, file over folder, and so on."""
    for path in rng.sample(sorted(below), min(3, len(below))):
        parent = path.rpartition(b"/")[0]
        if not path or path in own or parent not in own or not own[parent].is_folder:
            continue
        others = [thing for thing in own.values() if not thing.is_folder]
        if others and rng.random() < 0.7:
            own[path] = rng.choice(others)
        elif below[path].is_folder:
            own[path] = Thing(stat.S_IFDIR, 0o700, mtime=5)


def _hide_some(rng: random.Random, below: Tree, own: Tree) -> list[bytes]:
    """Paths of lower layers that the layer hides; a folder that it names too is opaque, and what it names stays."""
    found = []
    for path in rng.sample(sorted(below), min(rng.choice((0, 1, 3)), len(below))):
        name = path.rpartition(b"/")[2]
        parents = [path[:place] for place in range(len(path)) if path[place : place + 1] == b"/"]
        is_named = path in own and not own[path].is_folder
        if path and len(name) < 251 and not is_named and all(below[each].is_folder for each in parents):
            found.append(path)
    kept = [path for path in found if path in own or not any(each.startswith(path + b"/") for each in own)]
    # what is hidden below something else that is hidden, or below what the layer replaces, is of no use
    return [
        p for p in kept if not any(p.startswith(q + b"/") for q in (*kept, *(x for x in own if not own[x].is_folder)))
    ]


def _remove(tree: Tree, path: bytes, *, keep_itself: bool) -> None:
    for name in [name for name in tree if name.startswith(path + b"/") or (name == path and not keep_itself)]:
        del tree[name]


def _write_members(rng: random.Random, own: Tree) -> Iterator[bytes]:
    """The members of a tar; a thing that was written before is a hard link to it."""
    firsts: dict[int, bytes] = {}
    for path, thing in own.items():
        first = firsts.setdefault(id(thing), path)
        if first != path:
            yield _write_member(rng, path, Thing(stat.S_IFREG, target=first), b"1")
            continue
        yield _write_member(rng, path, thing, _FLAGS[thing.kind])


def _write_member(rng: random.Random, path: bytes, thing: Thing, flag: bytes) -> bytes:
    name = (path + b"/" if path else b"./") if flag == b"5" else path
    records = {b"SCHILY.xattr." + key: value for key, value in thing.xattrs.items()}
    fields: dict[int, bytes] = {}
    for place, key, value in ((108, b"uid", thing.uid), (116, b"gid", thing.gid)):
        if value >= 1 << 21 and rng.random() < 0.5:
            records[key] = b"%d" % value
        elif value >= 1 << 21:
            fields[place] = b"\x80" + value.to_bytes(7, "big")
    if thing.rdev:
        fields |= {329: _number(os.major(thing.rdev)), 337: _number(os.minor(thing.rdev))}
    data, size = thing.data, len(thing.data)
    if flag == b"0" and size > 512 and rng.random() < 0.3:
        records, data = _make_sparse(rng, records, name, data)
        size = len(data)
    long_names = b""
    for text, key, kind in ((name, b"path", b"L"), (thing.target, b"linkpath", b"K")):
        if len(text) > 100:
            if rng.random() < 0.5 and key not in records:
                long_names += build.long_name(text, kind)
            else:
                records[key] = text
    owner = (thing.uid if thing.uid < 1 << 21 else 0, thing.gid if thing.gid < 1 << 21 else 0)
    block = build.header(name, flag, size=size, mode=thing.mode, owner=owner, mtime=thing.mtime, link=thing.target,
                         fields=fields)  # fmt: skip
    return (build.pax(records) if records else b"") + long_names + block + build.padded(data)


def _number(value: int) -> bytes:
    return build.octal(value, 8)


def _make_sparse(
    rng: random.Random, records: dict[bytes, bytes], name: bytes, data: bytes
) -> tuple[dict[bytes, bytes], bytes]:
    """A file as `tar --sparse` stores it (PAX form 1.0 or 0.1): a map, and what is no hole, in steps of 512."""
    pieces: list[list[int]] = []
    for start in range(0, len(data), 512):
        part = data[start : start + 512]
        if not any(part):
            continue
        if pieces and pieces[-1][0] + pieces[-1][1] == start and rng.random() < 0.95:
            pieces[-1][1] += len(part)
        else:
            pieces.append([start, len(part)])
    stored = b"".join(data[offset : offset + length] for offset, length in pieces)
    pieces.append([len(data), 0])  # as GNU tar ends a map
    if rng.random() < 0.5:
        told = {b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0", b"GNU.sparse.name": name,
                b"GNU.sparse.realsize": b"%d" % len(data)}  # fmt: skip
        text = b"%d\n" % len(pieces) + b"".join(b"%d\n%d\n" % (offset, length) for offset, length in pieces)
        return {**records, **told}, build.padded(text) + stored
    numbers = b",".join(b"%d,%d" % (offset, length) for offset, length in pieces)
    told = {b"GNU.sparse.size": b"%d" % len(data), b"GNU.sparse.numblocks": b"%d" % len(pieces),
            b"GNU.sparse.map": numbers, b"GNU.sparse.name": name}  # fmt: skip
    return {**records, **told}, stored
