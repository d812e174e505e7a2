# SPDX-License-Identifier: BSD-3-Clause
"""Bases with all that a file system can hold: built on, in every format, as an ordinary user and as root.

A step that changes little must leave all of it as the base has it, also what an ordinary user cannot make.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import NodeKind, walk
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.squashfs.reader import SquashReader
from tests.builders import layers as build
from tests.builders.builds import Workshop
from tests.builders.busybox import read_busybox
from tests.builders.containers import APPLETS, each_role
from tests.builders.images import make_config
from tests.builders.old_kernels import play_refusals
from tests.fakes.registry import FakeRegistry

LONG_NAME = "n" * 255
DEEP = "/".join(["deep", *("d" * 240 for _ in range(16))])  # 3,860 bytes
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw+ep
ODD = "odd/\udcff\udcfe x"
HOLE = 1 << 20

Described = dict[str, tuple[object, ...]]


def sparse_file(name: str, size: int, tail: bytes) -> bytes:
    """A file of a hole and some bytes, as GNU tar writes it."""
    place = b"%011o\0%011o\0" % (size - len(tail), len(tail))
    fields = {257: b"ustar  \0", 386: place, 483: b"%011o\0" % size}
    return build.header(name.encode(), b"S", size=len(tail), fields=fields) + build.padded(tail)


def make_layers() -> list[bytes]:
    """Two layers, the second of which takes from the first and links to it."""
    parts = DEEP.split("/")
    return [
        build.layer(
            build.folder("bin"),
            build.file("bin/busybox", read_busybox(), mode=0o755),
            *(build.symlink(f"bin/{name}", "busybox") for name in APPLETS),
            build.folder("odd", owner=(1000, 100)),
            build.device("odd/null", 1, 3, mode=0o666),
            build.device("odd/disk", 8, 0, b"4", mode=0o660, owner=(0, 6)),
            build.fifo("odd/pipe", mode=0o600),
            build.file("odd/su", b"su", mode=0o4755),
            build.file("odd/sg", b"sg", mode=0o2755, owner=(0, 42)),
            build.file("odd/ping", b"ping", mode=0o755, xattrs={b"security.capability": CAPABILITY}),
            build.file("odd/noted", b"noted", xattrs={b"user.note": b"\x00\xff"}),
            build.file("odd/one", b"one"),
            build.hard_link("odd/two", "odd/one"),
            build.file(ODD.encode(errors="surrogateescape"), b"not UTF-8"),
            build.file(f"odd/{LONG_NAME}", b"long"),
            *(build.folder("/".join(parts[: count + 1])) for count in range(len(parts))),
            build.file(f"{DEEP}/f", b"deep"),
            sparse_file("odd/sparse", HOLE, b"end"),
            build.folder("opaque"),
            build.file("opaque/below", b"hidden"),
            build.file("gone", b"gone"),
            build.folder("sticky", mode=0o1777),
        ),
        build.layer(
            build.hard_link("odd/three", "odd/one"),
            build.whiteout("gone"),
            build.whiteout("never/was"),
            build.folder("opaque"),
            build.opaque("opaque"),
            build.file("opaque/above", b"seen"),
            build.file(".wh..wh.plnk", b""),
            build.file(".wh..wh.aufs", b""),
        ),
    ]


WAYS = pytest.mark.parametrize(
    ("shop", "way"),
    [*(("user", "overlay"), ("user", "directory"), ("root", "overlay")),
     pytest.param("root", "directory", marks=pytest.mark.long)],  # each of the two is there once before
    indirect=True,
)  # fmt: skip


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    for runner in each_role(request.param, is_warm=True):
        yield Workshop.open(runner, knows="")


@pytest.fixture
def way(request: pytest.FixtureRequest, shop: Workshop) -> dict[str, str]:
    if request.param == "overlay":
        return {}
    return play_refusals(shop.runner.folder, "overlay", "fuse.fuse-overlayfs", "in children")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        tars = make_layers()
        section = {"Env": ["PATH=/bin"], "WorkingDir": "/not/there"}
        made.add_image("odd/base", "1", [build.compress(tar) for tar in tars], make_config(tars, section))
        yield made


def describe_sif(path: Path) -> Described:
    """All files of a SIF, without those that say how it was made."""
    described: Described = {}
    firsts: dict[int, bytes] = {}
    file = io.BytesIO(path.read_bytes())
    partition = SifReader(file, str(path)).root_partition()
    with SquashReader(file, partition.offset, partition.size) as reader:
        for name, node in walk(reader.read_tree()):
            text = name.decode(errors="surrogateescape")
            if text.startswith((".singularity.d", "environment", "singularity", ".run", ".exec", ".shell", ".test")):
                continue
            data = b"".join(reader.chunks(node)) if node.kind is NodeKind.FILE else b""
            first = firsts.setdefault(id(node), name)
            meta = (node.kind.name, oct(node.mode), node.uid, node.gid, node.rdev, node.target, node.xattrs)
            described[text] = (*meta, hashlib.sha256(data).hexdigest()[:12], len(data), first)
    return described


RECIPE = (
    "FROM {}/odd/base:1\nRUN echo new > /odd/new && pwd > /where && cat /{}/f /odd/{} > /read\nCOPY busybox /odd/b\n"
)


@WAYS
def test_a_step_leaves_the_odd_files_of_its_base_alone(
    shop: Workshop, registry: FakeRegistry, way: dict[str, str]
) -> None:
    shop.write("Dockerfile", RECIPE.format(registry.host, DEEP, LONG_NAME))
    plain = shop.runner.home / "plain.sif"
    shop.runner.read("pull", str(plain), f"docker://{registry.host}/odd/base:1")
    shop.build("../out.sif", ".", env=way)
    before, after = describe_sif(plain), describe_sif(shop.runner.home / "out.sif")
    added = {"odd/new", "odd/b", "where", "read", "not", "not/there"}
    assert set(after) - set(before) == added
    assert {path: value for path, value in after.items() if path not in added} == before
    assert shop.read("../out.sif", "/where") == "/not/there\n"
    assert after["odd/null"][:5] == ("CHARACTER_DEVICE", "0o666", 0, 0, before["odd/null"][4])
    assert before["odd/one"][-1] == before["odd/three"][-1]
    assert "opaque/below" not in after
    assert after["odd/ping"][6]


@pytest.mark.parametrize(
    ("shop", "forms"),
    [("user", ("sandbox", "oci", "oci-archive", "docker-archive")), ("root", ("sandbox",))],  # it may make devices
    indirect=["shop"],
)
def test_formats_hold_the_same_files(shop: Workshop, registry: FakeRegistry, forms: tuple[str, ...]) -> None:
    shop.write("Dockerfile", RECIPE.format(registry.host, DEEP, LONG_NAME))
    home = shop.runner.home
    shop.build("../out.sif", ".")
    wanted = describe_sif(home / "out.sif")
    for form in forms:
        shop.build("--format", form, f"../{form}", ".")
        shop.build("--force", "../back.sif", f"../{form}" if form == "sandbox" else f"{form}:{home}/{form}")
        got = describe_sif(home / "back.sif")
        if form != "sandbox":
            assert got == wanted, form
            continue
        names = {path for path, value in wanted.items() if not str(value[0]).endswith("DEVICE")}
        assert names <= set(got)
        assert {path: got[path][-3:-1] for path in names} == {path: wanted[path][-3:-1] for path in names}


@pytest.mark.parametrize(("shop", "way"), [("user", "overlay"), ("user", "directory")], indirect=True)
def test_files_of_the_base_are_changed_and_removed(shop: Workshop, registry: FakeRegistry, way: dict[str, str]) -> None:
    shop.write(
        "Dockerfile",
        f"FROM {registry.host}/odd/base:1\nRUN rm /odd/null /odd/pipe /odd/{LONG_NAME} && chmod 700 /odd/su && "
        f"rm -r /deep/{'d' * 240} && cat /odd/s* > /dev/null && echo more >> /odd/noted && rm /odd/one\n"
        "RUN [ $(cat /odd/three) = one ] && [ $(cat /odd/noted) = notedmore ] && ls -R / | wc -l\n",
    )
    shop.build("../out.sif", ".", env=way)
    after = describe_sif(shop.runner.home / "out.sif")
    assert not {"odd/null", "odd/pipe", f"odd/{LONG_NAME}", "odd/one", f"{DEEP}/f"} & set(after)
    assert after["odd/su"][1] == "0o700"
    assert after["odd/two"][-3:-1] == after["odd/three"][-3:-1]
    assert after["odd"][2:4] == (1000, 100)
    assert after["odd/noted"][6]
