# SPDX-License-Identifier: BSD-3-Clause
"""Inspection without starting anything: metadata of a SIF, files in SquashFS and folders, links, hostile content."""

from __future__ import annotations

import errno
import io
import json
import os
from functools import partial
from pathlib import Path

import pytest

from kedge.base.manifest import parse_config
from kedge.base.platform import Platform
from kedge.base.tree import Node, NodeKind, find
from kedge.errors import CorruptImage, FileProblem, KedgeError, UnsupportedFormat
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.formats.singularityd.decorate_tree import decorate, describe
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.formats.singularityd.inspect_report import (
    InspectReport,
    ReportSelection,
    parse_metadata,
    read_report,
    render_document,
    render_text,
    select_document,
)
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.inspect import inspect_config, inspect_path
from kedge.image.tree_view import TreeView
from kedge.system.views import DirectoryView
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path

SECTION = {"Env": ["A=x y"], "Cmd": ["sh", "-c", "$X"], "Labels": {"l<": "é"}, "WorkingDir": "/w"}
CONFIG = parse_config(json.dumps({"architecture": "arm64", "config": SECTION}).encode())
RECORD = SourceRecord("docker", "docker.io/library/x:1", None, Platform("arm64"), 1_700_000_000)


def write_image(path: Path, *, sif: bool, metadata: bytes | None = b"") -> None:
    """A SIF or bare SquashFS of our own; `metadata` of None leaves the object out, empty means the right one."""
    documents = describe(CONFIG, RECORD)
    with path.open("w+b") as file:
        builder = SifBuilder(file, architecture="arm64", created=RECORD.created)
        if sif:
            builder.add_object(DataType.DEFFILE, documents.definition)
            if metadata is not None:
                builder.add_object(
                    DataType.GENERIC_JSON, metadata or documents.inspect_metadata, "inspect-metadata.json"
                )
            builder.add_object(DataType.GENERIC_JSON, documents.oci_config or b"", "oci-config.json")
            builder.begin_partition()
        with SquashWriter(file, SquashOptions("gzip")) as squashfs:
            root = Node(NodeKind.DIRECTORY)
            decorate(root, squashfs, CONFIG, RECORD)
            size = squashfs.finish(root)
        if sif:
            builder.end_partition(size)
            builder.finish()


def test_inspect_same_report_from_metadata_files_squashfs_and_config(tmp_path: Path) -> None:
    write_image(tmp_path / "a.sif", sif=True)
    write_image(tmp_path / "b.sif", sif=True, metadata=None)
    write_image(tmp_path / "c.sif", sif=True, metadata=b"{broken")
    write_image(tmp_path / "d.sqsh", sif=False)
    reports = [inspect_path(tmp_path / name).report for name in ("a.sif", "b.sif", "c.sif", "d.sqsh")]
    reports.append(inspect_config(CONFIG, RECORD))
    assert all(report == reports[0] for report in reports)
    assert reports[0].labels["l<"] == "é"
    assert inspect_path(tmp_path / "a.sif").oci_config == CONFIG.section
    assert inspect_path(tmp_path / "d.sqsh").oci_config is None


def test_inspect_real_file_of_singularity_3_8() -> None:
    found = inspect_path(fixture_path("busybox_arm64.sif"))
    assert found.report.labels["org.label-schema.usage.singularity.version"] == "3.8.1"
    assert found.report.deffile == "BootStrap: docker\nFrom: busybox:1.33.1"
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert found.oci_config == {"Cmd": ["sh"], "Env": [path]}


