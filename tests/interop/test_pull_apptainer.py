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
from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.busybox import read_busybox
from tests.builders.docker_registry import DockerRegistry, docker_registry
from tests.builders.images import kedge, make_config, rich_layers
from tests.builders.pem_keys import make_pem

pytestmark = [pytest.mark.peer, pytest.mark.root, pytest.mark.service]

DOCKER = "application/vnd.docker.image.rootfs.diff.tar"
OCI = "application/vnd.oci.image.layer.v1.tar"
SHAPES = {  # how skopeo is told, and the type that every layer then has
    "docker-gzip": (["--format", "v2s2"], f"{DOCKER}.gzip"),
    "oci-gzip": (["--format", "oci"], f"{OCI}+gzip"),
    "oci-zstd": (["--format", "oci", "--dest-compress-format", "zstd"], f"{OCI}+zstd"),
    "oci-plain": (["--preserve-digests"], OCI),
}
NASTY = {
    "DOLLAR": "a$HOME`id`",
    "QUOTES": "'\"",
    "SPACES": " two  words ",
    "EQUALS": "a=b=c",
    "ACCENT": "é日",
    "EMPTY": "",
}
SECTION = {
    "Env": ["PATH=/bin", "GREETING=hello world", *(f"{name}={value}" for name, value in NASTY.items())],
    "Entrypoint": ["/bin/printf", "[%s]"],
    "Cmd": ["default"],
    "Labels": {"maker": "kedge tests", "org.example/x": "a b"},
    "WorkingDir": "/data",
}


