# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pull` against an in-process registry: names, forms, the store, broken connections, limits, refusals."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge import errors
from kedge.image.sources.open_local import open_sif
from tests.builders import layers as build
from tests.builders.images import add_rich_image, hash_file, make_config, noise
from tests.builders.images import kedge as start_kedge
from tests.builders.warm_kedge import kedge
from tests.fakes.http_server import Reply
from tests.fakes.registry import FakeRegistry, nvcr
from tests.wording import assert_says


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """It has the rich image."""
    with FakeRegistry() as served:
        add_rich_image(served)
        yield served


def leftovers(folder: Path, *, may_resume: bool = False) -> list[str]:
    """Names that only a process that was not finished leaves, beside its output or in a store."""
    passing = ("tmp", "leases", "using") if may_resume else ("tmp", "leases", "using", "partial")
    return sorted(path.name for path in folder.rglob("*") if "tmp-" in path.name or path.parent.name in passing)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and its child, and wait for both: on a busy machine the child is there for a while yet."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.02)


def test_pull_names_the_sif_as_apptainer_does(tmp_path: Path, registry: FakeRegistry) -> None:
    done = kedge("pull", "--json", f"docker://{registry.host}/team/rich:1", cache=tmp_path / "c", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["output"] == "rich_1.sif"
    assert answer["size"] == (tmp_path / "rich_1.sif").stat().st_size
    assert os.access(tmp_path / "rich_1.sif", os.X_OK)
    assert leftovers(tmp_path) == []


def test_pull_gives_the_flattened_tree(tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("pull", tmp_path / "x.sif", f"docker://{registry.host}/team/rich:1", cache=tmp_path / "c")
    image = open_sif(tmp_path / "x.sif")
    data = image.root.children[b"data"].children
    assert b"old" not in data
    assert sorted(data[b"full"].children) == [b"seen"]
    assert data[b"twin"] is data[b"owned"]
    assert data[b"across"] is data[b"text"]
    assert b"".join(image.source.chunks(data[b"replaced"])) == b"above"
    assert b"".join(image.source.chunks(data[b"big"])) == noise(700_001, "big")
    assert (data[b"owned"].uid, data[b"owned"].gid, data[b"setuid"].mode) == (1000, 100, 0o4755)
    assert dict(data[b"capable"].xattrs)[b"user.note"] == b"hello"
    image.close()


def test_pull_is_reproducible(tmp_path: Path, registry: FakeRegistry) -> None:
    """Other threads, store, umask, time zone and clock: the same bytes."""
    reference = f"docker://{registry.host}/team/rich:1"
    kedge("pull", "--threads", "1", tmp_path / "a.sif", reference, cache=tmp_path / "c1")
    time.sleep(1.1)
    start_kedge("pull", "--threads", "3", tmp_path / "b.sif", reference, cache=tmp_path / "c2", umask=0o077,
                environment={"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"})  # fmt: skip
    assert hash_file(tmp_path / "a.sif") == hash_file(tmp_path / "b.sif")


def test_pull_again_needs_no_layers_and_no_registry(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        digest = add_rich_image(registry)
        reference = f"docker://{registry.host}/team/rich"
        kedge("pull", tmp_path / "a.sif", f"{reference}:1", cache=tmp_path / "c")
        registry.server.log.clear()
        kedge("pull", tmp_path / "b.sif", f"{reference}@{digest}", cache=tmp_path / "c")
        assert registry.server.log == []  # a digest that is present needs no network
        kedge("pull", tmp_path / "c.sif", f"{reference}:1", cache=tmp_path / "c")
        assert not registry.server.seen("/blobs/")
    stopped = kedge("pull", tmp_path / "d.sif", f"{reference}:1", cache=tmp_path / "c")
    assert " ago (sha256:" in stopped.stderr
    assert len({hash_file(tmp_path / f"{name}.sif") for name in "acd"}) == 1
    assert {(tmp_path / f"{name}.sif").stat().st_nlink for name in "abcd"} == {1}  # each is a file of its own


def test_pull_under_another_name_does_not_change_the_bytes(tmp_path: Path, registry: FakeRegistry) -> None:
    """A SIF says where it came from; what somebody else pulled before must not show in it."""
    add_rich_image(registry, tag="2")
    reference = f"docker://{registry.host}/team/rich"
    kedge("pull", tmp_path / "one.sif", f"{reference}:1", cache=tmp_path / "c")
    kedge("pull", tmp_path / "two.sif", f"{reference}:2", cache=tmp_path / "c")
    kedge("pull", tmp_path / "fresh.sif", f"{reference}:2", cache=tmp_path / "other")
    assert hash_file(tmp_path / "two.sif") == hash_file(tmp_path / "fresh.sif")
    assert hash_file(tmp_path / "one.sif") != hash_file(tmp_path / "two.sif")


def test_pull_offline_uses_the_store_or_says_no(tmp_path: Path, registry: FakeRegistry) -> None:
    reference = f"docker://{registry.host}/team/rich:1"
    refused = kedge("pull", "--offline", tmp_path / "a.sif", reference, cache=tmp_path / "c", check=False)
    assert refused.returncode == errors.ImageNotFound.exit_code
    kedge("pull", tmp_path / "a.sif", reference, cache=tmp_path / "c")
    registry.server.log.clear()
    kedge("pull", "--offline", tmp_path / "b.sif", reference, cache=tmp_path / "c")
    assert registry.server.log == []


def test_pull_notices_a_stored_image_changed_in_place(tmp_path: Path, registry: FakeRegistry) -> None:
    reference = f"docker://{registry.host}/team/rich:1"
    kedge("pull", tmp_path / "a.sif", reference, cache=tmp_path / "c")
    before = hash_file(tmp_path / "a.sif")
    with (tmp_path / "a.sif").open("r+b") as file:  # what 'apptainer sign' does
        file.write(b"changed")
    kedge("pull", tmp_path / "b.sif", reference, cache=tmp_path / "c")
    assert hash_file(tmp_path / "b.sif") == before


def test_pull_writes_every_form_and_back(tmp_path: Path, registry: FakeRegistry) -> None:
    for form in ("sandbox", "squashfs", "oci", "oci-archive", "docker-archive"):
        words = ("pull", "--format", form, tmp_path / form, f"docker://{registry.host}/team/rich:1")
        kedge(*words, cache=tmp_path / "c")
        prefix = f"{form}:" if form.startswith(("oci", "docker")) else ""
        kedge("pull", "--force", tmp_path / "back.sif", f"{prefix}{tmp_path / form}", cache=tmp_path / "c")
        image = open_sif(tmp_path / "back.sif")
        assert b"".join(image.source.chunks(image.root.children[b"data"].children[b"replaced"])) == b"above", form
        image.close()
    assert leftovers(tmp_path) == []


def test_pull_refuses_what_exists_before_asking(tmp_path: Path, registry: FakeRegistry) -> None:
    precious = bytes(32) + b"SIF_MAGIC\0precious"
    (tmp_path / "x.sif").write_bytes(precious)
    reference = f"docker://{registry.host}/team/rich:1"
    done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert (done.returncode, registry.server.log) == (errors.OutputExists.exit_code, [])
    assert (tmp_path / "x.sif").read_bytes() == precious
    kedge("pull", "--force", tmp_path / "x.sif", reference, cache=tmp_path / "c")
    assert (tmp_path / "x.sif").stat().st_size > 1_000_000


def test_pull_dry_run_downloads_nothing(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        digest = add_rich_image(registry)
        done = kedge(
            "pull", "--dry-run", "--json", f"docker://{registry.host}/team/rich:1", cache=tmp_path / "c", cwd=tmp_path
        )
        assert not registry.server.seen("/blobs/")
    answer = json.loads(done.stdout)
    assert answer["digest"] == digest
    assert answer["download"] == sum(layer["size"] for layer in answer["layers"])
    assert not (tmp_path / "rich_1.sif").exists()


def test_pull_from_a_registry_with_the_ways_of_nvcr(tmp_path: Path) -> None:
    policy = nvcr(users={"user": "the-key"}, private=frozenset({"team/rich"}), gated={"team/gated": frozenset()})
    with FakeRegistry(policy) as registry:
        add_rich_image(registry)
        add_rich_image(registry, "team/gated")
        reference = f"docker://{registry.host}/team/rich:1"
        refused = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
        assert refused.returncode == errors.AuthenticationFailed.exit_code
        key = {"APPTAINER_DOCKER_USERNAME": "user", "APPTAINER_DOCKER_PASSWORD": "the-key"}
        done = kedge("-v", "pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", environment=key)
        gated = kedge("pull", tmp_path / "g.sif", f"docker://{registry.host}/team/gated:1", cache=tmp_path / "c",
                      environment=key, check=False)  # fmt: skip
    assert gated.returncode in (errors.AccessDenied.exit_code, errors.AuthenticationFailed.exit_code)
    for each in (refused, done, gated):
        assert "the-key" not in each.stdout + each.stderr


def test_pull_resumes_a_broken_download_by_range(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("GET .*/blobs/", cut_at=300_000, times=6)
    kedge("pull", tmp_path / "x.sif", f"docker://{registry.host}/team/rich:1", cache=tmp_path / "c")
    ranges = [each.headers["range"] for each in registry.server.seen("GET .*/blobs/") if "range" in each.headers]
    assert any(int(text.removeprefix("bytes=").rstrip("-")) >= 200_000 for text in ranges), ranges


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"corrupt_at": 50_000}, errors.DigestMismatch.exit_code),
        ({"reply": Reply(500, b"broken")}, errors.NetworkFailed.exit_code),
        ({"reply": Reply(200, b"<html>portal</html>", {"Content-Type": "text/html"})}, None),
    ],
)
def test_pull_of_bad_blobs_fails_and_leaves_nothing(tmp_path, fault, code, registry):
    registry.server.fail("GET .*/blobs/", times=1000, **fault)
    reference = f"docker://{registry.host}/team/rich:1"
    environment = {"KEDGE_RETRIES": "1"}
    done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", environment=environment, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == code if code else done.returncode not in (0, 3)
    assert list(tmp_path.glob("*.sif")) == []
    assert leftovers(tmp_path, may_resume=True) == []
    registry.server.faults.clear()
    kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c")


@pytest.mark.parametrize(
    ("tar", "error"),
    [
        (build.layer(build.file("../escape", b"x")), errors.HostileImage),
        (build.layer(build.file("a", b"x"))[:700], errors.CorruptImage),
    ],
)
def test_pull_refuses_hostile_layers_by_name(tmp_path: Path, tar: bytes, error: type[Exception]) -> None:
    with FakeRegistry() as registry:
        registry.add_image("team/bad", "1", [build.compress(tar)], make_config([tar]))
        reference = f"docker://{registry.host}/team/bad:1"
        done = kedge("pull", tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == error.exit_code
    assert "Traceback" not in done.stderr
    assert list(tmp_path.glob("*.sif")) == []
    assert leftovers(tmp_path, may_resume=True) == []


def test_pull_refuses_artifacts_that_are_no_images(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        layer = registry.add_blob("team/chart", b"chart", "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
        config = registry.add_blob("team/chart", b"{}", "application/vnd.cncf.helm.config.v1+json")
        document = {"schemaVersion": 2, "config": config.as_json(), "layers": [layer.as_json()]}
        registry.add_manifest("team/chart", "1", json.dumps(document).encode())
        done = kedge("pull", f"docker://{registry.host}/team/chart:1", cache=tmp_path / "c", cwd=tmp_path, check=False)
    assert done.returncode == errors.UnsupportedFormat.exit_code
    assert_says(done.stderr, "pull/not-container-image")


def test_six_pulls_at_once_download_once(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("GET .*/blobs/", times=1000, delay=0.3)  # long enough that all are under way together
    words = [("pull", "-q", tmp_path / f"{n}.sif", f"docker://{registry.host}/team/rich:1") for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: kedge(*each, cache=tmp_path / "c"), words))
    fetched = [each.path for each in registry.server.seen("GET .*/blobs/")]
    assert len(fetched) == len(set(fetched)) == 4  # three layers and the config, each once
    assert len({hash_file(tmp_path / f"{n}.sif") for n in range(6)}) == 1


def test_killed_pulls_leave_a_store_that_works(tmp_path: Path, registry: FakeRegistry) -> None:
    choose = random.Random(5)
    reference = f"docker://{registry.host}/team/rich:1"
    registry.server.fail("GET .*/blobs/", times=3, delay=0.2)
    for number in range(4):
        environment = {**os.environ, "KEDGE_CACHEDIR": str(tmp_path / "c")}
        argv = [sys.executable, "-m", "kedge", "pull", "-q", str(tmp_path / f"{number}.sif"), reference]
        process = subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(choose.uniform(0.25, 1.2))
        kill_all(process)
    kedge("pull", tmp_path / "last.sif", reference, cache=tmp_path / "c")
    kedge("pull", tmp_path / "clean.sif", reference, cache=tmp_path / "fresh")
    assert hash_file(tmp_path / "last.sif") == hash_file(tmp_path / "clean.sif")
    # An image is delivered once its layers are verified, before they have their names in the cache: who is killed
    # between the two leaves them to be resumed, and the next pull has the image already.
    assert leftovers(tmp_path / "c", may_resume=True) == []


def test_disabled_cache_keeps_nothing(tmp_path: Path, registry: FakeRegistry) -> None:
    kedge("pull", "--disable-cache", "--tmpdir", tmp_path, tmp_path / "x.sif", f"docker://{registry.host}/team/rich:1",
          cache=tmp_path / "c")  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.sif"]


def test_disabled_cache_removes_what_a_killed_pull_left(tmp_path: Path, registry: FakeRegistry) -> None:
    registry.server.fail("GET .*/blobs/", delay=30)
    argv = [sys.executable, "-m", "kedge", "pull", "--disable-cache", "--tmpdir", str(tmp_path)]
    reference = f"docker://{registry.host}/team/rich:1"
    process = subprocess.Popen([*argv, str(tmp_path / "x.sif"), reference], start_new_session=True)
    while not registry.server.seen("GET .*/blobs/"):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(tmp_path.glob("kedge-store.*"))
    kedge("pull", "--disable-cache", "--tmpdir", tmp_path, tmp_path / "x.sif", reference, cache=tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.sif"]
