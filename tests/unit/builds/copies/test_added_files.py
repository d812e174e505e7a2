# SPDX-License-Identifier: BSD-3-Clause
"""ADD: archives of every codec, hostile ones, files behind addresses, and what is taken for an address."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tempfile
from pathlib import Path

import pytest
import zstandard

from kedge.base.tree import Node, walk
from kedge.builds.addresses import is_address, is_git_address
from kedge.builds.copies.added_files import AddedFiles
from kedge.builds.copies.context import open_context
from kedge.builds.copies.copy_files import digest_copy, make_copy
from kedge.builds.states.merged_view import view_directory
from kedge.builds.step_values import CopyStep, RecipePlace
from kedge.errors import CorruptImage, DigestMismatch, HostileImage, ImageNotFound, InvalidRecipe
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders import layers as build
from tests.builders.copy_cases import write_tree
from tests.builders.rows import each_row, with_rows
from tests.fakes.http_server import FakeServer, Recorded, Reply

PLACE = RecipePlace("Dockerfile", 3)
CODECS = {
    **{"tar": bytes, "tar.gz": gzip.compress, "tar.bz2": bz2.compress, "tar.xz": lzma.compress},
    "tar.zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture(name="added")
def make_added(tmp_path):
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "cache")}
    workplace = Workplace(Settings.load({}, environ))
    with workplace.open_store() as store, AddedFiles(workplace, store) as added:
        yield added


def add(source: str, destination: str, **options: object) -> CopyStep:
    return CopyStep(PLACE, "ADD", (source,), destination, is_addition=True, **options)  # type: ignore[arg-type]


def run(step: CopyStep, folder, added: AddedFiles, base=None) -> dict[str, bytes]:
    target = base or folder.parent / "empty"
    target.mkdir(exist_ok=True)
    root, source = make_copy(step, open_context(folder), view_directory(target), added)
    return {os.fsdecode(path): b"".join(source.chunks(node)) if node.size else b"" for path, node in walk(root)}


def find(root: Node, path: str) -> Node:
    for name in path.split("/"):
        root = root.children[name.encode()]
    return root


@each_row("ending", CODECS)
def test_add_unpacks_every_codec(ending: str, tmp_path, added: AddedFiles) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    tar = build.layer(
        build.file("d/file", b"content", mode=0o4711, owner=(3, 4)),
        build.symlink("link", "d/file"),
        build.hard_link("hard", "d/file"),
    )
    write_tree(tmp_path / "context", {"named-otherwise": CODECS[ending](tar)})
    assert run(add("named-otherwise", "/t"), tmp_path / "context", added) == {
        "t": b"", "t/d": b"", "t/d/file": b"content", "t/hard": b"content", "t/link": b"",
    }  # fmt: skip
    step = add("named-otherwise", "/t", owner="7:8")
    root, _ = make_copy(step, open_context(tmp_path / "context"), view_directory(tmp_path / "empty"), added)
    assert (find(root, "t/d/file").uid, find(root, "t/d/file").mode) == (7, 0o4711)
    root, _ = make_copy(
        add("named-otherwise", "/t"), open_context(tmp_path / "context"), view_directory(tmp_path / "empty"), added
    )
    assert (find(root, "t/d/file").uid, find(root, "t/d/file").gid) == (3, 4)
    assert find(root, "t/hard") is find(root, "t/d/file")


@each_row(
    "data",
    [b"", b"text", b"\x1f\x8b\x08garbage that is none", gzip.compress(b"no tar" * 500), bytes(2048), b"x" * 1024],
)
def test_add_copies_what_is_no_archive(data: bytes, tmp_path, added: AddedFiles) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    write_tree(tmp_path / "context", {"file": data})
    assert run(add("file", "/t/"), tmp_path / "context", added) == {"t": b"", "t/file": data}


def test_add_unpack_option(tmp_path, added: AddedFiles) -> None:
    tar = build.layer(build.file("x", b"1"))
    write_tree(tmp_path / "context", {"a.tar": tar})
    assert run(add("a.tar", "/t/", unpacks=False), tmp_path / "context", added)["t/a.tar"] == tar
    assert run(CopyStep(PLACE, "COPY", ("a.tar",), "/t/"), tmp_path / "context", added)["t/a.tar"] == tar


@each_row(
    ("members", "problem"),
    [
        ([build.file("../../out", b"1")], HostileImage),
        ([build.file("a/../../../etc/passwd", b"1")], HostileImage),
        ([build.symlink("way", "/etc"), build.file("way/../../x", b"1")], HostileImage),
        ([build.file("a", b"1")[:700]], CorruptImage),
    ],
)
def test_add_refuses_hostile_archives(members, problem, tmp_path, added) -> None:
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    write_tree(
        tmp_path / "context", {"a.tar": build.layer(*members, end=b"" if problem is CorruptImage else build.END)}
    )
    with pytest.raises(problem) as raised:
        run(add("a.tar", "/t/"), tmp_path / "context", added)
    assert "Dockerfile:3" in str(raised.value.context)  # type: ignore[attr-defined]


def test_add_writes_through_links_of_the_image_inside_it_only(tmp_path, added: AddedFiles) -> None:
    write_tree(tmp_path / "context", {"a.tar": build.layer(build.folder("lib"), build.file("lib/x", b"1"))})
    write_tree(tmp_path / "base", {"lib": "-> ../../../usr/lib", "usr/lib/y": b""})
    files = run(add("a.tar", "/"), tmp_path / "context", added, tmp_path / "base")
    assert files["usr/lib/x"] == b"1"
    assert "lib" not in files


def test_add_drops_whiteouts_of_archives(tmp_path, added: AddedFiles) -> None:
    write_tree(tmp_path / "context", {"a.tar": build.layer(build.file(".wh.etc", b""), build.file("x", b"1"))})
    assert run(add("a.tar", "/"), tmp_path / "context", added) == {"x": b"1"}


class Site:
    """A web server that counts, and says when its file changed."""

    def __init__(self) -> None:
        self.body, self.headers = b"tool", {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        self.asked: list[str] = []

    def answer(self, request: Recorded) -> Reply:
        self.asked.append(request.path)
        if request.path == "/missing":
            return Reply(404)
        return Reply(200, self.body, {**self.headers, "Content-Type": "text/html"})


def test_add_fetches_a_file_and_asks_whether_it_changed(tmp_path, added: AddedFiles) -> None:
    site = Site()
    (tmp_path / "context").mkdir()
    origin = open_context(tmp_path / "context")
    (tmp_path / "empty").mkdir()
    with FakeServer(site.answer) as server:
        step = add(f"http://{server.host}/dir/tool%201.bin?x=1", "/t/")
        first = digest_copy(step, origin, added)
        root, source = make_copy(step, origin, view_directory(tmp_path / "empty"), added)
        node = find(root, "t/tool 1.bin")
        assert (node.mode, node.uid, node.mtime) == (0o600, 0, 1767225600)
        assert b"".join(source.chunks(node)) == b"tool"
        assert len(site.asked) == 2  # once for its state, once for itself
        with AddedFiles(added.workplace, added.store) as again:
            assert digest_copy(step, origin, again) == first
        assert len(site.asked) == 3
        site.body, site.headers = b"newer", {"ETag": '"2"'}
        with AddedFiles(added.workplace, added.store) as again:
            assert digest_copy(step, origin, again) != first


def test_add_with_a_checksum(tmp_path, added: AddedFiles) -> None:
    import hashlib

    site = Site()
    (tmp_path / "context").mkdir()
    for algorithm in ("sha256", "sha512"):
        digest = f"{algorithm}:{hashlib.new(algorithm, b'tool').hexdigest()}"
        with FakeServer(site.answer) as server:
            step = add(f"http://{server.host}/tool", "/tool", checksum=digest)
            assert run(step, tmp_path / "context", added) == {"tool": b"tool"}
        with AddedFiles(added.workplace, added.store) as again:  # nobody listens any more
            assert run(step, tmp_path / "context", again) == {"tool": b"tool"}
    with FakeServer(site.answer) as server:
        wrong = add(f"http://{server.host}/tool", "/tool", checksum=f"sha256:{'0' * 64}")
        with pytest.raises(DigestMismatch, match="the recipe wants sha256:0000"):
            run(wrong, tmp_path / "context", added)
        with pytest.raises(InvalidRecipe, match="--checksum"):
            run(add(f"http://{server.host}/tool", "/tool", checksum="md5:1"), tmp_path / "context", added)
        with pytest.raises(ImageNotFound, match="no file at"):
            run(add(f"http://{server.host}/missing", "/tool"), tmp_path / "context", added)
        with pytest.raises(InvalidRecipe, match="does not say what the file is called"):
            run(add(f"http://{server.host}/", "/t/"), tmp_path / "context", added)
        assert run(add(f"http://{server.host}/", "/tool"), tmp_path / "context", added) == {"tool": b"tool"}


@with_rows(
    *(("a.txt", False, False), ("http://h/a", True, False), ("HTTPS://h/a", True, False)),
    ("https://h/a.git", True, True),
    ("https://h/a.git#v1:sub", True, True),
    *(("git@h:a/b", True, True), ("git://h/a", True, True), ("git", False, False), ("http.txt", False, False)),
)
def test_what_is_an_address(source: str, address: bool, git: bool) -> None:
    assert (is_address(source), is_git_address(source)) == (address, git)
