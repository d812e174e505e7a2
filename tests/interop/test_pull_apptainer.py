# SPDX-License-Identifier: BSD-3-Clause
"""Images that skopeo pushed to a registry in every shape, pulled by kedge, run and inspected by the real Apptainer.

Needs root, the Apptainer tree, docker-registry, skopeo and openssl.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import NodeKind, walk
from kedge.image.sources.open_local import open_sif
from tests.builders import layers as build
from tests.builders.apptainer import Apptainer
from tests.builders.busybox import read_busybox
from tests.builders.docker_registry import DockerRegistry, docker_registry
from tests.builders.images import make_config, rich_layers
from tests.builders.warm_kedge import kedge
from tests.interop.test_layers_tools import make_layout

pytestmark = [pytest.mark.peer, pytest.mark.root, pytest.mark.service]

DOCKER = "application/vnd.docker.image.rootfs.diff.tar"
OCI = "application/vnd.oci.image.layer.v1.tar"
SHAPES = {  # how skopeo is told, and the type that every layer then has
    "docker-gzip": (["--format", "v2s2"], f"{DOCKER}.gzip"),
    "oci-gzip": (["--format", "oci"], f"{OCI}+gzip"),
    "oci-zstd": (["--format", "oci", "--dest-compress-format", "zstd"], f"{OCI}+zstd"),
    "oci-plain": (["--preserve-digests"], OCI),
}
SECTION = {
    "Env": ["PATH=/bin", "GREETING=hello world"],
    "Entrypoint": ["/bin/printf", "[%s]"],
    "Cmd": ["default"],
    "Labels": {"maker": "kedge tests", "org.example/x": "a b"},
    "WorkingDir": "/data",
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    """A registry with the image in every shape, and one without a shell."""
    folder = tmp_path_factory.mktemp("registry")
    bare = [build.layer(build.folder("app"), build.file("app/busybox", read_busybox(), mode=0o755))]
    section = {"Entrypoint": ["/app/busybox", "printf", "<%s>"], "Cmd": ["none"], "Env": ["INSIDE=a 'b' $c"]}
    with docker_registry(folder) as running:
        for shape, (options, _) in SHAPES.items():
            # one file more in each layer: skopeo would reuse a layer that it knows to be there in another shape
            layers = [build.file(f"mark-{shape}") + layer for layer in rich_layers()]
            layout = make_layout(folder / shape, layers, make_config(layers, SECTION), is_packed=False)
            running.copy_in(f"oci:{layout}", f"team/rich:{shape}", *options)
        running.copy_in(f"oci:{make_layout(folder / 'bare', bare, make_config(bare, section))}", "team/bare:1")
        yield running


def pull(registry: DockerRegistry, peer: Apptainer, name: str) -> Path:
    path = peer.folder / f"{name.replace(':', '-').replace('/', '-')}.sif"
    if not path.exists():
        kedge("pull", path, f"docker://{registry.host}/{name}", cache=peer.folder / "cache")
        path.chmod(0o755)
    return path


def test_apptainer_runs_every_shape_and_their_files_are_the_same(registry: DockerRegistry, peer: Apptainer) -> None:
    trees, images = [], []
    for shape, (_, media_type) in SHAPES.items():
        manifest = registry.inspect(f"team/rich:{shape}")
        assert {layer["mediaType"] for layer in manifest["layers"]} == {media_type}  # type: ignore[attr-defined]
        images.append(pull(registry, peer, f"team/rich:{shape}"))
        image = open_sif(images[-1])
        files = {id(node): node for _, node in walk(image.root) if node.kind is NodeKind.FILE}
        for node in files.values():
            node.content = hashlib.sha256(b"".join(image.source.chunks(node))).digest()
        described = build.describe(image.root)
        trees.append({path: each for path, each in described.items() if not re.match(r"\.singularity\.d|mark-", path)})
        image.close()
    assert all(tree == trees[0] for tree in trees)
    assert len(trees[0]) > 40
    look = ("cat", "/data/replaced", "/data/full/seen", "/data/ünï")
    commands = [
        (("run",), "[default]"),
        (("run", "one", "two words"), "[one][two words]"),
        (("exec", *look), "aboveseennäme"),
    ]
    commands += [(("exec", "ls", "/data/full"), "seen\n")]
    asked = [((words[0], sif, *words[1:]), printed) for sif in images for words, printed in commands]
    answers = peer.answer(*(words for words, _ in asked))
    assert answers == [(0, printed) for _, printed in asked]


def test_apptainer_finds_what_the_image_says(registry: DockerRegistry, peer: Apptainer) -> None:
    sif = pull(registry, peer, "team/rich:docker-gzip")
    document = json.loads(peer.run("inspect", "--json", "--labels", "--deffile", sif).stdout)["data"]["attributes"]
    labels, definition = document["labels"], document["deffile"]
    assert (labels["maker"], labels["org.example/x"]) == ("kedge tests", "a b")
    assert labels["org.label-schema.usage.singularity.deffile.bootstrap"] == "docker"
    assert f"from: {registry.host}/team/rich:docker-gzip" in definition


def test_apptainer_runs_an_image_without_a_shell(registry: DockerRegistry, peer: Apptainer) -> None:
    sif = pull(registry, peer, "team/bare:1")
    words = [("run", sif), ("run", sif, "a b", "$HOME", "c"), ("run", "--no-eval", sif, "a b", "$HOME")]
    words += [("exec", sif, "/app/busybox", "env")]
    plain, evaluated, literal, environment = (output for _, output in peer.answer(*words))
    assert (plain, literal) == ("<none>", "<a b><$HOME>")
    assert evaluated.startswith("<a b><")
    assert "$HOME" not in evaluated
    assert "INSIDE=a 'b' $c\n" in environment


def test_apptainer_makes_the_same_of_the_same_image(registry: DockerRegistry, peer: Apptainer) -> None:
    """Its own pull of that reference runs the same and has the same files (its environment breaks on such values)."""
    theirs, ours = peer.folder / "theirs.sif", pull(registry, peer, "team/rich:oci-gzip")
    peer.run("pull", "--no-https", theirs, f"docker://{registry.host}/team/rich:oci-gzip")
    listing = "cd /; /bin/busybox find . -xdev ! -path './proc*' ! -path './sys*' ! -path './dev*' | /bin/busybox sort"
    commands = (("run",), ("run", "x y"), ("exec", "sh", "-c", listing))
    contained = {"run": (), "exec": ("--contain",)}
    ours, theirs = (
        peer.answer(*((words[0], *contained[words[0]], sif, *words[1:]) for words in commands))
        for sif in (ours, theirs)
    )
    assert ours == theirs
    assert len(ours[2][1].splitlines()) > 50
