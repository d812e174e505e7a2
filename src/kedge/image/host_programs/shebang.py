# SPDX-License-Identifier: BSD-3-Clause
"""The programs that a `#!` line names."""

from __future__ import annotations

import os

from kedge.errors import FileProblem, ProgramMissing, UnsupportedFormat
from kedge.system.files import explain, explained
from kedge.system.programs import find_program

_MAXIMUM_LINE = 255  # BINPRM_BUF_SIZE less one: the kernel looks no further
_WITH_VALUE = ("-u", "--unset", "-C", "--chdir")  # options of env whose value is a word of its own


def read_interpreter(path: str) -> list[str]:
    """The paths to pack for the script at `path`: its interpreter, and for `env` also what env will start."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise explain(problem, path) from problem
    try:
        with explained(path):
            line = os.read(descriptor, _MAXIMUM_LINE).partition(b"\n")[0]
    finally:
        os.close(descriptor)
    if not line.startswith(b"#!"):
        raise UnsupportedFormat(
            f"{path} is neither an ELF program nor a script with a '#!' line",
            hint="put '#!' and the path of its interpreter into its first line",
        )
    words = os.fsdecode(line[2:]).split()
    if not words or not words[0].startswith("/"):
        raise FileProblem(f"{path}: its '#!' line does not name an interpreter by its full path")
    _require_file(words[0], path)
    if words[0].rpartition("/")[2] != "env":
        return [words[0]]
    started = _find_env_program(words[1:], path)
    return [words[0], started]


def _require_file(interpreter: str, script: str) -> None:
    if not os.path.isfile(interpreter):  # noqa: PTH113 - text in, text out
        raise ProgramMissing(f"{script} needs the interpreter {interpreter}, which is not on this host")


def _find_env_program(words: list[str], script: str) -> str:
    """`env [-S] [NAME=VALUE…] PROGRAM …`: the first word that is neither an option nor a variable."""
    following = iter(words)
    for word in following:
        word = word.removeprefix("--split-string=").removeprefix("-S")
        if word in _WITH_VALUE:
            next(following, None)
            continue
        if not word or word.startswith("-") or "=" in word:
            continue
        program = find_program(word)
        if program is None:
            raise ProgramMissing(f"{script} needs the program '{word}' (after env), which is not on this host")
        return os.path.abspath(program)  # noqa: PTH100 - links are kept
    raise FileProblem(f"{script}: its '#!' line names env, but no program after it")
