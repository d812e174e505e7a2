# SPDX-License-Identifier: BSD-3-Clause
"""Records as files: names, what is read, and where none is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.errors import FileProblem, InvalidRecord, OutputExists
from kedge.jobs.runs.run_record import encode_record, name_record, read_record, refuse_place
from tests.builders.rows import each_row

RECORD = {
    "kedge_record": 1, "verb": "exec", "directory": "/", "options": [], "command": ["a"], "image": {},
    "environment": {}, "host": {}, "times": {}, "exit": {}, "usage": {},
}  # fmt: skip


def test_record_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(encode_record({**RECORD, "command": ["é \x1b[2J \udcff"]}))
    assert path.read_bytes().isascii()
    assert b"\x1b" not in path.read_bytes()
    assert read_record(path)["command"] == ["é \x1b[2J \udcff"]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**RECORD, "later": 1}))
    assert read_record(path)["later"] == 1
    assert name_record("n17.cluster", 0.0, 42).endswith("-n17-42.json")


@each_row(
    "change", [{"options": "--nv"}, {"command": [1]}, {"command": ["a\0b"]}, {"verb": 1}, {"host": []}, {"usage": None}]
)
def test_record_with_wrong_types_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**RECORD, **change}))
    with pytest.raises(InvalidRecord, match="damaged"):
        read_record(path)


def test_refuse_place_takes_new_names_and_old_records(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    refuse_place(path)
    path.write_text(json.dumps(RECORD))
    refuse_place(path)
    path.write_text("results")
    with pytest.raises(OutputExists):
        refuse_place(path)
    with pytest.raises(FileProblem):
        refuse_place(tmp_path / "missing" / "run.json")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(FileProblem, match="symlink"):
        refuse_place(tmp_path / "link")
    with pytest.raises(OutputExists):
        refuse_place(tmp_path)
