# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge pull` writes of odd layers, as the kernel sees it, beside what GNU tar extracts. Needs root.

How the other readers see what kedge writes: test_generated_images.py, test_generated_layers.py.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.formats.sif.reader import SifReader
from tests.builders import layers as build
from tests.builders.image_judges import DECORATION
from tests.builders.images import make_config, rich_layers
from tests.builders.judged_trees import SPARSE_SIZE, Seen, extract_layers, make_lengths_layer, make_odd_layer, scan_tree
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_root

pytestmark = pytest.mark.root

# The codecs of images that are written by calls are in test_squashfs_tools.py; here it is the way of a pull.
CODECS = ["zstd", *(pytest.param(codec, marks=pytest.mark.long) for codec in ("gzip", "lz4", "none"))]
# The decoration adds to the first three; no layer names the others when it changes them, so tar's clock is in them.
CHANGED = frozenset({b"", b"etc", b"tmp", b"data", b"data/full", b"lengths"})


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory for files of all owners and names, removed whatever is in it."""
    require_root()
    path = Path(tempfile.mkdtemp(prefix="kedge-judges-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def layers(place: Path) -> list[bytes]:
    return [*rich_layers(), make_odd_layer(place), make_lengths_layer()]


@pytest.fixture(scope="module")
def expected(place: Path, layers: list[bytes]) -> Seen:
    """What GNU tar makes of the layers."""
    extract_layers(place / "expected", layers)
    seen = scan_tree(place / "expected")
    assert len(seen) > 3500
    return seen


@pytest.fixture(scope="module")
def registry(layers: list[bytes]) -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        blobs = [build.compress(tar) for tar in layers]
        running.add_image("team/odd", "1", blobs, make_config(layers))
        yield running


@pytest.fixture(scope="module", params=CODECS)
def sif(request: pytest.FixtureRequest, registry: FakeRegistry, place: Path) -> Iterator[Path]:
    path = place / f"{request.param}.sif"
    kedge("pull", "--compress", request.param, path, f"docker://{registry.host}/team/odd:1", cache=place / "cache")
    yield path
    path.unlink()


@contextlib.contextmanager
def mount_partition(sif: Path, top: Path) -> Iterator[Path]:
    """Mount with the kernel's own SquashFS, at the partition's offset."""
    with sif.open("rb") as file:
        partition = SifReader(file).root_partition()
    top.mkdir()
    options = f"ro,loop,offset={partition.offset},sizelimit={partition.size}"
    done = subprocess.run(["mount", "-t", "squashfs", "-o", options, sif, top], capture_output=True, check=False)
    try:
        assert done.returncode == 0, done.stderr
        yield top
    finally:
        subprocess.run(["umount", top], capture_output=True, check=False)
        top.rmdir()


def compare(found: Seen, wanted: Seen) -> None:
    """Name the first differences instead of printing thousands of lines."""
    pairs = [(name, found.get(name, ("nothing",)), wanted[name]) for name in wanted if name not in CHANGED]
    wrong = [f"{name!r}: {one!r} where {other!r} belongs" for name, one, other in pairs if one != other]
    assert not wrong, "\n".join(wrong[:8])


def test_kernel_sees_what_gnu_tar_extracts(sif: Path, expected: Seen, place: Path) -> None:
    """Everything that the layers have is there and equal; what is there besides is what a container needs."""
    with mount_partition(sif, place / "kernel") as top:
        seen = scan_tree(top)
        read_pieces(top, place / "expected")
    more = sorted(set(seen) - set(expected))
    assert [name for name in more if not DECORATION.match(name)] == []
    assert b".singularity.d/runscript" in more
    compare(seen, expected)
    for name in (b"data", b""):
        assert seen[name][:3] == expected[name][:3]


def read_pieces(top: Path, extracted: Path) -> None:
    """The kernel reads pages, not files: pieces around block borders, mounted and extracted."""
    for size in (131071, 131072, 131073, 262144, 393221):
        for kind in ("noise", "text", "zero"):
            name = f"odd/sizes/{kind}-{size}"
            with (top / name).open("rb", 0) as one, (extracted / name).open("rb", 0) as other:
                for start in (0, 1, 4095, 131070, 131072, size - 1, size, size + 5):
                    one.seek(start)
                    other.seek(start)
                    assert one.read(4099) == other.read(4099), (name, start)
    assert (top / "odd/sizes/sparse").stat().st_size == SPARSE_SIZE


def test_sandbox_is_what_gnu_tar_extracts(registry: FakeRegistry, expected: Seen, place: Path) -> None:
    target = place / "sandbox"
    kedge("pull", "--sandbox", target, f"docker://{registry.host}/team/odd:1", cache=place / "cache")
    found = scan_tree(target)
    assert [name for name in set(found) - set(expected) if not DECORATION.match(name)] == []
    compare(found, expected)
