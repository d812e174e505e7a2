# SPDX-License-Identifier: BSD-3-Clause
"""The login node's side of a kernel: connection files that it takes, and a job that ends before a kernel runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.builders.rows import each_row

from kedge.errors import FileProblem, NotebookProblem
from kedge.tools.jupyter.kernel_in_job import read_connection, run_in_job
from kedge.tools.jupyter.kernel_on_node import CHANNELS

PORTS = {f"{name}_port": 0 for name in CHANNELS}  # 0: any free port


def write(folder: Path, document: object) -> str:
    path = folder / "connection.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_connection_is_what_jupyter_wrote(tmp_path: Path) -> None:
    given = {"ip": "127.0.0.1", "transport": "tcp", "key": "k", **PORTS}
    assert read_connection(write(tmp_path, given)) == given


@each_row("document", [[], {}, {"ip": "x"}, {"ip": "/s", "transport": "ipc", **PORTS}])
def test_connection_without_ports_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(NotebookProblem, match="not a connection file with TCP ports"):
        read_connection(write(tmp_path, document))


def test_connection_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("{")
    for name in ("broken", "missing"):
        with pytest.raises(FileProblem, match=name):
            read_connection(str(tmp_path / name))


def test_job_that_is_refused_ends_the_kernel_with_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["sh", "-c", "echo a site says hello; echo no such partition >&2; exit 3"]
    notes: list[str] = []
    assert run_in_job(words, {"ip": "127.0.0.1", **PORTS}, dict(os.environ), notes.append) == 3
    errors = capfd.readouterr().err
    assert "no such partition" in errors
    assert "a site says hello" in errors
    assert notes == []
