# SPDX-License-Identifier: BSD-3-Clause
"""COPY and %files: which paths a step adds to an image, with which modes, owners and contents, and what is refused."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.base.frozen import replace
from kedge.base.tree import ContentSource, Node, NodeKind, walk
from kedge.builds.copies.context import FileOrigin, open_context, open_host_files
from kedge.builds.copies.copy_files import CopiedContent, digest_copy, make_copy
from kedge.builds.dockerfile.plan import make_recipe
from kedge.builds.states.merged_view import MergedView, ViewLevel, view_directory
from kedge.builds.step_values import CopyStep, DirectoryStep, InlineFile, RecipePlace
from kedge.errors import InvalidRecipe
from kedge.image.layers.owners import OwnerTable, RecordedOwner
from tests.builders.copy_cases import BASE, CASES, CONTEXT, CopyCase, describe_entry, write_tree
from tests.builders.rows import each_row

PLACE = RecipePlace("recipe", 1)
_TYPES = {NodeKind.DIRECTORY: stat.S_IFDIR, NodeKind.FILE: stat.S_IFREG, NodeKind.SYMLINK: stat.S_IFLNK}


def describe(root: Node, source: ContentSource) -> dict[str, str]:
    described = {}
    for path, node in walk(root):
        content = b"".join(source.chunks(node)).strip() if node.size else node.target
        described[os.fsdecode(path)] = describe_entry(_TYPES[node.kind] | node.mode, (node.uid, node.gid), content)
    return described


def read_steps(lines: str) -> list[CopyStep | DirectoryStep]:
    recipe = make_recipe(f"FROM scratch\n{lines}\n", "Dockerfile")
    return [step for step in recipe.target.plan({}).steps if isinstance(step, CopyStep | DirectoryStep)]


def put(folder, root: Node, source: ContentSource) -> None:
    """A layer as a directory, with the modes that the next step must see."""
    for path, node in [(b"", root), *walk(root)]:
        place = folder / os.fsdecode(path)
        if node.kind is NodeKind.DIRECTORY:
            place.mkdir(exist_ok=True)
            place.chmod(node.mode)
        elif node.kind is NodeKind.SYMLINK:
            place.symlink_to(os.fsdecode(node.target))
        else:
            place.write_bytes(b"".join(source.chunks(node)))
            place.chmod(node.mode)


def run_steps(case: CopyCase, origin: FileOrigin, base, layers) -> dict[str, str]:
    levels, described = [ViewLevel(base)], {}
    for number, step in enumerate(read_steps(case.lines)):
        if isinstance(step, DirectoryStep):
            continue
        root, source = make_copy(step, origin, MergedView(tuple(levels)))
        described.update(describe(root, source))
        folder = layers / str(number)
        folder.mkdir(parents=True)
        put(folder, root, source)
        levels.append(ViewLevel(folder))
    return described


@each_row("case", CASES, ids=lambda case: case.name)
def test_copy_as_docker_does(case: CopyCase, tmp_path) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    write_tree(tmp_path / "context", CONTEXT)
    write_tree(tmp_path / "base", BASE)
    if case.ignore:
        (tmp_path / "context/.dockerignore").write_text(case.ignore)
    origin = open_context(tmp_path / "context")
    if case.error:
        with pytest.raises(InvalidRecipe, match=case.error.replace("/", "[/]")) as problem:
            run_steps(case, origin, tmp_path / "base", tmp_path / "layers")
        assert problem.value.message.startswith("Dockerfile:")
        return
    described = run_steps(case, origin, tmp_path / "base", tmp_path / "layers")
    base = {os.fsdecode(path) for path, _ in walk_directory(tmp_path / "base")}
    new = {path: text for path, text in described.items() if path not in base or not text.startswith("d ")}
    assert new == case.expected


def walk_directory(folder) -> list[tuple[bytes, None]]:
    return [(os.fsencode(path.relative_to(folder)), None) for path in sorted(folder.rglob("*"))]


def copy(sources: tuple[str, ...], destination: str, **options: object) -> CopyStep:
    return CopyStep(PLACE, "COPY", sources, destination, **options)  # type: ignore[arg-type]


def test_copy_keeps_the_metadata_of_directories_on_the_way(tmp_path) -> None:
    write_tree(tmp_path / "context", CONTEXT)
    write_tree(tmp_path / "base", BASE)
    owners = OwnerTable({b"app": RecordedOwner(3, 4, 0o2750)})
    target = view_directory(tmp_path / "base", owners)
    root, source = make_copy(copy(("a.txt",), "/app/x/y"), open_context(tmp_path / "context"), target)
    assert describe(root, source) == {"app": "d 2750 3:4", "app/x": "d 755 0:0", "app/x/y": "f 644 0:0 a"}
    assert root.layer == -1


def test_copy_with_link_option_does_not_follow_the_image(tmp_path) -> None:
    write_tree(tmp_path / "context", CONTEXT)
    write_tree(tmp_path / "base", BASE)
    step = copy(("a.txt",), "/lib/x", is_link=True)
    root, source = make_copy(step, open_context(tmp_path / "context"), view_directory(tmp_path / "base"))
    assert describe(root, source) == {"lib": "d 755 0:0", "lib/x": "f 644 0:0 a"}


def test_copy_from_a_state_keeps_owners_and_hard_links(tmp_path) -> None:
    write_tree(tmp_path / "state", {"d/one": b"1", "d/x": b"x"})
    os.link(tmp_path / "state/d/one", tmp_path / "state/d/two")
    owners = OwnerTable({b"d/x": RecordedOwner(8, 9, 0o644)})
    origin = FileOrigin(view_directory(tmp_path / "state", owners), "key", "the stage")
    (tmp_path / "base").mkdir()
    root, source = make_copy(copy(("/d",), "/e"), origin, view_directory(tmp_path / "base"))
    assert describe(root, source)["e/x"] == "f 644 8:9 x"
    folder = root.children[b"e"]
    assert folder.children[b"one"] is folder.children[b"two"]
    make_copy(copy(("/d",), "/e", owner="1:1"), origin, view_directory(tmp_path / "base"))
    root, source = make_copy(copy(("/d",), "/e"), origin, view_directory(tmp_path / "base"))
    assert describe(root, source)["e/one"] == "f 644 0:0 1"  # what another step changed of its copy stays there


@each_row(
    ("sources", "destination", "expected"),
    [
        (("a.txt",), "/new/x", {"new": "d 755", "new/x": "f 644 a"}),
        (("a.txt",), "/app", {"app/a.txt": "f 644 a"}),
        (("a.txt",), "/new/", {"new": "d 755", "new/a.txt": "f 644 a"}),
        (("link",), "/x", {"x": "f 644 a"}),
        (("dir",), "/x", {
            "x": "d 755", "x/one": "f 644 1", "x/inner": "f 644 1", "x/sub": "d 755", "x/sub/two": "f 644 2",
        }),
        (("dir",), "/app", {
            "app/dir": "d 755", "app/dir/one": "f 644 1", "app/dir/inner": "f 644 1", "app/dir/sub": "d 755",
            "app/dir/sub/two": "f 644 2",
        }),
        (("dir/.",), "/app", {"app/one": "f 644 1", "app/inner": "f 644 1", "app/sub/two": "f 644 2"}),
        (("dirlink",), "/x", {
            "x": "d 755", "x/one": "f 644 1", "x/inner": "f 644 1", "x/sub": "d 755", "x/sub/two": "f 644 2",
        }),
        (("*.txt",), "/t", {"t": "d 755", "t/a.txt": "f 644 a", "t/b.txt": "f 644 b"}),
        (("a.txt",), "", {"a.txt": "f 644 a"}),
        (("dir/sub",), "", {"dir": "d 755", "dir/sub": "d 755", "dir/sub/two": "f 644 2"}),
        (("run.sh",), "/target.txt", {"target.txt": "f 644 #!/bin/sh"}),
        (("run.sh",), "/totarget", {"target.txt": "f 644 #!/bin/sh"}),
        (("run.sh",), "/x", {"x": "f 755 #!/bin/sh"}),
        (("group",), "/x", {"x": "f 644 g"}),
        (("private",), "/x", {"x": "d 700", "x/key": "f 644 k"}),
    ],
)  # fmt: skip
def test_files_as_cp_does(sources, destination, expected, tmp_path) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    context = {name: entry for name, entry in CONTEXT.items() if name not in ("out", "dir/sub/three.log")}
    del context["odd name [1].txt"]
    write_tree(tmp_path / "context", {**context, "group": (b"g", 0o664)})
    write_tree(tmp_path / "base", BASE)
    step = copy(sources, destination, is_definition=True)
    root, source = make_copy(step, open_host_files(tmp_path / "context"), view_directory(tmp_path / "base"))
    there = {os.fsdecode(path) for path, _ in walk_directory(tmp_path / "base")}
    described = {path: text.replace(" 0:0", "") for path, text in describe(root, source).items()}
    assert {path: text for path, text in described.items() if path not in there or text[0] != "d"} == expected


def test_files_from_a_stage_keep_links(tmp_path) -> None:
    write_tree(tmp_path / "state", {"d/one": b"1", "d/two": "-> one"})
    (tmp_path / "base").mkdir()
    origin = FileOrigin(view_directory(tmp_path / "state"), "key", "the stage")
    step = copy(("/d",), "/e", is_definition=True)
    root, source = make_copy(step, origin, view_directory(tmp_path / "base"))
    assert describe(root, source)["e/two"] == "l 0:0 one"


def test_files_with_an_absolute_path(tmp_path) -> None:
    write_tree(tmp_path / "elsewhere", {"x": b"x"})
    (tmp_path / "base").mkdir()
    step = copy((str(tmp_path / "elsewhere/x"),), "", is_definition=True)
    root, source = make_copy(step, open_host_files(tmp_path), view_directory(tmp_path / "base"))
    assert describe(root, source)[str(tmp_path / "elsewhere/x").lstrip("/")] == "f 644 0:0 x"


@each_row(
    ("source", "message"),
    [
        ("nothing", "does not exist in the files of this host"),
        ("no*", "does not exist"),
        ("dead", "not in the files of this host"),
    ],
)
def test_files_that_are_missing_are_refused(source: str, message: str, tmp_path) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "base").mkdir()
    step = copy((source,), "/x", is_definition=True)
    with pytest.raises(InvalidRecipe, match=message):
        make_copy(step, open_host_files(tmp_path), view_directory(tmp_path / "base"))


def test_digest_counts_names_modes_and_contents_but_no_times(tmp_path) -> None:
    write_tree(tmp_path, {"d/one": b"1", "d/two": b"2", "other": b"o"})
    step = copy(("d",), "/x")

    def digest(step: CopyStep = step) -> str:
        return digest_copy(step, open_context(tmp_path))

    first = digest()
    inline = replace(step, inline=(InlineFile("x", b"1"),))
    assert len({first, digest(inline), digest(replace(step, inline=(InlineFile("x", b"2"),)))}) == 3
    os.utime(tmp_path / "d/one", (1, 1))
    (tmp_path / "other").write_bytes(b"changed")
    assert digest() == first
    (tmp_path / "d/one").chmod(0o755)
    second = digest()
    assert second != first
    (tmp_path / "d/one").write_bytes(b"3")
    third = digest()
    assert third not in (first, second)
    (tmp_path / "d/one").rename(tmp_path / "d/zero")
    assert digest() not in (first, second, third)
    (tmp_path / ".dockerignore").write_text("d/zero\n")
    assert digest() not in (first, second, third)


def test_digest_of_an_archive_does_not_unpack_it(tmp_path) -> None:
    write_tree(tmp_path, {"a.tar": b"x"})
    added = SimpleNamespace(unpack=lambda *_: pytest.fail("it was unpacked"))
    step = copy(("a.tar",), "/x", is_addition=True)
    assert digest_copy(step, open_context(tmp_path), added) == digest_copy(step, open_context(tmp_path))


def test_digest_of_a_stage_is_its_key(tmp_path) -> None:
    view = view_directory(tmp_path)
    step = copy(("/d",), "/x")
    assert digest_copy(step, FileOrigin(view, "a")) == digest_copy(step, FileOrigin(view, "a"))
    assert digest_copy(step, FileOrigin(view, "a")) != digest_copy(step, FileOrigin(view, "b"))


def test_copied_content_of_a_changed_file_is_an_error(tmp_path) -> None:
    from kedge.errors import FileProblem

    write_tree(tmp_path / "context", {"a": b"abc"})
    (tmp_path / "base").mkdir()
    root, _ = make_copy(copy(("a",), "/a"), open_context(tmp_path / "context"), view_directory(tmp_path / "base"))
    (tmp_path / "context/a").write_bytes(b"longer than before")
    with pytest.raises(FileProblem, match="changed while"):
        list(CopiedContent().chunks(root.children[b"a"]))


@each_row("name", [".wh.x", ".wh..wh..opq"])
def test_copy_refuses_names_that_mean_deletions(name: str, tmp_path) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    write_tree(tmp_path / "context", {f"d/{name}": b""})
    (tmp_path / "base").mkdir()
    with pytest.raises(InvalidRecipe, match="mark deleted files"):
        make_copy(copy(("d",), "/"), open_context(tmp_path / "context"), view_directory(tmp_path / "base"))
