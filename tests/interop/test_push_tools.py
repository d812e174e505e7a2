# SPDX-License-Identifier: BSD-3-Clause
"""What kedge pushes and converts, taken by others: docker-registry, skopeo, umoci, unsquashfs, Charliecloud, Apptainer.

The tests with Apptainer and Charliecloud need root and the Apptainer tree (markers: peer, root).
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.formats.sif.reader import SifReader
from tests.builders import layers as build
from tests.builders.apptainer import Apptainer
from tests.builders.docker_registry import DockerRegistry, docker_registry
from tests.builders.images import add_rich_image, hash_file, make_config, rich_layers
from tests.builders.skopeo import run_skopeo
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program

pytestmark = pytest.mark.service

DEFINITION = """\
Bootstrap: localimage
From: {source}
%files
    {folder}/note /note
%environment
    export COLOUR="dark blue"
%runscript
    echo "$COLOUR: $(cat /note) $*"
%labels
    Author somebody
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    with FakeRegistry() as registry:
        add_rich_image(registry)
        for name in ("x.sif", "oci:lay:1"):
            kedge("pull", name, f"docker://{registry.host}/team/rich:1", cache=folder / "cache", cwd=folder)
        base = rich_layers()[0]  # without devices, which an ordinary user cannot unpack
        registry.add_image("team/base", "1", [build.compress(base)], make_config([base]))
        kedge("pull", "base.sif", f"docker://{registry.host}/team/base:1", cache=folder / "cache", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path_factory.mktemp("registry"), htpasswd={"user": "p4ssword"}) as running:
        yield running


LOGIN = {"KEDGE_DOCKER_USERNAME": "user", "KEDGE_DOCKER_PASSWORD": "p4ssword"}


@pytest.mark.parametrize("source", ["x.sif", "oci:lay"])
def test_push_to_the_real_registry_is_read_by_skopeo(
    images: Path, registry: DockerRegistry, tmp_path: Path, source: str
) -> None:
    name = "made/" + source.replace(":", "-").replace(".", "-")
    here = {"cache": tmp_path / "c", "cwd": images, "environment": LOGIN}
    first = json.loads(kedge("push", "--json", source, f"docker://{registry.host}/{name}:1", **here).stdout)
    assert first["sent"] > 1_000_000
    again = json.loads(kedge("push", "--json", source, f"docker://{registry.host}/{name}:1", **here).stdout)
    assert (again["sent"], again["digest"]) == (0, first["digest"])
    moved = json.loads(kedge("push", "--json", source, f"docker://{registry.host}/other/{name}:1", **here).stdout)
    assert moved["sent"] < 2000  # the layers are mounted, only the config goes
    registry.copy_out(f"{name}:1", f"oci:{tmp_path / 'out'}:1")
    index = json.loads((tmp_path / "out/index.json").read_text())
    assert index["manifests"][0]["digest"] == first["digest"]
    kedge("pull", tmp_path / "back.sif", f"oci:{tmp_path / 'out'}:1", cache=tmp_path / "c")


def test_converted_layouts_are_unpacked_by_umoci(images: Path, tmp_path: Path) -> None:
    kedge("convert", images / "x.sif", f"oci:{tmp_path / 'lay'}:1", cache=tmp_path / "c")
    kedge("convert", images / "x.sif", tmp_path / "x.docker.tar", cache=tmp_path / "c")
    kedge("convert", tmp_path / "x.docker.tar", f"oci:{tmp_path / 'lay2'}:1", cache=tmp_path / "c")
    for name in ("lay", "lay2"):
        argv = [require_program("umoci"), "unpack", "--rootless", "--image", f"{tmp_path / name}:1", tmp_path / "out"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "out/rootfs/data/replaced").read_text() == "above"
        config = json.loads((tmp_path / "out/config.json").read_text())
        assert "GREETING=hello world" in config["process"]["env"]
        assert config["process"]["args"] == ["/bin/printf", "[%s]", "default"]
        shutil.rmtree(tmp_path / "out")


def test_converted_docker_archive_is_read_by_skopeo(images: Path, tmp_path: Path) -> None:
    kedge("convert", images / "x.sif", f"docker-archive:{tmp_path / 'x.tar'}:a/b:1", cache=tmp_path / "c")
    found = json.loads(run_skopeo(tmp_path, "inspect", f"docker-archive:{tmp_path / 'x.tar'}:a/b:1"))
    assert found["Name"] == "docker.io/a/b"
    assert found["Env"] == ["PATH=/bin", "GREETING=hello world"]


