# SPDX-License-Identifier: BSD-3-Clause
"""`inspect` on damaged images: documents that are not what they say, and file systems with flipped bits."""

from __future__ import annotations

import json
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.manifest import parse_config
from kedge.base.platform import Platform
from kedge.base.tree import Node, NodeKind
from kedge.errors import KedgeError
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.singularityd.decorate_tree import decorate, describe
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.formats.singularityd.inspect_report import (
    ReportSelection,
    parse_metadata,
    render_document,
    render_text,
    select_document,
)
from kedge.image.inspect import inspect_path
from tests.builders.rows import each_row
from tests.builders.sif import build_sif

RECORD = SourceRecord("docker", "x", None, Platform("arm64"), 0)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARTS = ("apps", "environment", "labels", "runscript", "test", "helpfile", "deffile", "startscript")


def inspect_outcome(path: Path) -> str:
    begun = time.process_time()
    try:
        report = inspect_path(path).report
        render_document(select_document(report, ReportSelection(everything=True)))
        outcome = "ok"
    except KedgeError as problem:
        outcome = problem.reference
    assert time.process_time() - begun < 10
    return outcome


@each_row("raw", [b"", b"\xff\xfe", b"[" * 200_000, b'{"data":', b"null", b"7", b'"x"'])
def test_inspect_bad_documents_without_files_are_named(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "bad.sif"
    data = build_sif([(DataType.GENERIC_JSON, raw, b"")])
    path.write_bytes(data[: 4096 + 73] + b"inspect-metadata.json" + data[4096 + 73 + 21 :])
    assert inspect_outcome(path) in ("corrupt-image", "unsupported-format")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(PARTS), JSON, max_size=4))
def test_inspect_metadata_of_any_shape(attributes: dict[str, object]) -> None:
    raw = json.dumps({"data": {"attributes": attributes}, "type": "container"}).encode()
    try:
        report = parse_metadata(raw, "x")
    except KedgeError:
        return
    render_text(report, ReportSelection(frozenset(PARTS)))
    render_text(report, ReportSelection(list_apps=True))
    render_document(report.as_document())


class Sink:
    """Keeps the bytes as tokens."""

    def add(self, data: bytes) -> object:
        return bytes(data)

    def add_stream(self, size: int, chunks: object) -> object:
        raise AssertionError("small files only")


TEXT = st.text(max_size=30)


@settings(max_examples=150, deadline=None)
@given(
    environment=st.lists(TEXT, max_size=5),
    entrypoint=st.lists(TEXT, max_size=4),
    command=st.lists(TEXT, max_size=4),
    labels=st.dictionaries(TEXT, TEXT, max_size=4),
)
def test_decorate_any_config_gives_text_that_can_be_stored(
    environment: list[str], entrypoint: list[str], command: list[str], labels: dict[str, str]
) -> None:
    section = {"Env": environment, "Entrypoint": entrypoint, "Cmd": command, "Labels": labels}
    config = parse_config(json.dumps({"architecture": "arm64", "config": section}).encode())
    record = describe(config, RECORD)
    report = parse_metadata(record.inspect_metadata, "x")
    for name, value in labels.items():
        if name not in report.labels or not name.startswith("org."):
            assert report.labels[name] == value
    assert decorate(Node(NodeKind.DIRECTORY), Sink(), config, RECORD).definition == record.definition
