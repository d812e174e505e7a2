# SPDX-License-Identifier: BSD-3-Clause
"""Registries, configs and files that lie to `kedge explain`: a named error or a clean answer, in bounded time."""

from __future__ import annotations

import contextlib
import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.explain import Explanation, explain
from kedge.base.digest import Digest
from kedge.base.manifest import DOCKER_CONFIG, DOCKER_LAYER_GZIP, DOCKER_MANIFEST, OCI_INDEX
from kedge.base.reference import Reference
from kedge.compat.tables.load import load_tables
from kedge.errors import (
    CorruptImage,
    KedgeError,
    NetworkFailed,
    NoMatchingPlatform,
    RegistryProtocolError,
    UnsupportedFormat,
)
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.images import kedge
from tests.builders.rows import each_row
from tests.fakes.registry import FakeRegistry
from tests.hostile.test_catalog_answers import endless

TABLES = load_tables()
NAME = "team/app"
STEERING = "\x1b[2J\x1b]0;owned\x07\u202egnp\u200b\r\n"


def workplace(folder: Path) -> Workplace:
    return Workplace(Settings.load({"cache_directory": folder / "cache", "retries": "0"}, {"HOME": str(folder)}))


def read(registry: FakeRegistry, folder: Path, tag: str = "1") -> Explanation:
    began = time.monotonic()
    try:
        return explain(Reference.parse(f"docker://{registry.host}/{NAME}:{tag}"), workplace(folder), tables=TABLES)
    finally:
        assert time.monotonic() - began < 60


def put(registry: FakeRegistry, config: bytes, *, size: int | None = None, kind: str = DOCKER_CONFIG) -> str:
    """An image of one layer with this config; `size` is what its manifest promises. Returns the config's digest."""
    described = registry.add_blob(NAME, config, kind).as_json()
    layer = {"mediaType": DOCKER_LAYER_GZIP, "digest": str(Digest.of(b"layer")), "size": 123}
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": {**described, "size": len(config) if size is None else size},
        "layers": [layer],
    }
    registry.add_manifest(NAME, "1", json.dumps(manifest).encode(), DOCKER_MANIFEST)
    return str(described["digest"])


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)  # all authorities of whoever runs the tests would be read for each call
    with FakeRegistry() as started:
        yield started


# JSON


@each_row(
    "config",
    [
        b"",
        b"[" * 100_000,
        b'{"config":' * 100_000,
        b'{"config":{"Labels":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}}",
        b"[]",
        b"null",
        b'{"created": ' + b"9" * 5000 + b"}",
        b"\xff\xfe\x00",
    ],
    ids=["empty", "deep list", "deep object", "deep label", "list", "null", "long number", "no text"],
)
def test_explain_config_that_is_no_config_is_a_named_error(
    registry: FakeRegistry, tmp_path: Path, config: bytes
) -> None:
    put(registry, config)
    gc.collect()  # what earlier tests left would be collected deep in a recursion, where pytest cannot report it
    with pytest.raises(CorruptImage):
        read(registry, tmp_path)


VALUES: list[object] = [None, 5, 1.5, True, "text", [], [1], [None], [["a"]], {}, {"a": 1}, {"a": {"b": []}}, "\ud800"]


@each_row(
    "key",
    ["config", "Env", "Labels", "Entrypoint", "Cmd", "history", "created", "architecture", "os", "rootfs", "variant"],
)
def test_explain_config_of_wrong_types_is_an_error_or_an_answer(
    registry: FakeRegistry, tmp_path: Path, key: str
) -> None:
    for value in VALUES:
        section: dict[str, object] = {"Env": ["CUDA_VERSION=12.4.1"]}
        document: dict[str, object] = {"architecture": "amd64", "os": "linux", "config": section}
        (section if key in ("Env", "Labels", "Entrypoint", "Cmd") else document)[key] = value
        put(registry, json.dumps(document).encode())
        with contextlib.suppress(KedgeError):
            assert json.dumps(read(registry, tmp_path).as_dict())


@each_row(
    "line", [None, 7, [], {}, "x" * 1_000_000, STEERING], ids=["null", "number", "list", "object", "long", "steering"]
)
def test_explain_history_of_wrong_types_is_passed_over(registry: FakeRegistry, tmp_path: Path, line: object) -> None:
    history = [{"created_by": line}, {"created_by": "ARG PYVER=3.12", "empty_layer": True}, 5, None, "x"]
    put(registry, json.dumps({"architecture": "amd64", "os": "linux", "history": history}).encode())
    traits = read(registry, tmp_path).traits
    assert traits.python.value == "3.12"
    assert all(layer.created_by.isprintable() and len(layer.created_by) <= 100 for layer in traits.layers)


def test_explain_config_with_a_million_entries_is_read_in_bounded_time(registry: FakeRegistry, tmp_path: Path) -> None:
    names = [f"NVIDIA_REQUIRE_{number}=cuda>=9.0" for number in range(50_000)]
    labels = {"org.opencontainers.image.version": "9" * (8 << 20), "org.opencontainers.image.ref.name": "ubuntu"}
    history = [{"created_by": "RUN |1 A=" + "B" * 40 + " " + "C=D " * 5}] * 20_000
    document = {"architecture": "amd64", "os": "linux", "config": {"Env": names, "Labels": labels}, "history": history}
    put(registry, json.dumps(document).encode())
    traits = read(registry, tmp_path).traits
    assert len(traits.requires) == 32
    assert len(traits.os.value) <= 200


