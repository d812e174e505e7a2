# SPDX-License-Identifier: BSD-3-Clause
"""Bases of stages: every kind of image as layers and config, known by content, fetched late; and `--build-context`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.base.image_format import ImageFormat
from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.base.tree import walk
from kedge.builds.bases.bases import open_base
from kedge.builds.bases.named_contexts import name_reference, settle_context, settle_origin
from kedge.builds.step_values import Base, CopyOrigin, RecipePlace
from kedge.errors import ImageNotFound, InvalidRecipe
from kedge.image.formats.oci.writer import write_docker_archive, write_layout, write_oci_archive
from kedge.image.registry.access_options import AccessOptions
from kedge.image.sources.open_local import open_local_image
from kedge.image.workplace import Workplace
from kedge.image.write_image import WriteOptions, write_image
from kedge.system.outside import Outside
from kedge.system.settings import Settings
from tests.builders.layers import MemorySink
from tests.builders.oci_images import make_image
from tests.builders.rows import each_row, with_rows
from tests.fakes.registry import FakeRegistry

PLACE = RecipePlace("Dockerfile", 1, 1)
FILES = {"etc/motd": b"hello", "usr/share/data": b"x" * 5000}
SECTION = {"Env": ["PATH=/bin", "A=b"], "Cmd": ["/bin/sh"]}


@pytest.fixture(name="workplace")
def make_workplace(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setenv("KEDGE_NODEDIR", str(tmp_path / "node"))
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "cache"), "KEDGE_ARCH": "arm64"}
    return Workplace(Settings.load({}, environ), access=AccessOptions(no_https=True))


@pytest.fixture(name="store")
def make_store(workplace: Workplace):
    with workplace.open_store() as store:
        yield store


def list_paths(image) -> set[str]:
    return {path.decode() for path, _ in walk(image.fill(MemorySink()))}


def test_base_scratch_is_empty(workplace: Workplace, store) -> None:
    opened = open_base(Base(PLACE, "scratch"), workplace, store)
    assert (opened.open_image(), opened.unpack(), opened.section) == (None, None, {})


@pytest.mark.parametrize("kind", ["oci", "oci-archive", "docker-archive"])
def test_base_in_an_archive_keeps_layers_and_config(kind, tmp_path, workplace, store) -> None:
    path, image = tmp_path / "image", make_image([FILES, {"opt/new": b"1"}], section=SECTION)
    if kind == "oci":
        write_layout(path, [image])
    else:
        with path.open("wb") as file:
            (write_oci_archive if kind == "oci-archive" else write_docker_archive)(file, [image])
    opened = open_base(Base(PLACE, kind, str(path)), workplace, store)
    layered = opened.open_image()
    assert len(layered.layers) == 2
    assert opened.section["Env"] == SECTION["Env"]
    assert {"etc/motd", "opt/new"} <= list_paths(layered)
    root = opened.unpack()
    assert root is not None
    assert (root / "etc/motd").read_bytes() == b"hello"
    opened.close()


@pytest.mark.parametrize("form", [ImageFormat.SIF, ImageFormat.SANDBOX, ImageFormat.SQUASHFS])
def test_base_without_layers_becomes_one_layer_known_by_its_content(
    form: ImageFormat, tmp_path, workplace: Workplace, store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Platform, "host", lambda: workplace.platform)  # what a tree without programs is taken for
    write_layout(tmp_path / "layout", [make_image([FILES], section=SECTION)])
    keys = []
    for name in ("first.img", "second.img"):
        image = open_local_image(Reference.parse(f"oci:{tmp_path}/layout"), workplace)
        write_image(tmp_path / name, form, image, WriteOptions())
        image.close()
        opened = open_base(Base(PLACE, "localimage", str(tmp_path / name)), workplace, store)
        layered = opened.open_image()
        assert len(layered.layers) == 1
        assert opened.is_decorated
        assert {"etc/motd", ".singularity.d/runscript"} <= list_paths(layered)
        root = opened.unpack()
        assert root is not None
        assert (root / "usr/share/data").stat().st_size == 5000
        keys.append((opened.key, layered.layers[0].digest))
        opened.close()
    assert keys[0] == keys[1]


def test_base_in_a_registry_needs_no_layer_before_it_is_opened(workplace: Workplace, store) -> None:
    image = make_image([FILES], section=SECTION)
    with FakeRegistry() as registry:
        blobs = [b"".join(layer.open()) for layer in image.layers]
        digest = str(registry.add_image("team/base", "1", blobs, image.config))
        name = f"{registry.name}/team/base:1"
        opened = open_base(Base(PLACE, "docker", name), workplace, store)
        assert opened.digest == opened.key == digest
        assert opened.section == SECTION
        assert not store.has_blob(image.manifest.layers[0].digest)
        layered = opened.open_image()
        assert {"etc/motd"} <= list_paths(layered)
        root = opened.unpack()
        assert root is not None
        assert (root / "etc/motd").exists()
        registry.add_image("team/base", "1", blobs, image.config.replace(b"A=b", b"A=c"))
        locked = open_base(Base(PLACE, "docker", name), workplace, store, lock={f"docker://{name}": digest})
        assert locked.digest == digest
        assert open_base(Base(PLACE, "docker", name), workplace, store, policy="missing").digest == digest
        assert open_base(Base(PLACE, "docker", name), workplace, store).digest != digest
    with pytest.raises(ImageNotFound, match="forbids"):
        open_base(Base(PLACE, "docker", f"{registry.name}/team/other:1"), workplace, store, policy="never")


def test_base_that_was_asked_about_a_moment_ago_is_not_asked_about_again(tmp_path, store) -> None:
    environ = {"HOME": str(tmp_path), "KEDGE_ARCH": "arm64", "KEDGE_NOHTTPS": "1"}
    workplace = Workplace(Settings.load({}, environ))
    image = make_image([FILES], section=SECTION)
    with FakeRegistry() as registry:
        blobs = [b"".join(layer.open()) for layer in image.layers]
        old = str(registry.add_image("team/base", "1", blobs, image.config))
        base = Base(PLACE, "docker", f"{registry.name}/team/base:1")
        assert open_base(base, workplace, store).digest == old
        new = str(registry.add_image("team/base", "1", blobs, image.config.replace(b"A=b", b"A=c")))
        sent = len(registry.server.log)
        assert open_base(base, workplace, store).digest == old
        assert len(registry.server.log) == sent
        impatient = Workplace(Settings.load({}, {**environ, "KEDGE_TAG_LIFETIME": "0"}))
        assert open_base(base, impatient, store).digest == new
        registry.add_image("team/base", "1", blobs, image.config)
        with_login = Workplace(workplace.settings, access=AccessOptions(username="ada"))
        assert open_base(base, with_login, store).digest == old
        registry.add_image("team/base", "1", blobs, image.config.replace(b"A=b", b"A=c"))
        assert open_base(base, workplace, store, policy="newer").digest == new


@with_rows(
    ("docker", "ubuntu:24.04", {}, "docker://docker.io/library/ubuntu:24.04"),
    ("docker", "docker://ubuntu:24.04", {}, "docker://docker.io/library/ubuntu:24.04"),
    ("docker", "//ubuntu:24.04", {}, "docker://docker.io/library/ubuntu:24.04"),
    ("docker", "tool:1", {"registry": "example.org", "namespace": "team"}, "docker://example.org/team/tool:1"),
    ("docker", "oci:/images/base", {}, "oci:/images/base"),
    ("docker", "./base.sif", {}, "./base.sif"),
    ("docker", "host:5000/a/b:1", {}, "docker://host:5000/a/b:1"),
    ("library", "lolcow", {}, "library://library/default/lolcow"),
    ("library", "a/b/c:1", {"library": "https://library.example.org/"}, "library://library.example.org/a/b/c:1"),
    ("oras", "example.org/a:1", {}, "oras://example.org/a:1"),
    ("localimage", "base.sif", {}, "file:base.sif"),
    ("docker-daemon", "tool:latest", {}, "docker-daemon:tool:latest"),
)
def test_base_reference_from_a_header(agent: str, text: str, fields: dict[str, str], expected: str) -> None:
    assert (
        str(name_reference(Base(PLACE, agent, text, fields={key: Outside(value) for key, value in fields.items()})))
        == expected
    )


@each_row(
    ("agent", "text", "message"),
    [
        *(("shub", "a/b", "closed in 2021"), ("docker", "", "needs a 'From:' line")),
        *(("docker", "UPPER/case:tag", "Dockerfile:1:1"), ("magic", "x", "unknown")),
        ("docker", "a:b:c:d", "Dockerfile:1:1"),
    ],
)
def test_base_that_names_no_image_is_refused_with_its_line(agent, text, message, workplace, store) -> None:
    with pytest.raises(InvalidRecipe, match=message):
        open_base(Base(PLACE, agent, text), workplace, store)


@with_rows(
    *(("docker-image://alpine:3", "alpine:3"), ("oci:there", "oci:there"), ("oci-layout://there", "oci:there")),
    *(("../there", ""), ("local:../there", "")),
)
def test_named_contexts_are_images_or_directories(value: str, image: str) -> None:
    settled = settle_origin(CopyOrigin(name="x"), {"x": value}, PLACE)
    assert settled == (Base(PLACE, "docker", image) if image else Path("../there"))


def test_named_contexts_settle_bases() -> None:
    contexts = {"base": "docker-image://alpine:3", "files": "local:./files"}
    assert settle_context(Base(PLACE, "context", "base"), contexts) == Base(PLACE, "docker", "alpine:3")
    assert settle_context(Base(PLACE, "context", "files"), contexts) == Base(PLACE, "localimage", "./files")
    other = Base(PLACE, "docker", "base")
    assert settle_context(other, contexts) is other
