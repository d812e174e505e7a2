# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge pull` refuses or remarks before anything is downloaded: wrong platforms, lost blobs, precious outputs.

Needs no services and no root: the registry is in this process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge import errors
from kedge.base.manifest import OCI_INDEX, OCI_MANIFEST
from tests.builders import layers as build
from tests.builders.images import MACHINE, add_rich_image, make_config
from tests.builders.warm_kedge import kedge
from tests.fakes.http_server import Reply
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

OTHER = "s390x"


def add_alone(registry: FakeRegistry, **changes: object) -> str:
    """An image without an index, whose config differs from the usual one."""
    tar = build.layer(build.file("x", b"x"))
    config = {**json.loads(make_config([tar], {})), **changes}
    registry.add_image("team/alone", "1", [build.compress(tar)], json.dumps(config).encode())
    return f"docker://{registry.host}/team/alone:1"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        yield served


def test_pull_remarks_that_an_image_is_for_another_architecture_and_refuses_it_where_one_is_asked_for(
    tmp_path, registry
):
    reference = add_alone(registry, architecture=OTHER)
    for name in ("first.sif", "from-the-store.sif"):
        done = kedge("pull", "--json", tmp_path / name, reference, cache=tmp_path / "full")
        assert_says(done.stderr, "pull/does-not-run-host", OTHER, MACHINE)
        assert json.loads(done.stdout)["platform"] == f"linux/{OTHER}"
    for cache in ("full", "empty"):
        words = ("pull", "--arch", MACHINE, tmp_path / "x.sif", reference)
        done = kedge(*words, cache=tmp_path / cache, check=False)
        assert done.returncode == errors.NoMatchingPlatform.exit_code
        assert_says(done.stderr, "pull/is-for-not-for", OTHER, MACHINE)
    assert not (tmp_path / "x.sif").exists()


def test_pull_refuses_an_image_for_another_system(tmp_path: Path, registry: FakeRegistry) -> None:
    reference = add_alone(registry, os="windows")
    done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert registry.server.seen("blobs") == registry.server.seen("blobs")[:1], "the config only"
    assert done.returncode == errors.NoMatchingPlatform.exit_code
    assert "is for windows" in done.stderr


@pytest.mark.parametrize(
    ("platforms", "said", "hint"),
    [
        ([], "no platform at all", "try another tag"),
        ([{"architecture": "amd64", "os": "windows"}], "windows/amd64", "try another tag"),
        ([{"architecture": each, "os": "linux"} for each in (OTHER, "riscv64")], f"riscv64, {OTHER}", "with --arch"),
    ],
)
def test_pull_lists_what_an_index_has(tmp_path, platforms, said, hint, registry):
    entry = {"mediaType": OCI_MANIFEST, "digest": "sha256:" + "0" * 64, "size": 2}
    document = {"schemaVersion": 2, "manifests": [{**entry, "platform": each} for each in platforms]}
    registry.add_manifest("team/index", "1", json.dumps(document).encode(), OCI_INDEX)
    done = kedge("pull", f"docker://{registry.host}/team/index:1", cache=tmp_path / "c", cwd=tmp_path, check=False)
    assert done.returncode == errors.NoMatchingPlatform.exit_code
    assert_says(done.stderr.replace("linux/", ""), "base/it-is-there-for", said)
    assert hint in done.stderr


def test_pull_says_that_the_registry_lost_a_layer(tmp_path: Path, registry: FakeRegistry) -> None:
    add_rich_image(registry)
    lost = json.loads(registry.manifests["team/rich", "1"][0])["layers"][0]["digest"]
    registry.repository_blobs["team/rich"].remove(lost)
    done = kedge("pull", f"docker://{registry.host}/team/rich:1", cache=tmp_path / "c", cwd=tmp_path, check=False)
    assert done.returncode == errors.ImageNotFound.exit_code
    assert_says(done.stderr, "pull/lacks-blob-image", "team/rich", lost)
    assert "push the image again" in done.stderr


def test_pull_by_force_keeps_a_folder_of_other_things_and_a_pipe(tmp_path: Path, registry: FakeRegistry) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "thesis.tex").write_text("years")
    os.mkfifo(tmp_path / "pipe")
    add_rich_image(registry)
    for words in (("--format", "sif", "."), ("--sandbox", "."), ("--format", "oci", "."), ("../pipe",)):
        reference = f"docker://{registry.host}/team/rich:1"
        done = kedge("pull", "--force", *words, reference, cache=tmp_path / "c", cwd=work, check=False)
        assert done.returncode == errors.OutputExists.exit_code, words
    assert registry.server.log == [], "it is known before anything is asked"
    assert (work / "thesis.tex").read_text() == "years"
    assert (tmp_path / "pipe").is_fifo()


def test_pull_does_not_write_to_standard_output(tmp_path: Path) -> None:
    done = kedge("pull", "-", "host:true", cache=tmp_path / "c", cwd=tmp_path, check=False)
    assert done.returncode == errors.UsageError.exit_code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("depth", "code"), [(2, 0), (9, errors.RegistryProtocolError.exit_code)])
def test_pull_follows_indexes_of_indexes_but_not_for_ever(tmp_path, depth, code, registry):
    reference = add_alone(registry)
    raw, kind = registry.manifests["team/alone", "1"]
    for _ in range(depth):
        digest = str(registry.add_manifest("team/alone", "x", raw, kind))
        entry = {"mediaType": kind, "digest": digest, "size": len(raw)}
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
        raw, kind = json.dumps(index).encode(), OCI_INDEX
    registry.add_manifest("team/alone", "1", raw, kind)
    done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == code


def test_pull_uses_what_is_stored_when_the_registry_limits_us(tmp_path: Path, registry: FakeRegistry) -> None:
    reference = add_alone(registry)
    kedge("pull", tmp_path / "a.sif", reference, cache=tmp_path / "c")
    registry.server.fail("manifests", times=9, reply=Reply(429, b"{}", {"Retry-After": "3000"}))
    done = kedge("pull", tmp_path / "b.sif", reference, cache=tmp_path / "c")
    assert " ago (sha256:" in done.stderr
    assert (tmp_path / "b.sif").read_bytes() == (tmp_path / "a.sif").read_bytes()


@pytest.mark.parametrize(
    ("diff_ids", "error"),
    [([f"sha256:{'0' * 64}"], errors.DigestMismatch), ([f"sha256:{'0' * 64}"] * 2, errors.CorruptImage), ([], None)],
)
def test_pull_compares_layers_with_the_config(tmp_path, diff_ids, error, registry):
    reference = add_alone(registry, rootfs={"type": "layers", "diff_ids": diff_ids})
    done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == (error.exit_code if error else 0)
    assert (tmp_path / "x.sif").exists() == (error is None)