# ---- directories


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    root = tmp_path / "sandbox"
    files = {
        ".singularity.d/labels.json": '{"b": "2", "a": "1", "n": 3}',
        ".singularity.d/runscript": "#!/bin/sh\necho run\n",
        ".singularity.d/startscript": "#!/bin/sh\n",
        ".singularity.d/test": "#!/bin/sh\necho test\n",
        ".singularity.d/runscript.help": "help me\n",
        ".singularity.d/Singularity": "bootstrap: docker\nfrom: x\n\n",
        ".singularity.d/env/01-base.sh": "#!/bin/sh\n",
        ".singularity.d/env/10-docker2singularity.sh": "#!/bin/sh\nexport A=1\n",
        ".singularity.d/env/90-environment.sh": "#!/bin/sh\n",
        ".singularity.d/env/91-environment.sh": "export B=2\n",
        ".singularity.d/env/99-base.sh": "#!/bin/sh\n",
        "scif/apps/foo/scif/runscript": "#!/bin/sh\n\n    echo app foo\n",
        "scif/apps/foo/scif/labels.json": '{"SCIF_APP_NAME": "foo"}',
        "scif/apps/foo/scif/env/90-environment.sh": "    export FOO=1\n",
        "scif/apps/bar/scif/labels.json": '{"SCIF_APP_NAME": "bar"}',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_inspect_folder_reads_everything(sandbox: Path) -> None:
    report = inspect_path(sandbox).report
    assert report.labels == {"a": "1", "b": "2", "n": "3"}
    assert list(report.environment) == [
        "/.singularity.d/env/10-docker2singularity.sh",
        "/.singularity.d/env/90-environment.sh",
        "/.singularity.d/env/91-environment.sh",
    ]
    assert (report.test, report.helpfile) == ("#!/bin/sh\necho test", "help me")
    assert sorted(report.apps) == ["bar", "foo"]
    assert report.apps["foo"].runscript == "#!/bin/sh\n\n    echo app foo"


def test_inspect_folder_follows_links_inside_only(sandbox: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"leak": "yes"}')
    (tmp_path / "secret.sh").write_text("leak")
    folder = sandbox / ".singularity.d"
    (folder / "labels.json").unlink()
    (folder / "labels.json").symlink_to(tmp_path / "secret.json")
    (folder / "test").unlink()
    (folder / "test").symlink_to("../../../../secret.sh")
    (folder / "runscript").unlink()
    (folder / "runscript").symlink_to("/.singularity.d/startscript")
    report = inspect_path(sandbox).report
    assert report.labels == {}
    assert report.test == ""
    assert report.runscript == "#!/bin/sh"


def test_inspect_folder_that_is_no_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="not a root file system"):
        inspect_path(tmp_path)


@each_row("labels", ["{", "[]", '"x"', "[" * 100_000])
def test_inspect_folder_bad_labels_are_named(sandbox: Path, labels: str) -> None:
    (sandbox / ".singularity.d/labels.json").write_text(labels)
    with pytest.raises(CorruptImage, match=r"labels\.json"):
        inspect_path(sandbox)


def test_inspect_folder_giant_script_is_refused(sandbox: Path) -> None:
    with (sandbox / ".singularity.d/runscript").open("wb") as file:
        file.truncate(1 << 34)
    with pytest.raises(CorruptImage, match="runscript"):
        inspect_path(sandbox)


# ---- trees


class Contents:
    """Gives back contents kept in the nodes; None is an endless file."""

    def chunks(self, node: Node) -> object:
        while node.content is None:
            yield bytes(1 << 20)
        yield node.content


def make_file(data: bytes | None) -> Node:
    node = Node(NodeKind.FILE)
    node.content, node.size = data, len(data) if data is not None else 1 << 60
    return node


def view_tree(root: Node) -> TreeView:
    return TreeView(partial(find, root), Contents())  # type: ignore[arg-type]


def make_script(data: bytes | None) -> Node:
    root, folder = Node(NodeKind.DIRECTORY), Node(NodeKind.DIRECTORY)
    root.children[b".singularity.d"] = folder
    folder.children[b"runscript"] = make_file(data)
    return root


def test_report_stops_at_giant_files() -> None:
    with pytest.raises(CorruptImage, match="more than"):
        read_report(view_tree(make_script(None)), "x")


def test_report_shows_bytes_that_are_no_text() -> None:
    assert read_report(view_tree(make_script(b"x\xff")), "x").runscript == "x\ufffd"


def test_views_of_nothing_report_nothing(tmp_path: Path) -> None:
    assert read_report(view_tree(Node(NodeKind.DIRECTORY)), "x") == InspectReport()
    assert read_report(DirectoryView(str(tmp_path)), "x") == InspectReport()