def test_converted_squashfs_is_extracted_by_unsquashfs(images: Path, tmp_path: Path) -> None:
    program = require_program("unsquashfs")
    for name, words in (("a.sqsh", ()), ("b.sqsh", ("--compress", "gzip")), ("c.sqsh", ("--compress", "lz4"))):
        kedge("convert", *words, images / "x.sif", tmp_path / name, cache=tmp_path / "c")
        argv = [program, "-q", "-n", "-no-xattrs", "-d", tmp_path / "out", tmp_path / name, "data/big", "data/replaced"]
        subprocess.run(argv, capture_output=True, check=True)
        assert (tmp_path / "out/data/replaced").read_text() == "above"
        shutil.rmtree(tmp_path / "out")


@pytest.mark.peer
@pytest.mark.root
def test_squashfs_and_sandbox_run_in_charliecloud(images: Path, peer: Apptainer, tmp_path: Path) -> None:
    for name in ("x.sqsh", "box"):
        kedge("convert", images / "x.sif", peer.folder / name, cache=tmp_path / "c")
        peer.own(peer.folder / name)
        assert peer.run("ch-run", name, "--", "/bin/printf", "[%s]", "hi", shell=True).stdout == "[hi]"


@pytest.mark.peer
@pytest.mark.root
def test_conversions_run_in_apptainer(images: Path, peer: Apptainer, tmp_path: Path) -> None:
    """A SIF that went through a directory, an archive and another codec still runs as it did."""
    here = {"cache": tmp_path / "c", "cwd": peer.folder}
    kedge("convert", images / "x.sif", "folder", **here)
    way = ["folder", "one.sif", "two.oci.tar", "three.sif", "four.sif", "five.sqsh"]
    for source, target in itertools.pairwise(way):
        kedge("convert", *(("--compress", "gzip") if target == "four.sif" else ()), source, target, **here)
    names = [name for name in way[1:] if name != "two.oci.tar"]
    show = ("/bin/sh", "-c", 'printf %s "$GREETING"')
    asked = [each for name in names for each in (("run", name), ("exec", name, *show))]
    asked.append(("exec", "oci-archive:two.oci.tar", "/bin/cat", "/data/replaced"))
    assert peer.answer(*asked) == [*[(0, "[default]"), (0, "hello world")] * len(names), (0, "above")]


@pytest.mark.peer
@pytest.mark.root
def test_oras_both_ways_with_apptainer(images: Path, peer: Apptainer, tmp_path: Path) -> None:
    with docker_registry(tmp_path) as registry:
        here = {"cache": tmp_path / "c", "cwd": peer.folder}
        kedge("push", images / "x.sif", f"oras://{registry.host}/ours/x:1", **here)
        peer.run("pull", "--no-https", "a.sif", f"oras://{registry.host}/ours/x:1")
        assert hash_file(peer.folder / "a.sif") == hash_file(images / "x.sif")
        theirs = f"oras://{registry.host}/theirs/x:1"
        peer.run("push", "--no-https", "-U", "a.sif", theirs)
        kedge("pull", "b.sif", theirs, **here)
        assert hash_file(peer.folder / "b.sif") == hash_file(images / "x.sif")
        remote = kedge("inspect", "--all", theirs, **here).stdout
        assert remote == kedge("inspect", "--all", "b.sif", **here).stdout


@pytest.mark.peer
@pytest.mark.root
def test_pushed_layers_of_a_definition_file_build_run_in_apptainer(
    images: Path, peer: Apptainer, tmp_path: Path
) -> None:
    """Apptainer builds from a definition file, kedge pushes it as layers, both pull it: it runs as before."""
    shutil.copy(images / "base.sif", peer.folder)
    (peer.folder / "note").write_text("noted")
    text = DEFINITION.format(source=peer.folder / "base.sif", folder=peer.folder)
    (peer.folder / "it.def").write_text(text)
    peer.run("build", "built.sif", "it.def")
    with docker_registry(tmp_path) as registry:
        here = {"cache": tmp_path / "c", "cwd": peer.folder}
        name = f"docker://{registry.host}/built/it:1"
        kedge("push", "built.sif", name, **here)
        assert "Author: somebody" in kedge("inspect", name, **here).stdout
        kedge("pull", "ours.sif", name, **here)
        peer.run("pull", "--no-https", "theirs.sif", name)
    sifs = ("built.sif", "ours.sif", "theirs.sif")
    show = ("/bin/sh", "-c", "echo $COLOUR")
    answers = peer.answer(*(each for sif in sifs for each in (("run", sif, "x y"), ("exec", sif, *show))))
    assert answers == [(0, "dark blue: noted x y\n"), (0, "dark blue\n")] * len(sifs)
    with (peer.folder / "ours.sif").open("rb") as file:
        assert len(SifReader(file).descriptors) == 4
