# SPDX-License-Identifier: BSD-3-Clause
"""`kedge inspect` from the command line: Apptainer's flags, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.cli.redaction import escape_controls
from kedge.errors import FileProblem
from tests.builders.sif import fixture_path

Run = Callable[..., tuple[int, str, str]]
LABELS = """\
org.label-schema.build-arch: arm64
org.label-schema.build-date: Monday_2_August_2021_21:41:28_UTC
org.label-schema.schema-version: 1.0
org.label-schema.usage.singularity.deffile.bootstrap: docker
org.label-schema.usage.singularity.deffile.from: busybox:1.33.1
org.label-schema.usage.singularity.version: 3.8.1
"""
DEFFILE = "BootStrap: docker\nFrom: busybox:1.33.1\n"


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        status = main(["inspect", *map(str, words)])
        out, err = capfd.readouterr()
        return status, out, err

    return call


def test_cli_inspect_default_is_labels(run: Run) -> None:
    image = fixture_path("busybox_arm64.sif")
    assert run(image) == (0, LABELS, "")
    assert run("-l", image) == (0, LABELS, "")
    assert run("--labels", "--deffile", image) == (0, DEFFILE + LABELS, "")


def test_cli_inspect_scripts(run: Run) -> None:
    image = fixture_path("busybox_arm64.sif")
    assert run("-d", image)[1] == DEFFILE
    assert run("-s", image)[1] == "#!/bin/sh\n"
    assert run("-r", image)[1].startswith("#!/bin/sh\nOCI_ENTRYPOINT=''\n")
    assert run("-e", image)[1].startswith("=== /.singularity.d/env/10-docker2singularity.sh ===\n#!/bin/sh\n")
    for nothing in ("-t", "-H", "--list-apps"):
        assert run(nothing, image) == (0, "", "")


def test_cli_inspect_json(run: Run) -> None:
    image = fixture_path("busybox_arm64.sif")
    document = json.loads(run("--json", "-d", image)[1])
    assert document == {"data": {"attributes": {"deffile": DEFFILE.strip()}}, "type": "container"}
    text = run("--all", image)[1]
    assert text.startswith('{\n\t"data": {\n\t\t"attributes": {\n\t\t\t"environment": {\n')
    assert "\\u0026\\u0026" in text
    assert list(json.loads(text)["data"]["attributes"]) == [
        "environment",
        "labels",
        "runscript",
        "deffile",
        "startscript",
    ]
    assert json.loads(run("--oci", image)[1])["Cmd"] == ["sh"]


def test_cli_inspect_unknown_app_is_said(run: Run) -> None:
    status, out, err = run("--app", "nope", fixture_path("busybox_arm64.sif"))
    assert (status, out) == (0, "")
    assert "no app 'nope'" in err


def test_cli_inspect_missing_file(run: Run, tmp_path: Path) -> None:
    assert run(tmp_path / "nothing.sif")[0] == FileProblem.exit_code


def test_cli_inspect_text_for_terminals_has_no_controls() -> None:
    assert escape_controls("a\tb\né\x1b[2J\x9b\x7f") == "a\tb\né\\x1b[2J\\x9b\\x7f"
