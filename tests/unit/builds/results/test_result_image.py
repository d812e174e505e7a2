# SPDX-License-Identifier: BSD-3-Clause
"""The image of a build: config, history and manifest; the same input gives the same bytes. And its lock file."""

from __future__ import annotations

import json

import pytest

from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.manifest import OCI_LAYER_ZSTD, ImageConfig, parse_manifest
from kedge.base.platform import Platform
from kedge.base.tree import Node, NodeKind
from kedge.builds.bases.bases import OpenedBase
from kedge.builds.build import read_lock, write_lock
from kedge.builds.copies.copy_files import CopiedContent
from kedge.builds.read_recipe import read_recipe
from kedge.builds.result_image import FinishedBuild, keep_in_store, open_result
from kedge.builds.states.build_place import BuildState, StageResult, StepLayer
from kedge.errors import DigestMismatch, InvalidRecipe
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.store.store import Store
from tests.builders.rows import each_row

RECIPE = read_recipe(b"FROM scratch\nRUN x\n", "Dockerfile")
BASE = OpenedBase("", "scratch", ImageConfig(Platform("arm64", "v8")))


def add_layer(store: Store, name: bytes) -> StepLayer:
    root = Node(NodeKind.DIRECTORY)
    root.children[name] = Node(NodeKind.FILE, 0o644)

    def write(file) -> LayerResult:
        return write_layer(root, CopiedContent(), file, "zstd", holds_whiteouts=True)

    return StepLayer(*store.add_layer(write))


def make_build(store: Store, created: int = 1_000_000_000) -> FinishedBuild:
    state = BuildState(BASE).after("RUN x", add_layer(store, b"x"), created=created).after("ENV A=1", None)
    result = StageResult(state, {"Env": ["A=1"]})
    return FinishedBuild(result, RECIPE, '{"kedge": "1"}', created)


def test_config_has_layers_history_and_time(tmp_path) -> None:
    store = Store(tmp_path / "cache")
    build = make_build(store)
    image = open_result(build, store)
    config = json.loads(image.config_bytes)
    assert (config["architecture"], config["variant"], config["os"]) == ("arm64", "v8", "linux")
    assert (config["created"], config["config"]) == ("2001-09-09T01:46:40Z", {"Env": ["A=1"]})
    assert config["rootfs"]["diff_ids"] == [str(build.result.state.layers[0].diff_id)]
    assert [entry["created_by"] for entry in config["history"]] == ["RUN x", "ENV A=1"]
    assert [entry.get("empty_layer", False) for entry in config["history"]] == [False, True]
    assert [layer.media_type for layer in image.manifest.layers] == [OCI_LAYER_ZSTD]
    assert image.record.recipe == RECIPE.text


def test_config_and_manifest_say_what_was_built(tmp_path) -> None:
    store = Store(tmp_path / "cache")
    build = make_build(store)
    base = replace(BASE, reference="docker://host/base:1", digest=f"sha256:{'1' * 64}")
    state = replace(build.result.state, base=base)
    image = open_result(replace(build, result=replace(build.result, state=state)), store)
    said = json.loads(image.config_bytes)["kedge.build.v1"]
    assert said == {"note": {"kedge": "1"}, "recipe": RECIPE.text}
    assert image.manifest.annotations == {
        "org.opencontainers.image.base.name": "host/base:1",
        "org.opencontainers.image.base.digest": f"sha256:{'1' * 64}",
    }
    assert open_result(build, store).manifest.annotations == {}


def test_history_names_every_layer_over_a_base_without_one(tmp_path) -> None:
    store = Store(tmp_path / "cache")
    below = open_result(make_build(store), store)
    below.config = replace(below.config, history=())
    state = BuildState(replace(BASE, _image=below)).after("RUN y", add_layer(store, b"y"))
    image = open_result(FinishedBuild(StageResult(state, {}), RECIPE, "{}", 1), store)
    entries = [entry for entry in json.loads(image.config_bytes)["history"] if not entry.get("empty_layer")]
    assert [entry.get("created_by") for entry in entries] == [None, "RUN y"]
    assert len(entries) == len(image.manifest.layers)


def test_same_build_is_the_same_image(tmp_path) -> None:
    first, second = (open_result(make_build(store), store) for store in (Store(tmp_path / "a"), Store(tmp_path / "b")))
    assert (first.manifest.raw, first.config_bytes) == (second.manifest.raw, second.config_bytes)


def test_key_depends_on_all_that_is_in_the_image(tmp_path) -> None:
    store = Store(tmp_path)
    build = make_build(store)
    other = build.result.state.after("RUN y", add_layer(store, b"y"))
    builds = [
        *(build, replace(build, created=1), replace(build, note="{}")),
        replace(build, recipe=replace(RECIPE, text="other")),
        replace(build, result=replace(build.result, section={})),
        replace(build, result=replace(build.result, author="me")),
        replace(build, result=replace(build.result, state=other)),
    ]
    assert len({one.key for one in builds}) == len(builds)
    assert build.key == make_build(Store(tmp_path / "again")).key


def test_image_is_kept_whole_in_the_cache(tmp_path) -> None:
    store = Store(tmp_path / "a")
    image = open_result(make_build(store), store)
    elsewhere = Store(tmp_path / "b")
    digest = keep_in_store(image, elsewhere)
    raw = elsewhere.read_blob(digest, 1 << 20)
    assert raw is not None
    manifest = parse_manifest(raw)
    assert all(elsewhere.has_blob(blob.digest, blob.size) for blob in (*manifest.layers, manifest.config))


def test_layer_with_other_bytes_is_not_kept(tmp_path) -> None:
    store = Store(tmp_path / "a")
    image = open_result(make_build(store), store)
    image.layers = (LayerSource("bad", image.layers[0].digest, image.layers[0].diff_id, lambda: iter([b"other"])),)
    elsewhere = Store(tmp_path / "b")
    with pytest.raises(DigestMismatch, match="damaged"):
        keep_in_store(image, elsewhere)
    digest = image.layers[0].digest
    assert isinstance(digest, Digest)
    assert not elsewhere.has_blob(digest)


BASES = {"docker://b:1": "sha256:" + "b" * 64, "docker://a:1": "sha256:" + "a" * 64}


def test_lock_is_written_sorted_read_again_and_not_touched_unchanged(tmp_path) -> None:
    path = tmp_path / "lock"
    assert read_lock(path) == {}
    write_lock(path, BASES)
    assert read_lock(path) == BASES
    assert path.read_text().index("docker://a") < path.read_text().index("docker://b")
    path = tmp_path / "lock"
    write_lock(path, BASES)
    before = path.stat().st_ino
    write_lock(path, BASES)
    assert path.stat().st_ino == before


@each_row("text", ["", "{", "[]", "{}", '{"version": 2, "bases": {}}', '{"version": 1, "bases": []}', "\0"])
def test_other_files_are_refused(tmp_path, text: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(InvalidRecipe, match="not a lock file"):
        read_lock(path)
