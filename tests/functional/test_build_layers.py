# SPDX-License-Identifier: BSD-3-Clause
"""The layers of a build: the same for root and a user, by the kernel's overlay, fuse-overlayfs and without overlays.

Which way a build takes depends on the node: an overlay cannot have its upper directory on another overlay, so there
fuse-overlayfs is used, and without that one private directory.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.formats.compression.streams import inflate
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, each_role, give_to, run_after
from tests.requirements import require_program
from tests.wording import assert_says

RECIPE = """FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
COPY --chown=1000:1001 busybox /opt/owned/file
RUN mkdir -p /data/a/b && echo one > /data/a/one && echo two > /data/two && chmod 4755 /bin/busybox
RUN rm -r /data/a && mkdir /data/a && echo new > /data/a/new && echo more >> /opt/owned/file && rm /data/two \\
 && mkdir /fresh /locked && echo 1 > /fresh/f && chmod 000 /fresh/f && echo x > /locked/x && chmod 000 /locked
RUN test "$(cat /data/a/new /fresh/f /locked/x | wc -l)" = 3 && test ! -e /data/a/one && test ! -e /data/two \\
 && rm -rf /fresh && touch /locked/y
RUN test -e /locked/y && test ! -e /fresh
RUN mkdir -m 1777 /tmp
USER 1002:1003
RUN touch /tmp/mine
"""
Member = tuple[str, str, int, int]


@pytest.fixture
def user() -> Iterator[Runner]:
    yield from each_role("user", is_warm=True)


@pytest.fixture(params=["user", "root"])
def anyone(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Real root gives files away for real, an ordinary user has it noted."""
    yield from each_role(request.param, is_warm=True)


def make_context(runner: Runner) -> Path:
    context = runner.home / "context"
    context.mkdir()
    (context / "busybox").write_bytes(read_busybox())
    (context / "busybox").chmod(0o755)
    (context / "Dockerfile").write_text(RECIPE)
    return give_to(runner, context)


def read_layers(layout: Path) -> list[list[tarfile.TarInfo]]:
    """The members of each layer of the image in an OCI layout, without links."""
    blobs = layout / "blobs/sha256"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    layers = []
    for layer in manifest["layers"]:
        data = b"".join(inflate(iter([(blobs / layer["digest"][7:]).read_bytes()]), where="layer"))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            layers.append([member for member in archive if not member.issym()])
    return layers


def list_layers(layout: Path) -> list[list[Member]]:
    """The same as names, modes and owners."""
    return [[(each.name, oct(each.mode), each.uid, each.gid) for each in layer] for layer in read_layers(layout)]


EXPECTED: list[list[Member]] = [
    [("bin", "0o755", 0, 0), ("bin/busybox", "0o755", 0, 0)],
    [("bin", "0o755", 0, 0)],
    [("opt", "0o755", 1000, 1001), ("opt/owned", "0o755", 1000, 1001), ("opt/owned/file", "0o755", 1000, 1001)],
    [
        ("bin", "0o755", 0, 0),
        ("bin/busybox", "0o4755", 0, 0),
        ("data", "0o755", 0, 0),
        ("data/a", "0o755", 0, 0),
        ("data/a/b", "0o755", 0, 0),
        ("data/a/one", "0o644", 0, 0),
        ("data/two", "0o644", 0, 0),
    ],
    [
        ("data", "0o755", 0, 0),
        ("data/.wh.two", "0o644", 0, 0),
        ("data/a", "0o755", 0, 0),
        ("data/a/.wh..wh..opq", "0o644", 0, 0),
        ("data/a/new", "0o644", 0, 0),
        ("fresh", "0o755", 0, 0),
        ("fresh/f", "0o0", 0, 0),
        ("locked", "0o0", 0, 0),
        ("locked/x", "0o644", 0, 0),
        ("opt", "0o755", 1000, 1001),
        ("opt/owned", "0o755", 1000, 1001),
        ("opt/owned/file", "0o755", 1000, 1001),
    ],
    [(".wh.fresh", "0o644", 0, 0), ("locked", "0o0", 0, 0), ("locked/y", "0o644", 0, 0)],
    [("tmp", "0o1777", 0, 0)],
    [("tmp", "0o1777", 0, 0), ("tmp/mine", "0o644", 1002, 1003)],
]


def hide_whole(layers: list[list[Member]]) -> list[list[Member]]:
    """Without overlays a directory made anew may have the inode of the old one: then its names are deleted singly."""
    opaque, single = "data/a/.wh..wh..opq", ("data/a/.wh.b", "data/a/.wh.one")
    changed = []
    for layer in layers:
        names = [member[0] for member in layer]
        one = [member for member in layer if member[0] not in single]
        if single[0] in names and opaque not in names:
            one.append((opaque, "0o644", 0, 0))
        changed.append(sorted(one))
    return changed


def test_build_layers_by_the_kernels_overlay(anyone: Runner) -> None:
    context = make_context(anyone)
    anyone.read("build", f"oci:{anyone.home}/out", str(context))
    assert list_layers(anyone.home / "out") == EXPECTED


@pytest.mark.root
@pytest.mark.parametrize("way", ["fuse-overlayfs", "private"])
def test_build_layers_without_the_kernels_overlay(user: Runner, way: str) -> None:
    if os.getuid() != 0:
        pytest.skip("needs real root")
    fuse = require_program("fuse-overlayfs")
    context = make_context(user)
    for name in ("lower", "upper", "work"):
        (user.folder / name).mkdir()
    node = user.folder / "node"
    options = ",".join(f"{name}dir={user.folder / name}" for name in ("lower", "upper", "work"))
    setup = f"mount -t overlay overlay -o {options} {node} && chown {user.uid}:{user.uid} {node} && chmod 700 {node}"
    if way == "private":
        setup += f" && mount --bind /dev/null {fuse}"
    done = run_after(setup, user, "build", "-v", f"oci:{user.home}/out", str(context))
    assert done.returncode == 0, done.stdout + done.stderr
    # a file system on which nobody can mark deletions: once there are some, fuse-overlayfs is of no use either
    reason = "cannot mark deleted files" if way == "fuse-overlayfs" else ""
    assert_says(done.stderr.replace("this host ", ""), "build/steps-run-private-directories", reason)
    assert hide_whole(list_layers(user.home / "out")) == hide_whole(EXPECTED)
    assert not list(node.glob("builds/*"))
