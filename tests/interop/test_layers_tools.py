# SPDX-License-Identifier: BSD-3-Clause
"""Sandboxes of ours against what `umoci unpack` makes of the same layers, as root: owners, devices, all."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from kedge.base.tree import NodeKind, walk
from kedge.image.layers.directory_tree import read_folder
from kedge.image.layers.flatten import flatten
from kedge.image.layers.sandbox import SandboxSink
from kedge.system.confined_paths import remove_tree
from tests.builders.apptainer import apptainer_folder
from tests.builders.images import make_config
from tests.builders.layers import (
    compress,
    device,
    fifo,
    file,
    folder,
    hard_link,
    layer,
    opaque,
    pax,
    sources,
    symlink,
    whiteout,
)
from tests.requirements import require_program, require_root

pytestmark = pytest.mark.root

CAPABILITY = b"\x01\0\0\x02\0\x04\0\0" + bytes(12)


def make_layout(path: Path, tars: list[bytes], config: bytes | None = None, *, is_packed: bool = True) -> str:
    """An OCI layout with one image, as umoci wants it; the name of the image."""
    (path / "blobs/sha256").mkdir(parents=True)

    def put(data: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (path / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    blobs = [put(compress(tar), "layer.v1.tar+gzip") if is_packed else put(tar, "layer.v1.tar") for tar in tars]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    manifest |= {"config": put(config or make_config(tars, {}), "config.v1+json"), "layers": blobs}
    entry = put(json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "test"}
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return f"{path}:test"


def unpack_with_umoci(place: Path, tars: list[bytes]) -> Path:
    umoci = require_program("umoci")
    image = make_layout(place / "layout", tars)
    done = subprocess.run([umoci, "unpack", "--image", image, place / "bundle"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / "bundle/rootfs"


def unpack(target: Path, tars: list[bytes]) -> Path:
    with SandboxSink(target) as sink:
        sink.finish(flatten(sources(*tars, compressed=True), sink))
    return target


def read_back(path: Path) -> dict[str, tuple[object, ...]]:
    """All that can be seen of a directory; which names are one file is told by the first of them."""
    root, source = read_folder(path)
    firsts: dict[int, str] = {}
    out: dict[str, tuple[object, ...]] = {}
    for raw, node in walk(root):
        name = raw.decode()
        data = b"".join(source.chunks(node)) if node.kind is NodeKind.FILE else node.target
        first = firsts.setdefault(id(node), name)
        out[name] = (
            node.kind.name,
            oct(node.mode),
            node.uid,
            node.gid,
            (node.mtime, node.nanoseconds),
            node.xattrs,
            node.rdev,
            data,
            first,
        )
    return out


def compare(place: Path, tars: list[bytes]) -> list[str]:
    require_root()
    try:
        expected = read_back(unpack_with_umoci(place, tars))
        found = read_back(unpack(place / "ours", tars))
        assert list(found) == list(expected)
        for name in expected:
            assert found[name] == expected[name], name
        return list(found)
    finally:
        remove_tree(place)


def test_umoci_agrees_on_every_rule(tmp_path: Path) -> None:
    base = layer(
        folder("bin", mode=0o555, mtime=1),
        file("bin/su", b"su", mode=0o4755, owner=(0, 3), mtime=2),
        file("bin/ping", b"ping", mode=0o755, xattrs={b"security.capability": CAPABILITY}, mtime=3),
        hard_link("bin/ping6", "bin/ping"),
        folder("usr", mtime=4),
        folder("usr/lib", mtime=5),
        file("usr/lib/old", b"old", mtime=6),
        symlink("lib", "usr/lib", mtime=7),
        folder("etc", mtime=8),
        file("etc/a", b"a", mtime=9, owner=(1000, 1000)),
        file("etc/b", b"b", mtime=10),
        folder("var", mtime=11),
        folder("var/cache", mtime=12),
        file("var/cache/x", b"x", mtime=13),
        folder("swap", mtime=14),
        file("swap/inner", b"i", mtime=15),
        file("paws", b"file", mtime=16),
        device("null", 1, 3, mode=0o666, mtime=17),
        device("disk", 8, 1, b"4", mode=0o660, mtime=18),
        fifo("pipe", mtime=19),
        symlink("dangling", "../../nowhere", mtime=20),
    )
    middle = layer(
        folder("etc", mode=0o700, mtime=21),
        whiteout("etc/a"),
        hard_link("etc/c", "etc/b"),
        folder("var", mtime=22),
        folder("var/cache", mtime=23),
        opaque("var/cache"),
        file("var/cache/y", b"y", mtime=24),
        file("swap", b"now a file", mtime=25),
        folder("paws", mtime=26),
        file("paws/new", b"n", mtime=27),
    )
    top = layer(
        folder("etc", mode=0o711, mtime=31),
        file("etc/a", b"again", mtime=32),
        file("lib/through", b"t", mtime=33),
        whiteout("lib/old"),
        folder("usr", mtime=34),
        folder("usr/lib", mtime=35),
        folder("bin", mode=0o555, mtime=36),
        file("bin/ping", b"new ping", mtime=37),
    )
    compare(tmp_path, [base, middle, top])


def test_umoci_agrees_on_times(tmp_path: Path) -> None:
    times = [b"1.5", b"1700000000.123456789", b"5000000000.000000001", b"9000000000.25"]  # the last is of the year 2255
    timed = [pax({b"mtime": text}) + file(f"f{place}", b"x") for place, text in enumerate(times)]
    assert compare(tmp_path, [layer(*timed, pax({b"mtime": b"7.75"}) + folder("d"))])


def odd_names() -> dict[str, list[bytes]]:
    """Names that tools write and that Apptainer and umoci accept; folders are named, for their times to be compared."""
    low = layer(folder("etc", mtime=1), file("etc/a", b"a", mtime=2), folder("d", mtime=3), folder("d/e", mtime=4))
    way = "/".join("d" * 300)
    deep = [folder(way[:length], mtime=5) for length in range(1, len(way) + 1, 2)]
    return {
        "absolute": [
            layer(
                folder("/nix", mtime=1),
                folder("/nix/store", mtime=2),
                file("/nix/store/x", b"1", mtime=3),
                file("//y", b"2", mtime=4),
                symlink("/s", "/nix/store", mtime=5),
                hard_link("/h", "/nix/store/x"),
            ),
            layer(file("/nix/store/.wh.x"), file("/s/z", b"3", mtime=6), folder("/nix/store", mtime=7)),
        ],
        "dots": [
            low,
            layer(
                file("d/e/../c", b"c", mtime=5),
                file("no/../f", b"f", mtime=6),
                hard_link("h", "d/no/../c"),
                folder("d/e/..", mtime=7),
            ),
        ],
        "dots after a link": [low, layer(symlink("l", "d/e", mtime=5), file("l/../c", b"c", mtime=6))],
        "dangling parents": [
            layer(
                symlink("l", "nowhere/deep", mtime=1), symlink("m", "/no/../where", mtime=2), symlink("n", "l", mtime=3)
            ),
            layer(
                file("l/x", b"1", mtime=4),
                folder("m/sub", mtime=5),
                file("m/sub/y", b"2", mtime=6),
                file("n/z", b"3", mtime=7),
                folder("nowhere/deep", mtime=8),
                folder("nowhere", mtime=9),
                folder("where", mtime=10),
            ),
        ],
        "deep": [layer(*deep, file(f"{way}/x", b"1", mtime=6), folder(way, mtime=7))],
        "links to what is hidden": [
            low,
            layer(hard_link("h", "etc/a"), whiteout("etc/a"), folder("etc", mtime=5)),
            layer(hard_link("i", "h"), file("h", b"new", mtime=6)),
        ],
    }


@pytest.mark.parametrize("kind", odd_names())
def test_umoci_agrees_on_names_that_are(kind: str, tmp_path: Path) -> None:
    assert compare(tmp_path, odd_names()[kind])


@pytest.mark.peer
@pytest.mark.long  # umoci agrees on them in the normal run
def test_apptainer_agrees_on_odd_names(tmp_path: Path) -> None:
    """All kinds in one start of its tree."""
    kinds = odd_names()
    with apptainer_folder() as peer:
        for number, tars in enumerate(kinds.values()):
            make_layout(peer.own(peer.folder) / f"layout{number}", tars)
        words = [
            ("build", "--sandbox", f"box{number}", f"oci:{peer.folder}/layout{number}") for number in range(len(kinds))
        ]
        assert [status for status, _ in peer.answer(*words)] == [0] * len(kinds)
        for number, (kind, tars) in enumerate(kinds.items()):
            box, ours = peer.folder / f"box{number}", tmp_path / f"ours{number}"
            try:
                compare_names(kind, read_back(unpack(ours, tars)), read_back(box))
            finally:
                remove_tree(ours)
                remove_tree(box)


def compare_names(kind: str, expected: dict[str, tuple[object, ...]], found: dict[str, tuple[object, ...]]) -> None:
    """The same files; besides, Apptainer adds what its containers need."""
    for name, (made, *_, data, first) in expected.items():
        assert (found[name][0], found[name][-2:]) == (made, (data, first)), (kind, name)
    added = {name.split("/")[0] for name in found} - {name.split("/")[0] for name in expected}
    own = {"dev", "environment", "etc", "home", "proc", "root", "singularity", "sys", "tmp", "var"}
    assert {name for name in added if not name.startswith(".")} <= own, kind
