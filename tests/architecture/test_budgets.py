# SPDX-License-Identifier: BSD-3-Clause
"""Sizes stay readable, every module says what it is for, and names say something. Ceilings only ever go down.

The ceiling on branching (McCabe 10) is ruff's, which `make check` runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import Module, read_modules

FUNCTION_LINES = 60
POSITIONAL_PARAMETERS = 5
KEYWORD_PARAMETERS = 8
FORBIDDEN_NAMES = {"utils", "util", "misc", "common", "helpers", "helper"}
LICENCE = "# SPDX-License-Identifier: BSD-3-Clause"


def all_functions() -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in read_modules().values():
        for node in module.find(ast.FunctionDef, ast.AsyncFunctionDef):
            yield module, node


def test_budgets_functions_are_short() -> None:
    wrong = [
        f"{module.shown}:{node.lineno} {node.name} has {size} lines, {FUNCTION_LINES} are allowed"
        for module, node in all_functions()
        if (size := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_budgets_parameters_are_few() -> None:
    wrong = []
    for module, node in all_functions():
        positional = [each.arg for each in [*node.args.posonlyargs, *node.args.args] if each.arg not in ("self", "cls")]
        if len(positional) > POSITIONAL_PARAMETERS or len(node.args.kwonlyargs) > KEYWORD_PARAMETERS:
            wrong.append(f"{module.shown}:{node.lineno} {node.name} takes too many parameters: make a value of them")
    assert not wrong, "\n" + "\n".join(wrong)


def test_budgets_values_are_made_by_name() -> None:
    """The same five for the constructors of values, whose parameters are their fields: all others are named."""
    values = {
        node.name
        for module in read_modules().values()
        for node in module.find(ast.ClassDef)
        if any(isinstance(each, ast.Name) and each.id == "frozen" for each in node.decorator_list)
    }
    wrong = [
        f"{module.shown}:{node.lineno} {node.func.id} is given {len(node.args)} values by position: name them"
        for module in read_modules().values()
        for node in module.find(ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in values and len(node.args) > POSITIONAL_PARAMETERS
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_budgets_modules_open_with_licence_and_purpose() -> None:
    wrong = []
    for module in read_modules().values():
        if module.text.split("\n", 1)[0] != LICENCE:
            wrong.append(f"{module.shown}: the first line must be: {LICENCE}")
        if not ast.get_docstring(module.tree):
            wrong.append(f"{module.shown}: no docstring that says what the module is for")
    assert not wrong, "\n" + "\n".join(wrong)


def test_budgets_names_say_something() -> None:
    wrong = [
        f"{module.shown}: '{part}' says nothing about what is inside"
        for module in read_modules().values()
        for part in module.name.split(".")
        if part in FORBIDDEN_NAMES
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X:"])
def test_budgets_nothing_is_left_for_later(word: str) -> None:
    wrong = [
        f"{module.shown}:{number} says {word}"
        for module in read_modules().values()
        for number, line in enumerate(module.text.splitlines(), 1)
        if word in line
    ]
    assert not wrong, "\n" + "\n".join(wrong)
