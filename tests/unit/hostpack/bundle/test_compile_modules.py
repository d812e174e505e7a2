# SPDX-License-Identifier: BSD-3-Clause
"""Code of a bundle: compiled in a process of its own, lean and split where every start loads it."""

from __future__ import annotations

import marshal
import traceback
from pathlib import Path
from typing import Any

import pytest

from kedge.hostpack.bundle.compile_modules import compile_modules
from kedge.module_archive import unpack_lean

SOURCE = '"""Docs."""\n\n\ndef plain():\n    """Docs."""\n    return 1\n\n\ndef late():\n    raise ValueError\n'


def test_modules_of_every_start_are_lean_and_split(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text(SOURCE)
    (tmp_path / "work").mkdir()
    names = {"kedge/one.py": source, "kedge/other.py": source}
    compiled, lean = compile_modules(names, tmp_path / "work", {"kedge/one.py": ("late",)})
    assert (list(compiled), list(lean)) == (list(names), ["kedge/one.py"])
    whole, (code, late) = unpack_lean(lean["kedge/one.py"])
    found: dict[str, Any] = {}
    exec(marshal.loads(whole), found)
    assert {"plain", "late"} < found.keys()
    found = {}
    exec(code, found)
    assert (found["plain"].__doc__, "late" in found) == (None, False)
    exec(marshal.loads(late["late"]), found)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its place counts
        found["late"]()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == ("kedge/one.py", 10)
