# SPDX-License-Identifier: BSD-3-Clause
"""Code for the archive of modules: without docstrings and annotations, and otherwise the same."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from kedge.lean_code import compile_lean, compile_split
from kedge.start_modules import EARLY, EVERY_START
from tests.requirements import REPOSITORY

SOURCE = b'''"""A module."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nowhere import Nothing
else:
    Nothing = 1


class Options:
    """Values."""

    first: Unknown = 1
    second: int

    def only(self) -> Nothing:
        """Nothing but this."""


async def later(value: Unknown, /, *more: Unknown, by: Unknown = 3, **rest: Unknown) -> Unknown:
    """Later."""
    return value


def fail(value: Unknown) -> Unknown:
    """Fail."""
    found: Unknown = "no docstring"
    raise ValueError(found)
'''


def run(source: bytes) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "module"}
    exec(compile_lean(source, "/place/module.py"), names)
    return names


def test_lean_code_has_no_docstrings_and_no_annotations_of_functions() -> None:
    names = run(SOURCE)
    for each in (names["Options"], names["Options"].only, names["later"], names["fail"]):
        assert each.__doc__ is None
    assert names.get("__doc__") is None
    assert names["fail"].__annotations__ == names["Options"].only.__annotations__ == {}
    assert names["Options"]().only() is None


def test_lean_code_keeps_what_is_read_later() -> None:
    names = run(SOURCE)
    assert names["Options"].__annotations__ == {"first": "Unknown", "second": "int"}
    assert names["Nothing"] == 1
    assert names["later"].__kwdefaults__ == {"by": 3}


def test_lean_code_keeps_the_numbers_of_lines() -> None:
    with pytest.raises(ValueError, match="no docstring") as caught:
        run(SOURCE)["fail"](1)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    line = SOURCE.decode().splitlines().index("    raise ValueError(found)") + 1
    assert (last.filename, last.lineno, last.name) == ("/place/module.py", line, "fail")


def test_lean_code_imports_nothing_for_annotations() -> None:
    assert "__future__" not in compile_lean(SOURCE, "x").co_names
    assert "annotations" not in run(b"from __future__ import annotations\n")


def test_lean_code_of_bad_source_is_the_compilers_error() -> None:
    with pytest.raises(SyntaxError):
        compile_lean(b"def:\n", "x")


def test_no_lean_module_reads_a_docstring_or_annotations_of_functions() -> None:
    """They would be missing there; annotations of classes are kept."""
    for name in (*EARLY, *EVERY_START):
        path = REPOSITORY / "src" / Path(*name.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = source.read_text()
        assert "__doc__" not in text, name
        assert "get_type_hints" not in text, name
        assert "signature(" not in text, name


def test_late_functions_are_pieces_of_their_own() -> None:
    names: dict[str, Any] = {"__name__": "module"}
    code, late = compile_split(SOURCE, "/place/module.py", ("fail", "gone", "Options"))
    exec(code, names)
    assert "fail" not in names
    assert "Options" in names, "a class is not late"
    assert list(late) == ["fail"]
    exec(late["fail"], names)
    with pytest.raises(ValueError, match="no docstring") as caught:
        names["fail"](1)
    line = SOURCE.decode().splitlines().index("    raise ValueError(found)") + 1
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == line


@pytest.mark.parametrize("source", [b"@hook\ndef f(): pass\n", b"def f(a=[]): pass\n", b"if 1:\n    def f(): pass\n"])
def test_functions_that_must_be_defined_in_their_turn_are_not_late(source: bytes) -> None:
    assert compile_split(source, "x", ("f",))[1] == {}
