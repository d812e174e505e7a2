# SPDX-License-Identifier: BSD-3-Clause
"""Every one of the users' threads has a case that claims something, and none is claimed that does not exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.builders.user_threads import NOT_TREATED, THREADS
from tests.requirements import REPOSITORY


def list_tests() -> Iterator[tuple[ast.FunctionDef, str]]:
    for path in sorted((REPOSITORY / "tests/functional").glob("test_threads_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node, path.name


def list_numbers(test: ast.FunctionDef) -> Iterator[int]:
    """The numbers in `@about(1, 2)` and in the rows `case(1, …)` of a parametrized test."""
    for decorator in test.decorator_list:
        for call in ast.walk(decorator):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("about", "case"):
                numbers = call.args if call.func.id == "about" else call.args[:1]
                yield from (each.value for each in numbers if isinstance(each, ast.Constant))


def claims(test: ast.FunctionDef) -> bool:
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    says = any(isinstance(each, ast.Name) and each.id.startswith("assert_") for each in calls)  # tests/wording.py
    return says or any(isinstance(node, ast.Assert) for node in ast.walk(test))


def test_threads_are_all_there() -> None:
    assert list(THREADS) == list(range(1, 56))
    assert len(set(THREADS.values())) == 55
    assert NOT_TREATED.keys() <= THREADS.keys()


def test_threads_have_a_case_each_that_claims_something() -> None:
    covered = {number for test, _ in list_tests() if claims(test) for number in list_numbers(test)}
    assert [number for number in THREADS if number not in covered] == []
    assert covered <= THREADS.keys()


def test_threads_every_test_of_theirs_names_its_thread() -> None:
    nameless = [test.name for test, file in list_tests() if not list(list_numbers(test))]
    assert [name for name in nameless if name not in globals()] == []
