# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image size` and `kedge image diff` as people type them: references, SIFs, directories; tables, JSON, pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.images import make_config, rich_layers
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.functional.test_json_keys import list_keys, read_page
from tests.wording import assert_says

SITE = "usr/lib/python3/dist-packages"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A base in a registry, what was built on it, and a SIF of that."""
    folder = tmp_path_factory.mktemp("images")
    base = rich_layers()
    top = build.layer(
        build.file(f"{SITE}/tool-1.0.dist-info/METADATA", b"Name: tool\nVersion: 1.0\n"),
        build.file("var/lib/apt/lists/main", b"x" * 300_000),
        build.file("opt/first.so", b"s" * 200_000),
        build.file("opt/second.so", b"s" * 200_000),
        build.file("bin/busybox", b"changed", mode=0o755),
    )
    with FakeRegistry() as registry:
        registry.add_image("team/base", "1", [build.compress(tar) for tar in base], make_config(base))
        tars = [*base, top]
        section = {"Env": ["PATH=/bin", "NEW=1"]}
        registry.add_image("team/new", "1", [build.compress(tar) for tar in tars], make_config(tars, section))
        names = [f"docker://{registry.host}/team/{name}:1" for name in ("base", "new")]
        kedge("pull", folder / "new.sif", names[1], cache=folder / "c")
        yield names[0], names[1], folder / "new.sif"


def test_image_diff_of_references_reads_shared_layers_once(images: tuple[str, str, Path], tmp_path: Path) -> None:
    done = kedge("image", "diff", "--json", *images[:2], cache=tmp_path / "c")
    document = json.loads(done.stdout)
    assert set(list_keys(document)) == read_page("kedge image diff")
    assert document["shared_layers"] == 3
    assert [change["name"] for change in document["packages"]] == ["tool"]
    changes = {change["path"]: change["change"] for change in document["files"]}
    assert changes["/bin/busybox"] == "changed"
    assert changes["/opt/first.so"] == "added"
    assert {change["name"] for change in document["config"]} >= {"Env NEW"}


def test_image_diff_of_a_reference_and_its_sif_is_empty(images: tuple[str, str, Path], tmp_path: Path) -> None:
    done = kedge("image", "diff", "--json", images[1], images[2], cache=tmp_path / "c")
    document = json.loads(done.stdout)
    assert document["files"] == []
    assert document["packages"] == []


def test_image_diff_prints_tables(images: tuple[str, str, Path], tmp_path: Path) -> None:
    text = kedge("image", "diff", *images[:2], cache=tmp_path / "c").stdout
    assert_says(text, "image/packages-installed-removed-changed", 1, 0, 0)
    assert "tool     -       1.0    pip" in text
    assert "Files: " in text
    same = kedge("image", "diff", images[0], images[0], cache=tmp_path / "c").stdout
    assert "do not differ" in same


def test_image_size_prints_what_can_go_and_writes_a_page(images: tuple[str, str, Path], tmp_path: Path) -> None:
    page = tmp_path / "size.html"
    text = kedge("image", "size", "--page", page, images[1], cache=tmp_path / "c").stdout
    assert "can go without loss:" in text
    assert "package lists of apt" in text
    assert "-> RUN apt-get update && apt-get install" in text
    assert "2       /opt/first.so  /opt/second.so" in text
    assert "<svg" in page.read_text()
    refused = kedge("image", "size", "--page", page, images[1], cache=tmp_path / "c", check=False)
    assert "exists" in refused.stderr
    assert kedge("image", "size", images[2], cache=tmp_path / "c").stdout.startswith(
        f"{images[2]}: "
    )  # as it was typed


@pytest.mark.parametrize("place", [1, 2])
def test_image_size_as_json(images: tuple[str, str, Path], tmp_path: Path, place: int) -> None:
    document = json.loads(kedge("image", "size", "--json", images[place], cache=tmp_path / "c").stdout)
    documented = read_page("kedge image size")
    assert set(list_keys(document)) == {key for key in documented if place == 1 or not key.startswith("layers[]")} | (
        set() if place == 1 else {"layers"}
    )
    assert {saving["name"] for saving in document["savings"]} >= {"apt-lists", "duplicates"}
