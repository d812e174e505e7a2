# SPDX-License-Identifier: BSD-3-Clause
"""Names of images in the cache alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.errors import ImageNotFound, InvalidReference
from kedge.image.local_names import find_named, list_named, name_image, read_name, tag_image
from kedge.image.node_cache import reference_path
from kedge.image.sources.resolve import resolve
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.rows import each_row

LAYER = {
    "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd",
    "digest": "sha256:" + "1" * 64,
    "size": 1234,
}
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {**LAYER, "mediaType": "application/vnd.oci.image.config.v1+json", "size": 2},
        "layers": [LAYER],
    }
).encode()


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    environ = {"KEDGE_CACHEDIR": str(tmp_path / "cache"), "KEDGE_NODEDIR": str(tmp_path / "node"), "HOME": "/nowhere"}
    return Workplace(Settings.load({}, environ))


def test_a_name_means_the_image_and_asks_no_registry(workplace: Workplace) -> None:
    with workplace.open_store() as store:
        digest = store.add_blob(MANIFEST)
        name_image("tools", digest, workplace, store)
        for text in ("docker://tools", "docker://tools:latest", "docker://docker.io/library/tools"):
            assert resolve(Reference.parse(text), workplace, store).digest == digest
        record, manifest = find_named("tools", workplace, store)
        assert (record.is_local, manifest.digest) == (True, digest)


def test_a_name_is_found_with_and_without_the_variant_of_an_architecture(tmp_path: Path) -> None:
    environ = {"KEDGE_CACHEDIR": str(tmp_path / "cache"), "KEDGE_NODEDIR": str(tmp_path / "node"), "HOME": "/nowhere"}
    places = [Workplace(Settings.load({"architecture": text}, environ)) for text in ("arm64", "aarch64", "arm64/v8")]
    with places[0].open_store() as store:
        digest = store.add_blob(MANIFEST)
        name_image("tools", digest, places[0], store)
        for place in places:
            assert find_named("tools", place, store)[0].digest == digest


def test_names_are_listed_once_with_their_size(workplace: Workplace) -> None:
    with workplace.open_store() as store:
        digest = store.add_blob(MANIFEST)
        name_image("team/tools", digest, workplace, store)
        store.remember("docker://docker.io/library/gone", Platform.host(), Digest.of(b"gone"))
    tag_image("team/tools", "registry.example.org/team/tools:2", workplace)
    with workplace.open_store() as store:
        images = {image.reference: image for image in list_named(store)}
    assert set(images) == {"docker.io/team/tools:latest", "registry.example.org/team/tools:2"}
    assert {image.size for image in images.values()} == {1234}
    assert all(image.is_local for image in images.values())


def test_a_name_that_the_cache_does_not_have(workplace: Workplace) -> None:
    with pytest.raises(ImageNotFound, match="no image called tools") as caught:
        tag_image("tools", "other", workplace)
    assert "kedge build -t tools" in str(caught.value.hint)


def test_a_new_meaning_is_forgotten_on_the_node(workplace: Workplace, tmp_path: Path) -> None:
    paths = [
        Path(reference_path(str(tmp_path / "node"), text, ""))
        for text in ("docker://tools", "docker://tools:latest", "docker:tools", "docker://docker.io/library/tools")
    ]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        path.write_text("x")
    with workplace.open_store() as store:
        name_image("tools", store.add_blob(MANIFEST), workplace, store)
    assert not any(path.exists() for path in paths)


@each_row("text", ["oci://x", "a@sha256:" + "0" * 64, "UPPER CASE", ""])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference):
        read_name(text)


def test_a_registry_that_is_asked_all_the_same_may_know_nothing(workplace: Workplace) -> None:
    nobody = "docker://localhost:1/tools"
    with workplace.open_store() as store:
        digest = store.add_blob(MANIFEST)
        name_image("localhost:1/tools", digest, workplace, store)
        assert resolve(Reference.parse(nobody), workplace, store, asks_local=True).digest == digest
