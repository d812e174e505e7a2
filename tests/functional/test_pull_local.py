# SPDX-License-Identifier: BSD-3-Clause
"""Images that are on this machine already: signed ones, those of another architecture; times, names and documents.

The signatures need openssl.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.manifest import DOCKER_LIST, OCI_INDEX, OCI_MANIFEST
from kedge.errors import NoMatchingPlatform
from kedge.image.sources.fetch_layers import parse_time
from tests.builders import layers as build
from tests.builders.images import MACHINE, add_rich_image, make_config
from tests.builders.pem_keys import make_pem
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

OTHER, OTHER_ELF = "s390x", b"\x7fELF\x02\x02\x01" + bytes(11) + b"\x00\x16"
FORMS = {
    "sif": "x.sif",
    "squashfs": "x.sqsh",
    "sandbox": "x",
    "oci": "oci:layout:1",
    "oci-archive": "x.oci.tar",
    "docker-archive": "x.docker.tar",
}


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A SIF with a signature, and the key to verify it."""
    folder = tmp_path_factory.mktemp("signed")
    private, public = make_pem(folder, "ed25519")
    with FakeRegistry() as registry:
        add_rich_image(registry)
        kedge("pull", folder / "x.sif", f"docker://{registry.host}/team/rich:1", cache=folder / "c")
    kedge("sign", "--key", private, folder / "x.sif", cache=folder / "c")
    return folder / "x.sif", public


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        yield served


