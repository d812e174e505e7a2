# SPDX-License-Identifier: BSD-3-Clause
"""On random trees all views find what the kernel finds when the tree is its root (openat2, RESOLVE_IN_ROOT)."""

from __future__ import annotations

import errno
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.tree import find
from kedge.container.mount_operations import ContainerView
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.image.tree_view import TreeView
from kedge.system import libc
from kedge.system.views import DirectoryView, TableView

if TYPE_CHECKING:
    from kedge.system.views import View

NAMES = st.sampled_from(["a", "b", "c"])
PARTS = st.lists(st.sampled_from(["a", "b", "c", "a", "b", "c", "..", "."]), max_size=5)
TARGETS = st.tuples(st.sampled_from(["", "/"]), PARTS.filter(bool)).map(lambda made: made[0] + "/".join(made[1]))
PLACES = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
CONTENTS = st.one_of(st.none(), st.just(b"data"), TARGETS.map("-> {}".format), TARGETS.map("-> {}".format))
TREES = st.dictionaries(PLACES, CONTENTS, min_size=1, max_size=9)
PATHS = PARTS.map(lambda parts: "/" + "/".join(parts))


def build(root: Path, entries: dict[str, bytes | str | None]) -> dict[str, bytes | str | None]:
    """Make the entries that fit each other below `root`; returns those."""
    made: dict[str, bytes | str | None] = {}
    for path, content in sorted(entries.items()):
        place = root / path[1:]
        if any(made.get("/" + str(parent)) is not None for parent in Path(path[1:]).parents):
            continue  # below a file or a link
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        elif isinstance(content, str):
            place.symlink_to(content.removeprefix("-> "))
        else:
            place.write_bytes(content)
        made[path] = content
    return made


def ask_kernel(root: str, path: str) -> str | int:
    """Where the path leads inside the root, or the number of the error."""
    folder = os.open(root, os.O_PATH)
    try:
        file = libc.open_in_root(folder, path, os.O_PATH | os.O_CLOEXEC)
        try:
            return os.readlink(f"/proc/self/fd/{file}").removeprefix(root) or "/"  # noqa: PTH115 - text
        finally:
            os.close(file)
    except OSError as problem:
        return problem.errno or -1
    finally:
        os.close(folder)


def check_view(view: View, path: str, answer: str | int) -> None:
    if isinstance(answer, str):
        assert view.resolve(path) == answer
        assert view.kind(path) != ""
        return
    assert answer in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
    if answer == errno.ELOOP:
        with pytest.raises(OSError, match="symbolic links"):
            view.resolve(path)
        assert view.kind(path) == ""


@given(TREES, st.lists(PATHS, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_views_find_what_the_kernel_finds(entries: dict[str, bytes | str | None], paths: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="kedge-views-") as name:
        root = Path(name).resolve() / "root"
        root.mkdir()
        made = build(root, entries)
        if isinstance(ask_kernel(str(root), "/"), int):
            pytest.skip("this kernel has no openat2")
        tree, source = read_folder(root, FolderOptions())
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
        live = ContainerView(descriptor)
        views: list[View] = [
            DirectoryView(str(root)),
            DirectoryView(str(root), is_still=True),
            TableView(made),
            TreeView(partial(find, tree), source),
            live,
        ]
        inside = [f"{entry}/{path}" for entry in made for path in ("", *paths[:3])]
        for path in [*paths, *inside]:
            answer = ask_kernel(str(root), path)
            for view in views:
                check_view(view, path, answer)
        live.close()
