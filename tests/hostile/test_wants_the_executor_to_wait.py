# SPDX-License-Identifier: BSD-3-Clause
"""A function that ran in somebody's image has the key of its call: its forged result leaves nobody waiting for ever.

What it says is believed (docs/threat-model.md). What other users write is not: tests/hostile/test_foreign_records.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.builders.rows import each_row

PROGRAM = '''
import sys
import kedge

def forge(text):
    """Write a result with the call's own seal, and be gone."""
    import hashlib, hmac, os, pickle, sys
    frame = sys._getframe()
    while "call" not in frame.f_locals:
        frame = frame.f_back
    call = frame.f_locals["call"]
    folder = os.path.dirname(call["place"])
    told = eval(text)
    with open(os.path.join(folder, "forged"), "wb") as file:
        file.write(hmac.new(call["key"], b"result\\\\0" + told, hashlib.sha256).digest() + told)
    os.rename(os.path.join(folder, "forged"), os.path.join(folder, "result"))
    os._exit(0)

def add(x): return x + 1

if __name__ == "__main__":
    executor = kedge.Executor(site="local", python=sys.executable)
    forged = executor.submit(forge, sys.argv[1])
    print(type(forged.exception(60)).__name__)
    print(executor.submit(add, 1).result(60))
'''
FORGED = {
    "too few": "pickle.dumps({'values': []})",
    "too many": "pickle.dumps({'values': [pickle.dumps(1), pickle.dumps(2)]})",
    "no values": "pickle.dumps(7)",
    "no exception": "pickle.dumps({'problem': pickle.dumps(7), 'kind': 'x', 'traceback': ''})",
    "an end of the process": "b'cbuiltins\\\\nexit\\\\n(I0\\\\ntR.'",
}


@each_row("kind", FORGED)
def test_a_forged_result_is_a_failure_and_the_next_call_is_answered(tmp_path: Path, kind: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("\\\\0", "\\0"))
    done = subprocess.run(
        [sys.executable, str(program), FORGED[kind].replace("\\\\n", "\\n")],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[1:] == ["2"]
    assert done.stdout.split()[0] in ("JobFailed", "SystemExit")
