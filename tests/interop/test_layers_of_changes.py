# SPDX-License-Identifier: BSD-3-Clause
"""Layers of random changes: the kernel's overlay, fuse-overlayfs, umoci and kedge agree on them.

An ordinary user changes a tree twice, in overlays and in a plain directory. Whoever puts the layers together again must
see what the programs saw.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.containers import USER, as_user
from tests.builders.rows import each_row
from tests.interop.test_layers_tools import unpack_with_umoci
from tests.requirements import open_way, require_program, require_root, require_user_namespaces

PROGRAMS = Path(__file__).parent.parent / "programs"
SEEDS = ("one", *(pytest.param(seed, marks=pytest.mark.long) for seed in ("two", "three", "four")))
Description = dict[str, list[Any]]


def run_as_user(*words: str) -> Any:
    uid = USER if os.getuid() == 0 else os.getuid()
    done = subprocess.run(as_user(uid, [sys.executable, *words]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=SEEDS)
def ways(request: pytest.FixtureRequest) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    """A directory, and what each way of changing the tree gave."""
    require_user_namespaces()
    with tempfile.TemporaryDirectory(prefix="kedge-changes-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        place = Path(name)
        open_way(place)
        if os.getuid() == 0:
            os.chown(place, USER, USER)
        yield place, run_as_user(str(PROGRAMS / "make_layers_of_changes.py"), str(place), request.param)


def without_names(tree: Description) -> Description:
    """Without the first name of each file: overlays show other inode numbers for a link that was just made."""
    return {path: [*facts[:3], *facts[4:]] for path, facts in tree.items()}


def without_times(tree: Description) -> Description:
    modes = {path: "a pipe" if stat.S_ISFIFO(int(facts[0], 8)) else facts[0] for path, facts in tree.items()}
    return {path: [modes[path], facts[2], facts[4]] for path, facts in tree.items()}


def test_layers_give_what_the_program_saw(ways: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    """Of an overlay, and of a plain directory."""
    kernel, plain = ways[1]["kernel"], ways[1]["plain"]
    for view in ("overlay", "plain", "flat"):
        assert without_names(kernel[view]) == without_names(kernel["seen"][-1]), view
    assert plain["plain"] == plain["flat"] == plain["seen"][-1]


def test_all_ways_give_the_same(ways: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    """Times are those of the run; fuse-overlayfs stores other times of directories, since 1.14 other modes of pipes."""
    trees = {name: without_times(way["flat"]) for name, way in ways[1].items()}
    assert len(trees) >= 2
    for name, tree in trees.items():
        differing = {path: (tree.get(path), facts) for path, facts in trees["plain"].items() if tree.get(path) != facts}
        assert (name, differing, tree.keys() - trees["plain"].keys()) == (name, {}, set())


@pytest.mark.root
@each_row("way", ["kernel", "plain", "fuse-overlayfs"])
def test_umoci_unpacks_the_same(ways: tuple[Path, dict[str, dict[str, Any]]], way: str, tmp_path: Path) -> None:
    require_root()
    place, answers = ways
    require_program("fuse-overlayfs")  # without it, answers are two
    tars = [(place / way / f"layer{number}.tar").read_bytes() for number in range(3)]
    root = unpack_with_umoci(tmp_path / way, tars)
    words = [sys.executable, PROGRAMS / "change_a_tree.py", "describe", root, "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == answers[way]["flat"]
