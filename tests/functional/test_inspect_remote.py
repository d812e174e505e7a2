# SPDX-License-Identifier: BSD-3-Clause
"""`kedge inspect` of references: the answer of the pulled image, with manifest and config alone fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import FileProblem, ImageNotFound, KedgeError, NoMatchingPlatform, UnsupportedFormat, UsageError
from tests.builders.images import MACHINE, add_rich_image, make_config
from tests.builders.sif import fixture_path
from tests.builders.warm_kedge import kedge
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.fakes.registry import FakeRegistry, Policy, nvcr
from tests.wording import assert_says

PARTS = ("-l", "-d", "-r", "-s", "-t", "-e", "-H", "--list-apps", "--all", "--oci", "--json", "--json -e -r")


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A reference, and the SIF that was pulled from there."""
    folder = tmp_path_factory.mktemp("pulled")
    with FakeRegistry() as registry:
        add_rich_image(registry)
        reference = f"docker://{registry.host}/team/rich:1"
        kedge("pull", folder / "x.sif", reference, cache=folder / "c")
        yield reference, folder / "x.sif"


def test_inspect_remote_is_the_inspect_of_the_pulled_sif(pulled: tuple[str, Path], tmp_path: Path) -> None:
    both = {part: [kedge("inspect", *part.split(), each, cache=tmp_path).stdout for each in pulled] for part in PARTS}
    assert {part: texts for part, texts in both.items() if texts[0] != texts[1]} == {}
    assert {part for part, texts in both.items() if not texts[0]} <= {"-t", "-H", "--list-apps"}


