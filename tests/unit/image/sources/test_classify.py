# SPDX-License-Identifier: BSD-3-Clause
"""What a reference names: decided once, by the reference, the first bytes of a file, or one look at a manifest."""

from __future__ import annotations

import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kedge.base.reference import Reference
from kedge.errors import UsageError
from kedge.image.sources.classify import SourceKind, classify
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path


@each_row(
    ("text", "kind"),
    [
        ("oci:layout:1", SourceKind.ARCHIVE),
        ("oci-archive:x.tar", SourceKind.ARCHIVE),
        ("docker-archive:x.tar", SourceKind.ARCHIVE),
        ("docker-daemon:ubuntu:22.04", SourceKind.ENGINE),
        ("podman://ubuntu:22.04", SourceKind.ENGINE),
        ("host:bash", SourceKind.PROGRAMS),
        ("ubuntu:22.04", SourceKind.REGISTRY),
        ("docker://ubuntu", SourceKind.REGISTRY),
        ("oras://ghcr.io/a/b:1", SourceKind.REMOTE_SIF),
        ("library://a/b/c", SourceKind.REMOTE_SIF),
        ("https://example.org/x.sif", SourceKind.REMOTE_SIF),
        ("./no-such.sif", SourceKind.OTHER_PATH),
    ],
)
def test_kind_follows_from_the_reference(text: str, kind: SourceKind, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    source = classify(Reference.parse(text))
    assert source.kind is kind
    assert source.is_local == (kind not in (SourceKind.REGISTRY, SourceKind.REMOTE_SIF))


def test_kind_of_a_path_follows_from_its_content(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "layout").mkdir()
    for name in ("oci-layout", "index.json"):
        (tmp_path / "layout" / name).write_text("{}")
    (tmp_path / "sif.tar").write_bytes(fixture_path("busybox_arm64.sif").read_bytes()[:4096])
    (tmp_path / "text.sif").write_text("hello\n")
    with tarfile.open(tmp_path / "tar.sif", "w") as archive:
        archive.add(tmp_path / "text.sif", "a")
    (tmp_path / "squash.sif").write_bytes(b"hsqs" + bytes(200))
    kinds = {path.name: classify(Reference.parse(str(path))).kind for path in tmp_path.iterdir()}
    assert kinds == {
        "root": SourceKind.DIRECTORY,
        "layout": SourceKind.ARCHIVE,
        "sif.tar": SourceKind.SIF_FILE,
        "text.sif": SourceKind.OTHER_PATH,
        "tar.sif": SourceKind.ARCHIVE,
        "squash.sif": SourceKind.SQUASHFS_FILE,
    }


def test_only_plain_paths_that_are_no_archives_have_a_path(tmp_path: Path) -> None:
    assert classify(Reference.parse(str(tmp_path))).path == tmp_path
    assert classify(Reference.parse(f"oci:{tmp_path}")).path is None
    assert classify(Reference.parse("ubuntu")).path is None


@each_row(("is_sif", "kind"), [(False, SourceKind.LAYERS), (True, SourceKind.REMOTE_SIF)])
def test_manifest_says_whether_a_registry_has_layers_or_a_sif(is_sif: bool, kind: SourceKind) -> None:
    asked: Any = SimpleNamespace(manifest=SimpleNamespace(is_sif=is_sif))
    source = classify(Reference.parse("ubuntu")).look_up(lambda: asked)
    assert source.kind is kind
    assert source.resolved is asked
    assert source.layers is (None if is_sif else asked)


def test_nothing_else_is_looked_up() -> None:
    source = classify(Reference.parse("oras://ghcr.io/a/b:1"))
    assert source.look_up(lambda: pytest.fail("asked")) is source


def test_running_containers_are_refused() -> None:
    with pytest.raises(UsageError, match="instance://web is a running container, not an image"):
        classify(Reference.parse("instance://web"))
