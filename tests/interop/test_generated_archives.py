# SPDX-License-Identifier: BSD-3-Clause
"""Generated trees as the layers, layouts and archives that kedge writes, read by GNU tar, umoci and skopeo.

Needs root: owners, devices, trusted attributes.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from kedge.base.manifest import OCI_LAYER_GZIP, OCI_LAYER_TAR, OCI_LAYER_ZSTD
from kedge.base.platform import Platform
from kedge.image.formats.compression.streams import inflate
from kedge.image.formats.oci.stored_image import StoredImage
from kedge.image.formats.oci.writer import write_docker_archive, write_layout, write_oci_archive
from kedge.image.layers.flatten import flatten
from kedge.image.layers.tar_writer import write_layer
from tests.builders.generated_trees import Tree, expect, grow_tree
from tests.builders.image_judges import Unreadable, see_nodes
from tests.builders.judged_trees import Seen, extract_layers, scan_tree
from tests.builders.juries import Jury, each_tree
from tests.builders.layers import MemorySink, sources
from tests.builders.oci_images import store_layers
from tests.builders.skopeo import run_skopeo
from tests.builders.written_trees import make_nodes
from tests.requirements import require_program, require_root

pytestmark = [pytest.mark.root, pytest.mark.timeout(7200)]
BLOCKS = (512, 4096, 65536)  # of tar, of disks, of nobody
TYPES = {"gzip": OCI_LAYER_GZIP, "zstd": OCI_LAYER_ZSTD, "none": OCI_LAYER_TAR}


def write(seed: int, compressions: tuple[str, ...]) -> tuple[Tree, str, bytes, bytes]:
    """A tree; how it is compressed, its tar, and the blob."""
    rng = random.Random(f"archive {seed}")
    tree = grow_tree(rng, rng.choice(BLOCKS), plain=True)
    root = make_nodes(tree, {id(thing): thing.data or None for thing in tree.values()})
    out, compression = io.BytesIO(), rng.choice(compressions)
    done = write_layer(root, MemorySink(), out, compression, threads=rng.choice((1, 2, 8)))
    tar = b"".join(inflate(iter([out.getvalue()]), where="the layer"))
    assert done.size == len(out.getvalue())
    return tree, compression, tar, out.getvalue()


def read_by_tar(tar: bytes, place: Path) -> Seen:
    target = place / "extracted"
    try:
        extract_layers(target, [tar])
        return scan_tree(target)
    except subprocess.CalledProcessError as problem:
        raise Unreadable(f"tar: {problem}") from problem
    finally:
        shutil.rmtree(target, ignore_errors=True)


def read_by_kedge(tar: bytes) -> Seen:
    sink = MemorySink()
    return see_nodes(flatten(sources(tar), sink), sink)


@each_tree(30, 2000)
def test_layers_that_kedge_writes_are_what_the_tree_was(jury: Jury, seed: int, tmp_path: Path) -> None:
    require_root()
    tree, _, tar, _ = write(seed, ("gzip", "zstd", "none"))
    wanted = expect(tree)
    jury.compare(seed, "tar", wanted, lambda: read_by_tar(tar, tmp_path))
    jury.compare(seed, "kedge", wanted, lambda: read_by_kedge(tar))


def run(*argv: str | Path) -> None:
    done = subprocess.run(argv, capture_output=True, check=False, timeout=120)
    if done.returncode:
        raise Unreadable(f"{argv[0]} fails with {done.returncode}: {done.stderr[-300:]!r}")


def read_by_umoci(image: StoredImage, kind: str, place: Path) -> Seen:
    """Unpack a layout; archives are made layouts by skopeo first."""
    umoci, layout = require_program("umoci"), place / "layout"
    try:
        if kind == "oci":
            write_layout(layout, [image])
        else:
            with (place / "archive").open("w+b") as file:
                (write_oci_archive if kind == "oci-archive" else write_docker_archive)(file, [image])
            run_skopeo(place, "copy", f"{kind}:{place / 'archive'}", f"oci:{layout}:tree")
        run(umoci, "unpack", "--image", f"{layout}:tree", place / "bundle")
        return scan_tree(place / "bundle/rootfs")
    finally:
        for name in ("layout", "bundle"):
            shutil.rmtree(place / name, ignore_errors=True)


@each_tree(6, 300)
def test_layouts_and_archives_are_what_the_tree_was(jury: Jury, seed: int, tmp_path: Path) -> None:
    require_root()
    tree, compression, tar, blob = write(seed, ("gzip", "none"))  # umoci knows no others
    kind = ("oci", "oci-archive", "docker-archive")[seed % 3]
    tag = "docker.io/library/tree:1" if kind == "docker-archive" else "tree"
    given = {"tag": tag, "architecture": Platform.host().architecture}
    image = store_layers([tar], [blob], TYPES[compression], **given)
    jury.compare(seed, f"umoci, {kind}", expect(tree), lambda: read_by_umoci(image, kind, tmp_path))
