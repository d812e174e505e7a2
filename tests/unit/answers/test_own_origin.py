# SPDX-License-Identifier: BSD-3-Clause
"""Where kedge was installed from, by the records of pip and uv, and the lines that repeat it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from kedge.answers.own_origin import read_record
from tests.builders.rows import each_row

PIP = f"{shlex.quote(sys.executable)} -m pip install --upgrade"


def test_a_clone_is_pulled_and_installed_again(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    (clone / ".git").mkdir(parents=True)
    record = {"url": clone.as_uri(), "dir_info": {}}
    found = read_record(json.dumps(record), "pip")
    assert found.what == f"the clone {clone}"
    assert found.lines == (f"git -C '{clone}' pull", f"{PIP} '{clone}'")
    editable = read_record(json.dumps({**record, "dir_info": {"editable": True}}), "pip")
    assert editable.lines == (f"git -C '{clone}' pull",)


@each_row("revision", ["", "v2"])
def test_a_repository_is_named_with_its_revision(revision: str) -> None:
    about = {"vcs": "git", "commit_id": "0" * 40, **({"requested_revision": revision} if revision else {})}
    found = read_record(json.dumps({"url": "https://example.org/kedge.git", "vcs_info": about}), "pip")
    assert found.lines == (f"{PIP} git+https://example.org/kedge.git" + ("@v2" if revision else ""),)


def test_uv_installs_what_uv_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.dumps({"url": "https://example.org/kedge.git", "vcs_info": {"vcs": "git"}})
    monkeypatch.setattr(sys, "prefix", "/home/me/.local/share/uv/tools/kedge")
    assert read_record(record, "uv").lines == ("uv tool install --reinstall git+https://example.org/kedge.git",)
    monkeypatch.setattr(sys, "prefix", "/home/me/venv")
    assert read_record(record, "uv").lines[0].startswith("uv pip install --python ")


@each_row(("record", "what"), [
    ({}, "of which no record was kept"),
    ({"url": "file:///x/kedge-0.1.0-py3-none-any.whl", "archive_info": {}},
     "the file /x/kedge-0.1.0-py3-none-any.whl"),
    ({"url": "file:///nonexistent/kedge", "dir_info": {}}, "which is gone"),
])  # fmt: skip
def test_lines_that_would_not_work_are_not_shown(record: dict[str, object], what: str) -> None:
    found = read_record(json.dumps(record), "pip")
    assert found.what.endswith(what)
    assert found.lines == ()
