# SPDX-License-Identifier: BSD-3-Clause
"""Build contexts: what is read, what is left out without a look, links that stay inside, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.base.tree import Node, walk
from kedge.builds.copies.context import open_context
from kedge.errors import FileProblem, InvalidRecipe
from kedge.image.store.file_digests import FileDigests
from kedge.image.store.layout import Layout
from tests.builders.copy_cases import write_tree
from tests.builders.ordinary_user import as_ordinary_user


def list_names(tree: Node | None) -> list[str]:
    assert tree is not None
    return [os.fsdecode(path) for path, _ in walk(tree)]


def test_context_of_a_recipe_prefers_its_own_ignore_file(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"", "b": b"", "Dockerfile": b"", ".dockerignore": b"a\n"})
    assert list_names(open_context(tmp_path, tmp_path / "Dockerfile").read_tree("/")) == [
        ".dockerignore", "Dockerfile", "b",
    ]  # fmt: skip
    (tmp_path / "Dockerfile.dockerignore").write_text("b\n*ocker*")
    assert list_names(open_context(tmp_path, tmp_path / "Dockerfile").read_tree("/")) == ["a"]


def test_context_leaves_the_output_out(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"", "out[1].sif": b"", "sub/out.sif": b""})
    assert list_names(open_context(tmp_path, output=tmp_path / "out[1].sif").read_tree("/")) == [
        "a", "sub", "sub/out.sif",
    ]  # fmt: skip
    assert "sub/out.sif" not in list_names(open_context(tmp_path, output=tmp_path / "sub/out.sif").read_tree("/"))
    assert "a" in list_names(open_context(tmp_path, output=Path("/elsewhere/a")).read_tree("/"))


def test_context_does_not_enter_what_is_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path, {"left/deep/x": b"", "kept/x": b"", ".dockerignore": b"left\n!kept/**\n.docker*\n"})
    entered: list[str] = []
    origin = open_context(tmp_path)
    entries = origin.view.entries
    origin.view.entries = lambda path: entered.append(path) or entries(path)  # type: ignore[method-assign,func-returns-value]
    assert list_names(origin.read_tree("/")) == ["kept", "kept/x"]
    assert entered == ["/", "/kept"]


def test_context_keeps_directories_of_what_is_taken_back(tmp_path: Path) -> None:
    write_tree(tmp_path, {"d/e/f": b"", "d/e/g": b"", "d/h": b"", "i": None, ".dockerignore": b"*\n!d/*/f\n"})
    assert list_names(open_context(tmp_path).read_tree("/")) == ["d", "d/e", "d/e/f"]


def test_context_follows_links_inside_only(tmp_path: Path) -> None:
    write_tree(tmp_path / "context", {
        "file": b"1", "up": "-> ../../../../file", "absolute": "-> /file", "out": "-> /etc/passwd", "loop": "-> loop",
        "folder/x": b"", "way": "-> folder",
    })  # fmt: skip
    origin = open_context(tmp_path / "context")
    assert None not in [origin.read_tree(path) for path in ("/up", "/absolute", "/way/x")]
    assert (origin.read_tree("/out"), origin.read_tree("/loop")) == (None, None)
    assert (origin.expand("way/*"), origin.expand("w?y/*")) == (["/folder/x"], [])


def test_context_that_is_none_or_has_bad_patterns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="is not a directory"):
        open_context(tmp_path / "missing")
    (tmp_path / ".dockerignore").write_text("a\n[\n")
    with pytest.raises(InvalidRecipe, match=r"\.dockerignore"):
        open_context(tmp_path)


@as_ordinary_user
def test_context_names_what_cannot_be_read(tmp_path: Path) -> None:
    write_tree(tmp_path, {"closed/x": b""})
    (tmp_path / "closed").chmod(0)
    try:
        with pytest.raises(FileProblem, match="closed") as problem:
            open_context(tmp_path).read_tree("/")
        assert ".dockerignore" in str(problem.value.hint)
    finally:
        (tmp_path / "closed").chmod(0o755)


def test_context_with_deep_directories(tmp_path: Path) -> None:
    place = tmp_path
    for _ in range(400):
        place = place / "d"
    place.mkdir(parents=True)
    origin = open_context(tmp_path)
    tree = origin.read_tree("/")
    assert len(list_names(tree)) == 400
    assert tree is not None
    assert len(origin.digest_tree(tree)) == 64


def test_digest_is_the_same_whoever_reads_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {f"d/{number}": b"%d" % number for number in range(5)})

    def digest() -> str:
        origin = open_context(tmp_path)
        tree = origin.read_tree("/")
        assert tree is not None
        return origin.digest_tree(tree)

    first = digest()
    monkeypatch.setattr("kedge.builds.copies.context._WORTH_A_THREAD", 1)
    monkeypatch.setattr("kedge.builds.copies.context._BATCH", 2)
    assert digest() == first
    (tmp_path / "d/4").write_bytes(b"5")
    assert digest() != first


def test_unchanged_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "context", {"a": b"1", "d/b": b"2"})
    layout = Layout(tmp_path / "cache")
    monkeypatch.setattr("kedge.builds.copies.context.now", lambda: 2**62)  # long after the files were written

    def digest(*, forgets: bool = False) -> str:
        origin = open_context(tmp_path / "context")
        origin.known = None if forgets else FileDigests(layout, "context")
        tree = origin.read_tree("/")
        assert tree is not None
        return origin.digest_tree(tree)

    first = digest()
    with monkeypatch.context() as patched:
        patched.setattr(
            "kedge.builds.copies.context._hash_content", lambda node: pytest.fail(f"{node.content} was read")
        )
        assert digest() == first
    path = tmp_path / "context" / "a"
    status = path.stat()
    path.write_bytes(b"3")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size and time: the kernel's own time tells
    assert digest() == digest(forgets=True) != first
