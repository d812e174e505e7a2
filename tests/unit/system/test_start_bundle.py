# SPDX-License-Identifier: BSD-3-Clause
"""Which command starts kedge once more, out of a bundle; and what its unpacked copy lacks."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from kedge.container.shim_file import make_shim
from kedge.system import start_kedge
from kedge.system.bundle_copy import discard_copy, find_damage


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys._xoptions, "kedge", "/home/user/bin/kedge")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()} 3 {name}" for name in ("one", "two")]
    (tmp_path / "files").write_text("\n".join(lines) + "\n")
    (tmp_path / "complete").write_text("")
    return tmp_path


def test_bundle_starts_itself(copy: Path) -> None:
    assert start_kedge.own_command("exec", "x") == ["/home/user/bin/kedge", "exec", "x"]
    assert start_kedge.own_start_command("exec", "x") == ["/home/user/bin/kedge", "exec", "x"]
    assert start_kedge.own_python("-c", "x") == ["/home/user/bin/kedge", "python", "-c", "x"]
    assert start_kedge.own_program() == "/home/user/bin/kedge"
    assert start_kedge.find_bundle_copy() == str(copy)


def test_installed_kedge_has_no_copy() -> None:
    assert (start_kedge.find_bundle(), start_kedge.find_bundle_copy(), find_damage()) == ("", "", "")
    assert start_kedge.own_python("x") == [sys.executable, "x"]


def test_damage_names_the_first_file(copy: Path) -> None:
    assert find_damage() == ""
    (copy / "two").write_text("TWO")
    assert find_damage() == "two was changed"
    (copy / "one").unlink()
    assert find_damage() == "one is missing"
    (copy / "files").unlink()
    assert find_damage() == "files is missing"


def test_discarded_copy_loses_its_mark(copy: Path) -> None:
    discard_copy()
    discard_copy()
    assert not (copy / "complete").exists()


def test_shim_of_a_bundle_does_not_name_the_copy() -> None:
    text = make_shim("apptainer", "/a b/kedge", "/var/tmp/copy", "python")
    assert text.startswith("#!/bin/sh\n'''exec' '/a b/kedge' python -SI \"$0\" \"$@\"\n' '''\n")
    assert "/var/tmp/copy" not in text
