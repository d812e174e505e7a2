# SPDX-License-Identifier: BSD-3-Clause
"""Builds on bases of a registry and pushes to it, as an ordinary user: names, digests, lock files, a lost network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.docker_registry import DockerRegistry, docker_registry

shop = warm_shop


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path) as running:
        yield running


def push_base(shop: Workshop, registry: DockerRegistry, text: str) -> None:
    shop.write("base.Dockerfile", f"{SHELL}RUN echo {text} > /text\nENV PATH=/bin\n")
    shop.build("-t", f"{registry.host}/base:1", "-f", "base.Dockerfile", "--push", ".")


def test_pushed_images_are_bases_and_locks_keep_them(shop: Workshop, registry: DockerRegistry) -> None:
    push_base(shop, registry, "first")
    layers = registry.inspect("base:1")["layers"]
    assert isinstance(layers, list)
    assert len(layers) == 3
    shop.write("Dockerfile", f"FROM {registry.host}/base:1\nRUN cat /text > /copy\nLABEL a=b\n")
    shop.build("--lock-file", "lock", "a.sif", "Dockerfile")
    locked = json.loads((shop.context / "lock").read_text())
    assert list(locked["bases"]) == [f"docker://{registry.host}/base:1"]
    push_base(shop, registry, "second")
    shop.build("--lock-file", "lock", "b.sif", "Dockerfile")
    assert shop.read("b.sif", "/copy") == "first\n"
    assert json.loads((shop.context / "lock").read_text()) == locked
    shop.build("--pull", "--lock-file", "lock", "c.sif", "Dockerfile")
    assert shop.read("c.sif", "/copy") == "second\n"
    assert json.loads((shop.context / "lock").read_text()) != locked


def test_a_dry_run_says_the_bytes_it_knows(shop: Workshop, registry: DockerRegistry) -> None:
    push_base(shop, registry, "first")
    shop.write("Dockerfile", f"FROM {registry.host}/base:1\nRUN cat /text > /copy\nRUN true\n")
    elsewhere = {"KEDGE_CACHEDIR": str(shop.runner.home / "other-cache")}
    (stage,) = json.loads(shop.start("--dry-run", "--json", "a.sif", "Dockerfile", env=elsewhere).stdout)["stages"]
    layers = registry.inspect("base:1")["layers"]
    assert isinstance(layers, list)
    assert stage["missing"] == stage["size"] == sum(layer["size"] for layer in layers)
    assert " to download)" in shop.start("--dry-run", "a.sif", "Dockerfile", env=elsewhere).stdout
    shop.build("a.sif", "Dockerfile")
    (stage,) = json.loads(shop.start("--dry-run", "--json", "b.sif", "Dockerfile").stdout)["stages"]
    assert stage["missing"] == 0
    assert [(step["state"], step["size"] > 0) for step in stage["steps"]] == [("cached", True), ("cached", False)]
    shown = shop.start("--dry-run", "b.sif", "Dockerfile").stdout
    assert ", cached)" in shown
    assert "RUN cat /text > /copy (" in shown


def test_image_is_pushed_beside_a_file(shop: Workshop, registry: DockerRegistry) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN echo both > /text\n")
    result = shop.build("-t", f"{registry.host}/both:1", "--push", "-o", "out.sif", ".")
    assert result["size"] == (shop.context / "out.sif").stat().st_size
    assert registry.inspect("both:1")["layers"]
    assert shop.read("out.sif", "/text") == "both\n"


def test_cached_build_needs_no_network(shop: Workshop, registry: DockerRegistry) -> None:
    push_base(shop, registry, "first")
    shop.write("Dockerfile", f"FROM {registry.host}/base:1\nRUN cat /text\n")
    shop.build("a.sif", "Dockerfile")
    registry.stop()
    assert shop.states("--pull=never", "b.sif", "Dockerfile") == ["cached"]
    shop.write("Dockerfile", f"FROM {registry.host}/base:2\nRUN cat /text\n")
    done = shop.start("c.sif", "Dockerfile", env={"KEDGE_RETRIES": "0"})
    assert done.returncode not in (0, 1, 91)
    assert registry.host in done.stderr
    assert shop.list_builds() == []


def test_every_result_says_what_it_was_built_from(shop: Workshop, registry: DockerRegistry) -> None:
    push_base(shop, registry, "first")
    shop.write("Dockerfile", f"ARG NAME=x\nFROM {registry.host}/base:1\nARG NAME\nRUN echo $NAME > /name\n")
    recipe = (shop.context / "Dockerfile").read_text().strip()
    shop.build("-t", f"{registry.host}/made:1", "--push", "--build-arg", "NAME=me", ".")
    shop.build("--build-arg", "NAME=me", "oci:layout:1", ".")
    shop.build("--build-arg", "NAME=me", "x.oci.tar", ".")
    shop.build("--build-arg", "NAME=me", "x.docker.tar", ".")
    shop.build("--build-arg", "NAME=me", "x.sif", ".")
    place = shop.context
    shop.runner.read("push", "--no-https", f"{place}/x.sif", f"docker://{registry.host}/sif:1")
    shop.runner.read("pull", "--no-https", f"{place}/pulled.sif", f"docker://{registry.host}/made:1")
    for image in (
        *(f"docker://{registry.host}/{name}:1" for name in ("made", "sif")),
        *(f"oci:{place}/layout:1", f"oci-archive:{place}/x.oci.tar", f"docker-archive:{place}/x.docker.tar"),
        *(f"{place}/x.sif", f"{place}/pulled.sif"),
    ):
        options = ["--no-https"] if image.startswith("docker://") else []
        said = json.loads(shop.runner.read("inspect", *options, "--all", "--json", image))
        assert said["data"]["attributes"]["deffile"].strip() == recipe, image
        build = said["data"]["attributes"]["build"]
        assert build["arguments"] == {"NAME": "me"}, image
        assert [base["reference"] for base in build["bases"]] == [f"docker://{registry.host}/base:1"]
        assert build["bases"][0]["digest"].startswith("sha256:")
        assert build["kedge"]
        assert build["recipe"]["kind"] == "dockerfile"
        assert "RUN echo $NAME > /name" in build["steps"]
    config = json.loads(shop.runner.read("inspect", "--oci", "--json", f"oci:{place}/layout:1"))
    assert "kedge.build.v1" not in config  # it stands beside the section