def test_inspect_folder_that_cannot_be_read_is_an_error(sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("kedge.system.views.os.open", refuse)
    with pytest.raises(FileProblem, match=r"env/10-docker2singularity\.sh: Permission denied"):
        inspect_path(sandbox)


# ---- other files


@each_row(
    ("data", "match"),
    [
        (b"", "an empty file"),
        (b"<html>sign in", "web page"),
        (b"\x1f\x8b\x08" + bytes(50), "gzip"),
        (bytes(1080) + b"\x53\xef" + bytes(1000), "ext3"),
        (b"hsqs" + bytes(92), None),
        (b"hsqs", None),
    ],
)
def test_inspect_says_what_a_file_is(tmp_path: Path, data: bytes, match: str | None) -> None:
    path = tmp_path / "image.sif"
    path.write_bytes(data)
    with pytest.raises(KedgeError, match=match):
        inspect_path(path)


def test_inspect_oci_sif_and_encrypted_are_named(tmp_path: Path) -> None:
    path = tmp_path / "oci.sif"
    with path.open("w+b") as file:
        builder = SifBuilder(file, architecture="amd64", created=0)
        builder.add_object(DataType.OCI_ROOT_INDEX, b"{}")
        builder.finish()
    with pytest.raises(UnsupportedFormat, match="OCI-SIF"):
        inspect_path(path)


# ---- what is shown


@each_row(
    "raw",
    [b"", b"[]", b"{}", b'{"data":{}}', b'{"data":{"attributes":[]}}', b'{"data":{"attributes":{"labels":3}}}'],
)
def test_metadata_of_the_wrong_shape_is_refused(raw: bytes) -> None:
    with pytest.raises(CorruptImage):
        parse_metadata(raw, "x")


@each_row("part", ['"runscript":7', '"apps":[1]', '"apps":{"a":1}', '"environment":"x"'])
def test_metadata_with_parts_of_the_wrong_type_is_refused(part: str) -> None:
    with pytest.raises(CorruptImage):
        parse_metadata(f'{{"data":{{"attributes":{{{part}}}}}}}'.encode(), "x")


def test_selection_text_and_json_are_apptainers(sandbox: Path) -> None:
    report = inspect_path(sandbox).report
    assert render_text(report, ReportSelection()) == "a: 1\nb: 2\nn: 3\n"
    assert render_text(report, ReportSelection(list_apps=True)) == "bar\nfoo\n"
    assert render_text(report, ReportSelection(frozenset({"labels"}), app="foo")) == "SCIF_APP_NAME: foo\n"
    assert render_text(report, ReportSelection(app="nope")) == ""
    both = render_text(report, ReportSelection(frozenset({"runscript", "environment", "deffile"}), app="foo"))
    assert both == (
        "bootstrap: docker\nfrom: x\n#!/bin/sh\n\n    echo app foo\n"
        "=== /scif/apps/foo/scif/env/90-environment.sh ===\n    export FOO=1\n\n"
    )
    document = select_document(report, ReportSelection(frozenset({"runscript"}), app="bar"))
    assert document == {"data": {"attributes": {"apps": {"bar": {}}}}, "type": "container"}
    assert select_document(report, ReportSelection(app="nope"))["data"]["attributes"] == {}
    assert list(select_document(report, ReportSelection(list_apps=True))["data"]["attributes"]) == ["apps"]
    text = render_document(select_document(report, ReportSelection(frozenset({"test"}))))
    lines = ["{", '\t"data": {', '\t\t"attributes": {', '\t\t\t"test": "#!/bin/sh\\necho test"']
    lines += ["\t\t}", "\t},", '\t"type": "container"', "}"]
    assert text == "\n".join(lines)


def test_report_round_trips_through_metadata(sandbox: Path) -> None:
    report = inspect_path(sandbox).report
    assert parse_metadata(json.dumps(report.as_document()).encode(), "x") == report
    assert io.StringIO(render_document(report.as_document())).readline() == "{\n"