def test_inspect_remote_fetches_manifest_and_config_only(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        config = json.loads(registry.manifests["team/rich", "1"][0])["config"]["digest"]
        reference = f"docker://{registry.host}/team/rich:1"
        kedge("inspect", reference, cache=tmp_path / "c")
        asked = [f"{each.method} {each.path}" for each in registry.server.log]
        assert asked == ["GET /v2/team/rich/manifests/1", f"GET /v2/team/rich/blobs/{config}"]
        kedge("inspect", reference, cache=tmp_path / "c")
        assert len(registry.server.log) == 3  # the tag is asked again, the config is known
    stopped = kedge("inspect", reference, cache=tmp_path / "c")
    assert "maker: kedge tests" in stopped.stdout
    assert " ago (sha256:" in stopped.stderr


def test_inspect_remote_uses_credentials_and_never_shows_them(tmp_path: Path) -> None:
    with FakeRegistry(nvcr(users={"user": "the-key"}, private=frozenset({"team/rich"}))) as registry:
        add_rich_image(registry)
        key = {"APPTAINER_DOCKER_USERNAME": "user", "APPTAINER_DOCKER_PASSWORD": "the-key"}
        reference = f"docker://{registry.host}/team/rich:1"
        done = kedge("-v", "inspect", reference, cache=tmp_path / "c", environment=key)
    assert "maker: kedge tests" in done.stdout
    assert "the-key" not in done.stdout + done.stderr


def test_inspect_remote_refusals(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        add_rich_image(registry)
        registry.add_image("team/other", "1", [b"x"], make_config([b"x"], {}, "s390x"))
        cases: list[tuple[str, type[KedgeError]]] = [
            (f"docker://{registry.host}/team/rich:no", ImageNotFound),
            (f"oras://{registry.host}/team/rich:1", UnsupportedFormat),
            ("instance://x", UsageError),
            ("./nothing", FileProblem),
            ("oci:nothing", FileProblem),
        ]
        for reference, error in cases:
            done = kedge("inspect", reference, cache=tmp_path / "c", check=False, cwd=tmp_path)
            assert done.returncode == error.exit_code, (reference, done.stderr)
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize("target", ["lay.oci", "x.oci.tar", "x.tar"])
def test_inspect_archives_as_their_sif(tmp_path: Path, target: str) -> None:
    """A folder and both kinds of archives, each by its name alone; prefixes are what conversions and pushes have."""
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    with FakeRegistry() as registry:
        add_rich_image(registry)
        made = "docker-archive:x.tar" if target == "x.tar" else target
        kedge("pull", made, f"docker://{registry.host}/team/rich:1", **here)
    remote = kedge("inspect", "--all", target, **here).stdout
    kedge("pull", "x.sif", target, **here)
    assert remote == kedge("inspect", "--all", "x.sif", **here).stdout
    assert json.loads(remote)["data"]["attributes"]["labels"]["maker"] == "kedge tests"


def test_inspect_host_packs_nothing_and_agrees(tmp_path: Path) -> None:
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    remote = kedge("inspect", "--all", "host:true", **here).stdout
    kedge("pull", "x.sif", "host:true", **here)
    assert remote == kedge("inspect", "--all", "x.sif", **here).stdout


def test_inspect_oras_reads_the_beginning_only(tmp_path: Path) -> None:
    sif = fixture_path("busybox_arm64.sif")
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    with FakeRegistry() as registry:
        kedge("push", sif, f"oras://{registry.host}/sif/busybox:1", **here)
        registry.server.log.clear()
        for reference in (f"oras://{registry.host}/sif/busybox:1", f"docker://{registry.host}/sif/busybox:1"):
            done = kedge("inspect", "--all", reference, **here)
            assert done.stdout == kedge("inspect", "--all", sif, **here).stdout
        assert len(registry.server.seen("/blobs/")) == 2  # one window each time
        assert len(registry.server.seen("/manifests/")) == 2  # and one manifest
        kedge("pull", "--link-mode", "copy", "x.sif", f"oras://{registry.host}/sif/busybox:1", **here)
        registry.server.log.clear()
        kedge("inspect", f"oras://{registry.host}/sif/busybox:1", **here)
        assert not registry.server.seen("/blobs/")  # it is in the cache now


def serve(data: bytes, *, ranges: bool = True) -> FakeServer:
    def answer(request: Recorded) -> Reply:
        headers = {"ETag": '"1"', "Content-Type": "application/octet-stream"}
        start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if not ranges or not start:
            return Reply(200, data, headers)
        return Reply(206, data[start:], {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

    return FakeServer(answer)


def test_inspect_address_without_metadata_reads_the_file_system_by_range(tmp_path: Path) -> None:
    """A bare SquashFS: superblock at the front, tables at the end, a script in between."""
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    with FakeRegistry() as registry:
        add_rich_image(registry)
        kedge("pull", "x.sqsh", f"docker://{registry.host}/team/rich:1", **here)
    data = (tmp_path / "x.sqsh").read_bytes()
    with serve(data) as server:
        remote = kedge("inspect", "--all", f"{server.url}/x.sqsh", **here)
        assert any("range" in each.headers for each in server.log)
    assert remote.stdout == kedge("inspect", "--all", "x.sqsh", **here).stdout
    with serve(data, ranges=False) as server:
        refused = kedge("inspect", f"{server.url}/x.sqsh", check=False, **here)
    assert refused.returncode == UnsupportedFormat.exit_code
    assert_says(refused.stderr, "image/pull-inspect-file")


def test_inspect_address_of_something_else_says_what_it_is(tmp_path: Path) -> None:
    with serve(b"just text, no image at all" * 100) as server:
        done = kedge("inspect", f"{server.url}/x.sif?token=hidden-word", cache=tmp_path / "c", check=False)
    assert done.returncode == UnsupportedFormat.exit_code
    assert "hidden-word" not in done.stderr


def test_inspect_chooses_the_architecture(tmp_path: Path) -> None:
    tar = b"x"
    with FakeRegistry(Policy()) as registry:
        entries = []
        for architecture in ("amd64", "arm64"):
            section = {"Labels": {"which": architecture}}
            digest = registry.add_image("team/multi", architecture, [tar], make_config([tar], section, architecture))
            entries.append(
                {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": str(digest),
                 "size": len(registry.manifests["team/multi", architecture][0]),
                 "platform": {"architecture": architecture, "os": "linux"}}
            )  # fmt: skip
        index = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
        registry.add_manifest("team/multi", "1", index, "application/vnd.oci.image.index.v1+json")
        reference = f"docker://{registry.host}/team/multi:1"
        for words, expected in (((), MACHINE), (("--arch", "amd64"), "amd64"), (("--arch", "aarch64"), "arm64")):
            assert f"which: {expected}" in kedge("inspect", *words, reference, cache=tmp_path / "c").stdout
        done = kedge("inspect", "--arch", "s390x", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == NoMatchingPlatform.exit_code