# redirects, indexes, slowness


def test_explain_indexes_of_indexes_end(registry: FakeRegistry, tmp_path: Path) -> None:
    put(registry, b"{}")
    for depth in range(8):
        raw, kind = registry.manifests[NAME, "1"]
        entry = {"mediaType": kind, "digest": str(Digest.of(raw)), "size": len(raw)}
        platform = {"platform": {"architecture": "amd64", "os": "linux"}}
        document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [{**entry, **platform}], "depth": depth}
        registry.add_manifest(NAME, "1", json.dumps(document).encode(), OCI_INDEX)
    with pytest.raises(RegistryProtocolError, match="levels of indexes"):
        read(registry, tmp_path)
    assert len(registry.server.log) < 10


@each_row(
    ("entries", "kind"),
    [
        ([], NoMatchingPlatform),
        ([5], CorruptImage),
        ([{"digest": "md5:1", "size": 1}], CorruptImage),
        ([{"digest": str(Digest.of(b"")), "size": -1}], CorruptImage),
        ([{"digest": str(Digest.of(b"")), "size": 1, "platform": {"architecture": "\x1b[2J", "os": STEERING}}], None),
    ],
)
def test_explain_index_of_nonsense_is_a_named_error(
    registry: FakeRegistry, tmp_path: Path, entries: list[object], kind: type[KedgeError] | None
) -> None:
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    registry.add_manifest(NAME, "1", json.dumps(document).encode(), OCI_INDEX)
    with pytest.raises(kind or KedgeError):
        read(registry, tmp_path)


def test_explain_body_that_trickles_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedge.image.registry.client._SMALL_SECONDS", 0.5)
    began = time.monotonic()
    with endless(pause=0.05) as address, pytest.raises(NetworkFailed):
        explain(Reference.parse(f"docker://{address[7:]}/{NAME}:1"), workplace(tmp_path), tables=TABLES)
    assert time.monotonic() - began < 60


# what steers terminals


def test_explain_prints_nothing_that_steers_a_terminal(registry: FakeRegistry, tmp_path: Path) -> None:
    names = [f"{name}_VERSION" for name in ("PYTORCH", "CUDA", "OPENMPI", "ROCM", "PYTHON")] + ["NVIDIA_PRODUCT_NAME"]
    document = {
        "architecture": "amd64" + STEERING,
        "os": "linux",
        "created": STEERING,
        "config": {
            "Env": [f"{name}=12.4{STEERING}" for name in names] + [f"NVIDIA_REQUIRE_{STEERING}=cuda>=9.0{STEERING}"],
            "Labels": {"org.opencontainers.image.version": STEERING, "org.opencontainers.image.ref.name": "ubuntu"},
            "Entrypoint": [STEERING],
            "Cmd": [STEERING],
        },
        "history": [{"created_by": STEERING}],
    }
    put(registry, json.dumps(document).encode())
    for words in ((), ("--sources",), ("--json",), (f"docker://{registry.host}/{NAME}:1",)):
        done = kedge("explain", f"docker://{registry.host}/{NAME}:1", *words, cache=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        for letter in "\x1b\x07\u202e\u200b\r":
            assert letter not in done.stdout + done.stderr, words


def test_explain_error_shows_no_steering_of_the_registry(registry: FakeRegistry, tmp_path: Path) -> None:
    put(registry, b"{}", kind=f"application/x{STEERING}")
    done = kedge("explain", f"docker://{registry.host}/{NAME}:1", cache=tmp_path, check=False)
    assert done.returncode == UnsupportedFormat.exit_code
    assert "\x1b" not in done.stdout + done.stderr


# files


def test_explain_of_a_hostile_folder_is_clean_and_quick(tmp_path: Path) -> None:
    box = tmp_path / "box"
    texts = {
        "etc/os-release": f"ID=x\nNAME={STEERING}\nVERSION_ID={'9' * 100_000}\n",
        "usr/local/cuda/version.json": '{"cuda":' * 50_000,
        "usr/local/cuda/compat/libcuda.so.1.2.3": "\x7fELF" + "\xff" * 1000,
        "opt/hpcx/ompi/include/mpi.h": f'#define MPICH_VERSION "4{STEERING}"\n' * 1000,
        "usr/lib64/libnccl.so.2.1.1\x1b[2J": "x",
        ".singularity.d/labels.json": '{"a": {"b": 5}}',
        ".singularity.d/env/10-docker2singularity.sh": 'export X="${X:-"' + "\\" * 100_000,
        ".singularity.d/runscript": "OCI_ENTRYPOINT='" + "\"'" * 50_000,
    }
    for name, text in texts.items():
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_text(text, encoding="utf-8")
    began = time.monotonic()
    traits = explain(Reference.parse(str(box)), workplace(tmp_path), tables=TABLES).traits
    assert time.monotonic() - began < 60
    assert all(fact.value.isprintable() and fact.source.isprintable() for fact in traits.known.values())
    assert all(note.isprintable() for note in traits.notes)


@each_row("value", VALUES, ids=repr)
def test_explain_of_sif_with_an_oci_config_of_wrong_types(tmp_path: Path, value: object) -> None:
    from kedge.compat.file_traits import _read_inspection
    from kedge.image.formats.singularityd.inspect_report import InspectReport
    from kedge.image.inspect import Inspection

    section = {key: value for key in ("Env", "Labels", "Entrypoint", "Cmd")}
    found = _read_inspection("x", Inspection(InspectReport(), section), TABLES, "amd64")
    assert found.name == "x"