def test_pull_of_a_local_sif_keeps_its_bytes_and_signatures(tmp_path: Path, signed: tuple[Path, Path]) -> None:
    image, key = signed
    done = kedge("pull", tmp_path / "y.sif", image, cache=tmp_path / "c")
    assert (tmp_path / "y.sif").read_bytes() == image.read_bytes()
    assert "signature" not in done.stderr
    kedge("verify", "--key", key, tmp_path / "y.sif", cache=tmp_path / "c")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--compress", "gzip", "y.sif"), "left out 1 signature(s) of {}"),
        (("--sandbox", "y"), "{}: its 1 signature(s) are not copied"),
        (("y.sqsh",), "{}: its 1 signature(s) are not copied"),
        (("oci:y",), "{}: its 1 signature(s) are not copied"),
    ],
)
def test_pull_says_where_signatures_are_dropped(tmp_path, signed, words, said):
    done = kedge("pull", *words, signed[0], cache=tmp_path / "c", cwd=tmp_path)
    assert said.format(signed[0]) in done.stderr


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an image for another machine in every form."""
    folder = tmp_path_factory.mktemp("foreign")
    tar = build.layer(build.folder("bin"), build.file("bin/true", OTHER_ELF + bytes(100), mode=0o755))
    with FakeRegistry() as registry:
        registry.add_image("team/other", "1", [build.compress(tar)], make_config([tar], None, OTHER))
        words = ("pull", "--arch", OTHER, "x.sif", f"docker://{registry.host}/team/other:1")
        kedge(*words, cache=folder / "cache", cwd=folder)
    for name in list(FORMS.values())[1:]:
        kedge("convert", "--arch", OTHER, "x.sif", name, cache=folder / "cache", cwd=folder)
    return folder


@pytest.mark.parametrize(("verb", "form"), [*(("convert", form) for form in FORMS), ("pull", "sif"), ("pull", "oci")])
def test_one_image_of_another_architecture_has_one_rule(foreign: Path, tmp_path: Path, verb: str, form: str) -> None:
    """Each form has a reader of its own; both verbs ask the same of it: a file and layers show that."""
    source, place = FORMS[form], str(tmp_path / "out.sif")
    words = [place, f"./{source}" if form == "sandbox" else source]
    words = words if verb == "pull" else words[::-1]
    here = {"cache": tmp_path / "c", "cwd": foreign}
    told = kedge(verb, *words, **here)
    assert_says(told.stderr, "pull/does-not-run-host", OTHER, MACHINE)
    refused = kedge(verb, "--arch", MACHINE, "-F", *words, check=False, **here)
    assert refused.returncode == NoMatchingPlatform.exit_code
    assert_says(refused.stderr, "pull/is-for-not-for", OTHER, MACHINE)
    assert "is for" not in kedge(verb, "--arch", OTHER, "-F", *words, **here).stderr


def test_the_only_image_of_an_index_follows_the_same_rule(tmp_path: Path, registry: FakeRegistry) -> None:
    tar = build.layer(build.file("x", b"x"))
    digest = registry.add_image("team/only", "plain", [build.compress(tar)], make_config([tar], {}, OTHER))
    entry = {"mediaType": OCI_MANIFEST, "digest": str(digest)}
    entry["size"] = len(registry.manifests["team/only", "plain"][0])
    platforms = [{"architecture": OTHER, "os": "linux"}, {"architecture": "unknown", "os": "unknown"}]
    index = {"schemaVersion": 2, "manifests": [{**entry, "platform": each} for each in platforms]}
    registry.add_manifest("team/only", "1", json.dumps(index).encode(), OCI_INDEX)
    reference, here = f"docker://{registry.host}/team/only:1", {"cache": tmp_path / "c"}
    told = kedge("pull", tmp_path / "x.sif", reference, **here)
    refused = kedge("pull", "--arch", MACHINE, tmp_path / "y.sif", reference, check=False, **here)
    assert_says(told.stderr, "pull/does-not-run-host", OTHER, MACHINE)
    assert refused.returncode == NoMatchingPlatform.exit_code


def test_an_image_for_another_machine_can_be_inspected(foreign: Path, tmp_path: Path) -> None:
    done = kedge("inspect", "docker-archive:x.docker.tar", cache=tmp_path / "c", cwd=foreign)
    assert "maker: kedge tests" in done.stdout
    assert "is for" not in done.stderr


def test_pulls_for_two_architectures_have_two_names(tmp_path: Path, registry: FakeRegistry) -> None:
    tar = build.layer(build.file("x", b"x"))
    entries = []
    for architecture in (MACHINE, OTHER):
        digest = registry.add_image(
            "team/both", architecture, [build.compress(tar)], make_config([tar], {}, architecture)
        )
        size = len(registry.manifests["team/both", architecture][0])
        platform = {"architecture": architecture, "os": "linux"}
        entries.append({"mediaType": OCI_MANIFEST, "digest": str(digest), "size": size, "platform": platform})
    document = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    registry.add_manifest("team/both", "1", document, DOCKER_LIST)
    words = (f"docker://{registry.host}/team/both:1",)
    for architecture in ((), ("--arch", MACHINE, "-F"), ("--arch", OTHER), ("--arch", OTHER, "--sandbox")):
        kedge("pull", *architecture, *words, cache=tmp_path / "c", cwd=tmp_path)
    kedge("pull", "--if-missing", "--arch", OTHER, *words, cache=tmp_path / "c", cwd=tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir() if path.name != "c")
    assert names == ["both_1.sif", f"both_1_{OTHER}", f"both_1_{OTHER}.sif"]
    header = kedge("sif", "header", tmp_path / f"both_1_{OTHER}.sif", cache=tmp_path / "c").stdout
    assert f"Primary Architecture: {OTHER}" in header


def test_layers_with_help_test_and_apps_keep_them(tmp_path: Path, registry: FakeRegistry) -> None:
    own = {"runscript.help": b"how to\n", "test": b"#!/bin/sh\ntrue\n", "runscript": b"replaced\n"}
    files = [build.file(f".singularity.d/{name}", text, mode=0o755) for name, text in own.items()]
    tar = build.layer(*files, build.file("scif/apps/foo/scif/runscript", b"run foo\n", mode=0o755))
    registry.add_image("team/own", "1", [build.compress(tar)], make_config([tar]))
    for name in ("x.sif", "box/"):
        kedge("pull", name, f"docker://{registry.host}/team/own:1", cache=tmp_path / "c", cwd=tmp_path)
    for words, said in (
        (("--helpfile",), "how to"),
        (("--test",), "true"),
        (("--list-apps",), "foo"),
        (("--app", "foo", "--runscript"), "run foo"),
        (("--runscript",), "OCI_ENTRYPOINT"),
    ):
        shown = kedge("inspect", *words, "x.sif", cache=tmp_path / "c", cwd=tmp_path).stdout
        assert said in shown
        assert shown == kedge("inspect", *words, "box", cache=tmp_path / "c", cwd=tmp_path).stdout


def test_apps_that_cannot_be_ones_do_not_stop_a_pull(tmp_path: Path, registry: FakeRegistry) -> None:
    apps = [build.file(f"scif/apps/a{n}/scif/runscript", b"x" * 1_000_000) for n in range(6)]
    tar = build.layer(*apps)
    registry.add_image("team/apps", "1", [build.compress(tar)], make_config([tar]))
    done = kedge("pull", tmp_path / "x.sif", f"docker://{registry.host}/team/apps:1", cache=tmp_path / "c")
    assert_says(done.stderr, "image/inspect-not-show-images-help")
    assert kedge("inspect", "--list-apps", tmp_path / "x.sif", cache=tmp_path / "c").stdout == ""


@each_row(
    "text",
    [
        "2024-03-05T07:08:09Z",
        "2024-03-05T09:08:09+02:00",
        "2024-03-05T01:38:09.123456789-05:30",
        "2024-03-05 07:08:09 +0000 UTC",
        "2024-03-05T07:08:09",
    ],
)
def test_created_is_read_with_its_time_zone(text: str) -> None:
    assert parse_time(text) == 1_709_622_489


def test_created_with_a_time_zone_is_the_build_date(tmp_path: Path, registry: FakeRegistry) -> None:
    tar = build.layer(build.file("x", b"x"))
    config = {**json.loads(make_config([tar])), "created": "2024-03-05T09:08:09+02:00"}
    registry.add_image("team/time", "1", [build.compress(tar)], json.dumps(config).encode())
    kedge("pull", tmp_path / "x.sif", f"docker://{registry.host}/team/time:1", cache=tmp_path / "c")
    shown = kedge("inspect", tmp_path / "x.sif", cache=tmp_path / "c").stdout
    assert "build-date: Tuesday_5_March_2024_7:8:9_UTC" in shown