def write_layout(folder: Path, layers: list[bytes], config: bytes) -> str:
    """An OCI layout with uncompressed layers; returns skopeo's name for it."""
    (folder / "blobs/sha256").mkdir(parents=True)

    def store(data: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": store(config, "application/vnd.oci.image.config.v1+json"),
        "layers": [store(layer, OCI) for layer in layers],
    }
    entry = store(json.dumps(manifest).encode(), str(manifest["mediaType"]))
    entry["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return f"oci:{folder}:1"


@pytest.fixture(scope="module")
def peer() -> Iterator[Apptainer]:
    with apptainer_folder() as running:
        yield running


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
            layout = write_layout(folder / shape, layers, make_config(layers, SECTION))
            running.copy_in(layout, f"team/rich:{shape}", *options)
        running.copy_in(write_layout(folder / "bare", bare, make_config(bare, section)), "team/bare:1")
        yield running


def pull(registry: DockerRegistry, peer: Apptainer, name: str) -> Path:
    path = peer.folder / f"{name.replace(':', '-').replace('/', '-')}.sif"
    if not path.exists():
        kedge("pull", path, f"docker://{registry.host}/{name}", cache=peer.folder / "cache")
        path.chmod(0o755)
    return path


@pytest.fixture(params=SHAPES)
def sif(request: pytest.FixtureRequest, registry: DockerRegistry, peer: Apptainer) -> Path:
    manifest = registry.inspect(f"team/rich:{request.param}")
    assert {layer["mediaType"] for layer in manifest["layers"]} == {SHAPES[request.param][1]}  # type: ignore[attr-defined]
    return pull(registry, peer, f"team/rich:{request.param}")


def test_apptainer_runs_every_shape(sif: Path, peer: Apptainer) -> None:
    assert peer.run("run", sif).stdout == "[default]"
    assert peer.run("run", sif, "one", "two words").stdout == "[one][two words]"
    assert peer.run("exec", sif, "cat", "/data/replaced", "/data/full/seen", "/data/ünï").stdout == "aboveseennäme"
    assert peer.run("exec", sif, "ls", "/data/full").stdout == "seen\n"
    assert peer.run("exec", sif, "cat", "/data/old", check=False).returncode != 0


def test_apptainer_sees_the_environment(sif: Path, peer: Apptainer) -> None:
    done = peer.run("exec", sif, "sh", "-c", "".join(f'printf "%s\\001" "${name}";' for name in ("GREETING", *NASTY)))
    assert done.stdout.split("\x01")[:-1] == ["hello world", *NASTY.values()]
    assert peer.run("exec", sif, "sh", "-c", "echo $PATH").stdout.startswith("/bin")


@pytest.mark.parametrize(
    "flags",
    [(), ("--json",), ("--deffile",), ("--runscript",), ("--environment",), ("--labels",), ("--startscript",),
     ("--all",), ("--json", "--labels", "--deffile", "--runscript", "--environment")],
)  # fmt: skip
def test_apptainer_inspects_as_kedge_does(
    registry: DockerRegistry, peer: Apptainer, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    sif = pull(registry, peer, "team/rich:oci-gzip")
    theirs = peer.run("inspect", *flags, sif).stdout
    assert theirs.strip()
    assert kedge("inspect", *flags, sif, cache=tmp_path).stdout == theirs


def test_apptainer_finds_what_the_image_says(registry: DockerRegistry, peer: Apptainer) -> None:
    sif = pull(registry, peer, "team/rich:docker-gzip")
    document = json.loads(peer.run("inspect", "--json", "--labels", "--deffile", sif).stdout)
    labels = document["data"]["attributes"]["labels"]
    assert (labels["maker"], labels["org.example/x"]) == ("kedge tests", "a b")
    assert labels["org.label-schema.usage.singularity.deffile.bootstrap"] == "docker"
    definition = document["data"]["attributes"]["deffile"]
    assert f"from: {registry.host}/team/rich:docker-gzip" in definition
    assert "GREETING" in peer.run("inspect", "--environment", sif).stdout
    assert "/bin/printf" in peer.run("inspect", "--runscript", sif).stdout


def test_apptainer_lists_and_verifies(sif: Path, peer: Apptainer, tmp_path: Path) -> None:
    for verb in ("list", "header"):
        assert kedge("sif", verb, sif, cache=tmp_path).stdout == peer.run("sif", verb, sif).stdout
    private, public = make_pem(tmp_path, "ed25519")
    signed = peer.folder / "signed.sif"
    signed.write_bytes(sif.read_bytes())
    signed.chmod(0o755)
    shared_key = peer.folder / "public.pem"
    shared_key.write_bytes(public.read_bytes())
    kedge("sign", "--key", private, signed, cache=tmp_path)
    peer.run("verify", "--key", shared_key, peer.own(signed))
    assert peer.run("run", signed).stdout == "[default]"
    assert peer.run("verify", "--key", shared_key, sif, check=False).returncode != 0
    data = bytearray(signed.read_bytes())
    data[-data.__len__() // 2] ^= 1  # in the partition
    signed.write_bytes(bytes(data))
    assert peer.run("verify", "--key", shared_key, signed, check=False).returncode != 0


def test_apptainer_runs_an_image_without_a_shell(registry: DockerRegistry, peer: Apptainer) -> None:
    sif = pull(registry, peer, "team/bare:1")
    assert peer.run("run", sif).stdout == "<none>"
    assert peer.run("run", sif, "a b", "$HOME", "c").stdout.startswith("<a b><")
    assert peer.run("run", "--no-eval", sif, "a b", "$HOME").stdout == "<a b><$HOME>"
    assert peer.run("exec", sif, "/app/busybox", "echo", "fine").stdout == "fine\n"
    found = peer.run("exec", sif, "/app/busybox", "env").stdout
    assert "INSIDE=a 'b' $c\n" in found


def test_every_shape_gives_the_same_files(registry: DockerRegistry, peer: Apptainer) -> None:
    trees = []
    for shape in SHAPES:
        image = open_sif(pull(registry, peer, f"team/rich:{shape}"))
        files = {id(node): node for _, node in walk(image.root) if node.kind is NodeKind.FILE}
        for node in files.values():
            node.content = hashlib.sha256(b"".join(image.source.chunks(node))).digest()
        described = build.describe(image.root)
        trees.append({path: each for path, each in described.items() if not re.match(r"\.singularity\.d|mark-", path)})
        image.close()
    assert all(tree == trees[0] for tree in trees)
    assert len(trees[0]) > 40


def test_apptainer_makes_the_same_of_the_same_image(registry: DockerRegistry, peer: Apptainer) -> None:
    """Its own pull of that reference runs the same and has the same files (its environment breaks on such values)."""
    name = f"docker://{registry.host}/team/rich:oci-gzip"
    theirs, ours = peer.folder / "theirs.sif", pull(registry, peer, "team/rich:oci-gzip")
    peer.run("pull", "--no-https", theirs, name)
    for words in (["run"], ["run", "x y"]):
        assert peer.run(words[0], ours, *words[1:]).stdout == peer.run(words[0], theirs, *words[1:]).stdout
    listing = "cd /; for f in $(/bin/busybox find . -xdev ! -path './proc*' ! -path './sys*' ! -path './dev*' | "
    listing += "/bin/busybox sort); do /bin/busybox stat -c '%n %a %F %s' $f; done"
    seen = [peer.run("exec", "--contain", sif, "sh", "-c", listing).stdout for sif in (ours, theirs)]
    assert len(seen[0].splitlines()) > 50
    names = [[line.split()[0] for line in text.splitlines()] for text in seen]
    assert names[0] == names[1]
