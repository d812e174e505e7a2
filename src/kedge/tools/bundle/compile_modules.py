# SPDX-License-Identifier: BSD-3-Clause
"""Compiles modules for a bundle, in a process of its own: the same sources give the same bytes.

The order of constant sets in compiled code follows the hash seed of the process, so that one is fixed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kedge.errors import ProgramFailed
from kedge.system.process import run_program
from kedge.system.start_kedge import own_interpreter

# Code is never looked at again once it is unpacked (an unchecked hash): nothing is compared or written at a start.
_PROGRAM = r"""
import importlib._bootstrap_external as machinery, importlib.util, json, sys
for number, (path, name) in enumerate(json.load(sys.stdin)):
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as problem:
        sys.exit(f"{path}: {problem}")
    with open(f"{sys.argv[1]}/{number}", "wb") as file:
        file.write(machinery._code_to_hash_pyc(code, importlib.util.source_hash(source), False))
"""


def compile_modules(sources: Mapping[str, Path], work: Path) -> dict[str, bytes]:
    """The compiled code of each source by the same name; `work` is an empty directory for it."""
    order = [[str(path), name] for name, path in sources.items()]
    try:
        run_program(
            [own_interpreter(), "-S", "-s", "-P", "-B", "-c", _PROGRAM, str(work)],
            stdin=json.dumps(order).encode(),
            environment={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": "", "PYTHONOPTIMIZE": ""},
            name="python",
        )
    except ProgramFailed as problem:
        raise ProgramFailed(
            "a module of this installation cannot be compiled", context=problem.context, hint="install kedge again"
        ) from problem
    return {name: (work / str(number)).read_bytes() for number, name in enumerate(sources)}
