# SPDX-License-Identifier: BSD-3-Clause
"""Generated trees in SIF files, as a container of the real Apptainer sees them: every file's content, every name.

Needs root and the Apptainer tree (marker: peer).
"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from kedge.image.formats.sif.writer import SifBuilder
from tests.builders.apptainer import Apptainer
from tests.builders.busybox import read_busybox
from tests.builders.generated_trees import Thing, Tree, grow_tree
from tests.builders.juries import Jury, each_tree
from tests.builders.written_trees import Trial, write_by_calls

pytestmark = [pytest.mark.peer, pytest.mark.root, pytest.mark.timeout(7200)]
LOOK = "find t -type f -print0 | xargs -0 sha256sum | grep -oE '^[0-9a-f]{64}  '; find t -print0 | tr -cd '\\0' | wc -c"


def grow_container(trial: Trial) -> Tree:
    """A tree that an ordinary user may read all of, below `t`, with busybox beside it."""
    tree: Tree = {b"": Thing(stat.S_IFDIR, 0o755), b"t": Thing(stat.S_IFDIR, 0o755)}
    tree |= {b"bin": Thing(stat.S_IFDIR, 0o755), b"bin/busybox": Thing(stat.S_IFREG, 0o755, data=read_busybox())}
    for path, thing in grow_tree(trial.rng, trial.block, plain=True).items():
        if path and thing.kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            thing.mode |= 0o555
            tree[b"t/" + path] = thing
    return tree


def write_sif(trial: Trial, tree: Tree, path: Path) -> None:
    bare = path.with_suffix(".bare")
    write_by_calls(trial, tree, bare)
    with path.open("w+b") as file:
        builder = SifBuilder(file, architecture=Platform.host().architecture, created=1_700_000_000)
        builder.begin_partition()
        builder.end_partition(file.write(bare.read_bytes()))
        builder.finish()
    path.chmod(0o755)


@each_tree(2, 300)
def test_apptainer_sees_the_tree(jury: Jury, seed: int, peer: Apptainer) -> None:
    trial = Trial.choose(seed)
    tree = grow_container(trial)
    write_sif(trial, tree, peer.folder / "image.sif")
    words = ["exec", "--no-home", "--pwd", "/", "image.sif", "/bin/busybox", "sh", "-c", LOOK]
    *found, count = peer.run(*words).stdout.splitlines()
    jury.tried["apptainer"] += 1
    below = {path: thing for path, thing in tree.items() if path == b"t" or path.startswith(b"t/")}
    files = [thing.data for thing in below.values() if thing.kind == stat.S_IFREG]
    assert int(count) == len(below)
    assert sorted(line[:64] for line in found) == sorted(hashlib.sha256(data).hexdigest() for data in files)
