# SPDX-License-Identifier: BSD-3-Clause
"""Generated overlays of an ordinary user, files and partitions, as e2fsck and the kernel see them. Needs root."""

from __future__ import annotations

import random
import stat
import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import Runner
from tests.builders.generated_trees import EDGE_LENGTHS
from tests.builders.image_judges import mounted
from tests.builders.judged_trees import scan_tree
from tests.builders.juries import Jury, each_tree
from tests.builders.sif import build_sif
from tests.builders.sif_parser import PARTITION, parse_sif
from tests.builders.squashfs_images import write_image
from tests.requirements import require_program, require_root

pytestmark = [pytest.mark.root, pytest.mark.timeout(7200)]
NAMES = (
    *("opt", "two words", 'quote"d', "it's", "back\\slash", "#", "-x", "日本", "$HOME", "*", " lead", "trail "),
    *("a;b",),
)
ROOT_EXTRA = b"\1\0\0\0\2\0\0\0" + b"02\0"  # SquashFS, primary, amd64


def choose_folders(rng: random.Random) -> list[str]:
    """Paths for --create-dir, some of them below others."""
    found: list[str] = []
    for _ in range(rng.choice((0, 1, 3, 8))):
        name = rng.choice((*NAMES, "n" * rng.choice(EDGE_LENGTHS)))
        found.append(f"{rng.choice(found)}/{name}" if found and rng.random() < 0.5 else f"/{name}")
    return found


def see_overlay(image: Path, place: Path) -> dict[bytes, tuple[object, ...]]:
    """Mode and owner of all that is in the file system, which e2fsck must find in order."""
    done = subprocess.run([require_program("e2fsck"), "-fn", image], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    with mounted(image, place, require_program("mount"), "-o", "loop,ro") as point:
        return {name: each[:3] for name, each in scan_tree(point).items() if name not in (b"", b"lost+found")}


@each_tree(3, 100)
def test_overlays_are_in_order_and_have_what_was_asked_for(
    jury: Jury, seed: int, runner: Runner, tmp_path: Path
) -> None:
    require_root()
    require_program("mkfs.ext3")
    rng = random.Random(f"overlay {seed}")
    folders, size = choose_folders(rng), rng.choice((64, 65, 100, 127, 128, 129))
    is_partition, is_fake = rng.random() < 0.3, rng.random() < 0.5
    path = runner.home / ("image.sif" if is_partition else "image.img")
    path.unlink(missing_ok=True)
    if is_partition:
        path.write_bytes(build_sif([(PARTITION, write_image(), ROOT_EXTRA)]))
        runner_owns(runner, path)
    flags = [*(["--fakeroot"] if is_fake else []), *(["--sparse"] if not is_partition and rng.random() < 0.5 else [])]
    words = [f"--create-dir={folder}" for folder in folders]
    runner.read("overlay", "create", "--size", str(size), *flags, *words, str(path))
    bare = tmp_path / "bare.img"
    bare.write_bytes(parse_sif(path.read_bytes()).objects[-1].data if is_partition else path.read_bytes())
    assert bare.stat().st_size == size << 20
    owner = 0 if is_fake else runner.uid
    made = {"upper", "work"}
    for folder in folders:
        parts = folder.split("/")
        made |= {"upper" + "/".join(parts[:end]) for end in range(2, len(parts) + 1)}
    wanted = {name.encode(): (oct(stat.S_IFDIR | 0o755), owner, owner) for name in made}
    jury.tried["overlays"] += 1
    assert see_overlay(bare, tmp_path) == wanted


def runner_owns(runner: Runner, path: Path) -> None:
    subprocess.run([require_program("chown"), f"{runner.uid}:{runner.uid}", path], check=True)
