# SPDX-License-Identifier: BSD-3-Clause
"""Compiles modules for a bundle, in a process of its own: the same sources give the same bytes.

The order of constant sets in compiled code follows the hash seed of the process, so that one is fixed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from kedge.errors import ProgramFailed
from kedge.posix.process import run_program
from kedge.posix.start_kedge import own_interpreter, own_package

# Code is never looked at again once it is unpacked (an unchecked hash): nothing is compared or written at a start.
_PROGRAM = r"""
import _imp, importlib._bootstrap_external as machinery, importlib.util, json, marshal, sys
sys.path.insert(0, sys.argv[2])
from kedge.lean_code import compile_split
for number, (path, name, late) in enumerate(json.load(sys.stdin)):
    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as problem:
        sys.exit(f"{path}: {problem}")
    with open(f"{sys.argv[1]}/{number}", "wb") as file:
        file.write(machinery._code_to_hash_pyc(code, importlib.util.source_hash(source), False))
    if late is not None:
        code, pieces = compile_split(source, name, late)
        for piece in pieces.values():
            _imp._fix_co_filename(piece, name)
        packed = {each: marshal.dumps(piece) for each, piece in pieces.items()}
        with open(f"{sys.argv[1]}/{number}.lean", "wb") as file:
            marshal.dump((marshal.dumps(compile_split(source, name, ())[0]), code, packed), file)
"""


def compile_modules(
    sources: Mapping[str, Path], work: Path, late: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The compiled code of each source by the same name; `work` is an empty directory for it.

    Of those in `late` the lean code as well (`kedge.lean_code`), packed: the whole module, the module without the
    functions that are named there, and these.
    """
    order = [[str(path), name, late.get(name)] for name, path in sources.items()]
    try:
        run_program(
            [own_interpreter(), "-S", "-s", "-P", "-B", "-c", _PROGRAM, str(work), str(Path(own_package()).parent)],
            stdin=json.dumps(order).encode(),
            environment={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": "", "PYTHONOPTIMIZE": ""},
            name="python",
        )
    except ProgramFailed as problem:
        raise ProgramFailed(
            "a module of this installation cannot be compiled", context=problem.context, hint="install kedge again"
        ) from problem
    compiled = {name: (work / str(number)).read_bytes() for number, name in enumerate(sources)}
    return compiled, {
        name: (work / f"{number}.lean").read_bytes() for number, name in enumerate(sources) if name in late
    }
