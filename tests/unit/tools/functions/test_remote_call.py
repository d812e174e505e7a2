# SPDX-License-Identifier: BSD-3-Clause
"""Functions that run in another Python: packed, called by the runner, answered."""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.programs import read_program

from kedge.errors import JobFailed, UsageError
from kedge.tools.functions.pack import PackedCall, read_answer, write_call

# A program of its own, because what is in `__main__` is what notebooks and scripts have.
PROGRAM = read_program("pack_functions")


# What scripts do that breaks when source is taken for less than it is.
ODD = read_program("odd_functions")


def call(packed: PackedCall, python: str = sys.executable, index: int | None = None) -> int:
    more = {} if index is None else {"KEDGE_ARRAY_INDEX": str(index)}
    environment = {"PATH": os.environ["PATH"], **more}
    done = subprocess.run([python, *packed.words], env=environment, check=False)
    return done.returncode


def write_result(path: Path, key: bytes, data: bytes) -> None:
    seal = hmac.new(key, path.name.encode() + b"\0" + data, hashlib.sha256).digest()
    path.write_bytes(seal + data)


def run_program(tmp_path: Path, python: str, text: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    words = [sys.executable, str(program), str(tmp_path / f"call-{len(text)}"), python]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_call_takes_classes_closures_and_decorators_along(tmp_path: Path) -> None:
    done = run_program(tmp_path, sys.executable)
    assert done.stdout == "118\n", done.stderr  # 3² + 5 + 2 · 2 + 100
    done = run_program(tmp_path, sys.executable, ODD)
    assert done.stdout == "True 1149\n", done.stderr  # 7 + 3 + 120 + 1003 + 9 + 1 + 5, and 1 by its decorator


def test_call_of_two_things_with_one_name_is_refused(tmp_path: Path) -> None:
    def make(step: int) -> Callable[[], int]:
        def add() -> int:
            return step

        return add

    first, second = make(1), make(2)

    def compute() -> int:
        return first() + second()

    with pytest.raises(UsageError, match="the name 'add' has two different values"):
        write_call(tmp_path / "call", compute, [[((), {})]])


def test_call_of_what_cannot_travel_is_refused(tmp_path: Path) -> None:
    async def wait() -> None:
        """Nothing."""

    with pytest.raises(UsageError, match="has only begun to run"):
        write_call(tmp_path / "call", wait, [[((), {})]])
    with pytest.raises(UsageError, match="a lambda has no source"):
        write_call(tmp_path / "call", lambda: 1, [[((), {})]])
    with (tmp_path / "file").open("w") as file, pytest.raises(UsageError, match="an argument of 'divmod' cannot be"):
        write_call(tmp_path / "call", divmod, [[((file, 1), {})]])


def test_call_of_a_function_in_a_module_goes_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "call"
    packed = write_call(folder, shutil.which, [[(("sh",), {})]])
    assert call(packed) == 0
    answer = read_answer(folder / "result", packed.key)
    assert answer.values == (shutil.which("sh"),)


def test_call_of_an_array_reads_its_own_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "call"
    packed = write_call(folder, divmod, [[((number, 3), {}), ((number, 2), {})] for number in range(4, 6)])
    assert call(packed, index=1) == 0
    answer = read_answer(folder / "result.1", packed.key)
    assert answer.values == ((1, 2), (2, 1))
    assert read_answer(folder / "result.0", packed.key) is None


def test_call_answers_with_exceptions(tmp_path: Path) -> None:
    folder = tmp_path / "call"
    packed = write_call(folder, divmod, [[((1, 0), {})]])
    assert call(packed) == 1
    answer = read_answer(folder / "result", packed.key)
    assert isinstance(answer.problem, ZeroDivisionError)
    assert "Traceback" in str(answer.problem.__cause__)
    folder = tmp_path / "other"
    packed = write_call(folder, sys.exit, [[((7,), {})]])
    call(packed)
    answer = read_answer(folder / "result", packed.key)
    assert isinstance(answer.problem, SystemExit)


def test_result_that_cannot_be_read_here_says_so(tmp_path: Path) -> None:
    module = tmp_path / "only_there.py"
    module.write_text("class Thing: pass\ndef make(): return Thing()\n")
    import pickle

    inner = b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\nonly_there\x94\x8c\x05Thing\x94\x93\x94)\x81\x94."
    write_result(tmp_path / "result", b"key", pickle.dumps({"values": [inner]}))
    answer = read_answer(tmp_path / "result", b"key")
    assert isinstance(answer.problem, JobFailed)
    assert "cannot be read here" in answer.problem.message


def test_call_is_the_users_alone(tmp_path: Path) -> None:
    write_call(tmp_path / "call", divmod, [[((4, 3), {})]])
    assert (tmp_path / "call").stat().st_mode & 0o077 == 0
