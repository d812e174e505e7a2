# SPDX-License-Identifier: BSD-3-Clause
"""Generated layers through every command that writes an image, as unsquashfs, squashfuse, the kernel and we see it.

pull, convert, build, commit, from and to SIF, SquashFS, directories, layouts and archives, overlays of both kinds.
Needs root: owners, devices, mounts.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.generated_layers import write_tar, write_tars
from tests.builders.generated_trees import Tree, expect
from tests.builders.image_judges import DECORATION, see_by_kedge, see_by_kernel, see_by_unsquashfs
from tests.builders.images import make_config
from tests.builders.judged_trees import Seen, extract_layers
from tests.builders.juries import Jury, each_tree
from tests.builders.sif_parser import parse_sif
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program, require_root

pytestmark = [pytest.mark.root, pytest.mark.timeout(7200)]
BLOCK = 131072


class Factory:
    """One image by each way that there is, in a directory that is emptied between them."""

    def __init__(self, registry: FakeRegistry, place: Path) -> None:
        self._registry = registry
        self._cache = place / "cache"
        self.place = place / "work"
        self.ways = (self.pull, self.archive, self.layout, self.sandbox, self.pack_again, self.definition,
                     self.dockerfile, self.commit, self.commit_ext3, self.processes)  # fmt: skip

    def make(self, seed: int, tars: list[bytes], tree: Tree) -> Path:
        """An image of these layers, by the way whose turn it is."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        self._rng = random.Random(f"way {seed}")
        self._result = self.place / self._rng.choice(("image.sif", "image.sqsh"))
        self._packing = ("--threads", self._rng.choice("1238"), "--compress", self._rng.choice(("zstd", "gzip", "lz4")))
        self._registry.add_image("team/tree", str(seed), [build.compress(tar) for tar in tars], make_config(tars, {}))
        self._source = f"docker://{self._registry.host}/team/tree:{seed}"
        self._tree = tree
        self.ways[seed % len(self.ways)]()
        return self._result

    def _kedge(self, *words: str | Path) -> None:
        kedge(*words, cache=self._cache, cwd=self.place)

    def pull(self) -> None:
        self._kedge("pull", *self._packing, self._result, self._source)

    def archive(self) -> None:
        name = self._rng.choice(("docker-archive:a.tar", "oci-archive:a.tar"))
        self._kedge("pull", name, self._source)
        self._kedge("convert", *self._packing, name, self._result)

    def layout(self) -> None:
        self._kedge("pull", "oci:layout:1", self._source)
        self._kedge("convert", *self._packing, "oci:layout:1", self._result)

    def sandbox(self) -> None:
        self._kedge("pull", "--sandbox", "box", self._source)
        self._kedge("convert", *self._packing, "box", self._result)

    def pack_again(self) -> None:
        self._kedge("pull", "--compress", "none", "first.sif", self._source)
        self._kedge("convert", *self._packing, "first.sif", self._result)

    def definition(self) -> None:
        self._kedge("pull", "docker-archive:a.tar", self._source)
        (self.place / "x.def").write_text("Bootstrap: docker-archive\nFrom: a.tar\n")
        self._kedge("build", *self._packing[2:], self._result, "x.def")

    def dockerfile(self) -> None:
        (self.place / "context").mkdir()
        (self.place / "context/Dockerfile").write_text(f"FROM {self._source.removeprefix('docker://')}\nENV A=b\n")
        self._kedge("build", *self._packing[2:], self._result, "context")

    def commit(self) -> None:
        """As if a program had written all of it over a small base."""
        self._make_base()
        (self.place / "overlay/work").mkdir(parents=True)
        extract_layers(self.place / "overlay/upper", [write_tar(self._rng, self._tree)])
        self._kedge("commit", *self._packing[2:], "--base", "base.sqsh", "overlay", self._result)

    def commit_ext3(self) -> None:
        self._make_base()
        self._kedge("overlay", "create", "overlay.img")
        point, tree = self.place / "point", self.place / "tree"
        point.mkdir()
        extract_layers(tree, [write_tar(self._rng, self._tree)])
        # in a namespace of its own: a copy of the mount in that of another test would keep it half written
        script = 'mount -o loop "$1" "$2" && rmdir "$2/upper" && cp -a "$3" "$2/upper" && umount "$2"'
        words = [require_program("unshare"), "--mount", "sh", "-ec", script, "sh"]
        subprocess.run([*words, self.place / "overlay.img", point, tree], check=True)
        check = [require_program("e2fsck"), "-fn", self.place / "overlay.img"]
        subprocess.run(check, check=True, capture_output=True)
        self._kedge("commit", *self._packing[2:], "--base", "base.sqsh", "overlay.img", self._result)

    def _make_base(self) -> None:
        tar = build.layer(build.folder("base"), build.file("base/file", b"below"))
        self._registry.add_image("team/base", "1", [build.compress(tar)], make_config([tar], {}))
        self._kedge("pull", "base.sqsh", f"docker://{self._registry.host}/team/base:1")

    def processes(self) -> None:
        self._kedge("pull", "--threads", "8", *self._packing[2:], self._result, self._source)


def strip(seen: Seen, tree: Tree) -> Seen:
    """Without the root, which commands add to, and what a container needs besides."""
    return {
        name: each
        for name, each in seen.items()
        if name and (name in tree or not (DECORATION.match(name) or name in (b"base", b"base/file")))
    }


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[Factory]:
    require_root()
    with FakeRegistry() as registry:
        yield Factory(registry, tmp_path)
    shutil.rmtree(tmp_path / "work")


def take_out(image: Path) -> Path:
    """The file system of an image, as a file of its own."""
    if image.suffix == ".sif":
        bare = image.with_suffix(".taken")
        bare.write_bytes(parse_sif(image.read_bytes()).primary.data)
        return bare
    return image


@each_tree(10, 500)  # there are ten ways
def test_images_of_all_commands_are_what_their_layers_were(jury: Jury, seed: int, factory: Factory) -> None:
    tars, tree = write_tars(random.Random(f"image {seed}"), BLOCK)
    image = take_out(factory.make(seed, tars, tree))
    wanted = strip(expect(tree), tree)
    readers: dict[str, Callable[[], Seen]] = {
        "kedge": lambda: see_by_kedge(image),
        "unsquashfs": lambda: see_by_unsquashfs(image, factory.place),
        "kernel": lambda: see_by_kernel(image, factory.place),
    }
    for name, see in readers.items():
        jury.compare(seed, name, wanted, lambda see=see: strip(see(), tree))  # type: ignore[misc]
