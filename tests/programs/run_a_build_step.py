# SPDX-License-Identifier: BSD-3-Clause
"""Runs one step of a build as whoever starts this; prints status, output or error as JSON.

Standard input: a JSON object with `root`, `program`, and the other arguments of run_build_step; with `context` the
program is one of the host, `hidden` is what it does not see there, and `inode` what the directory is known by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kedge.container.facts import Bind
from kedge.container.start.build_step import StepContext, StepMemory, StepProgram, StepRoot, run_build_step
from kedge.container.start.host_script import HostScript, run_host_script
from kedge.errors import KedgeError


def main() -> None:
    """Read, run, print."""
    given = json.load(sys.stdin)
    root = StepRoot(given["root"]["base"], tuple(given["root"].get("layers", ())), given["root"].get("changes", ""))
    program = given["program"]
    program["stdin"] = program.get("stdin", "").encode()
    named = given.get("named", {})
    named["memory"] = [StepMemory(*words) for words in named.get("memory", [])]
    named["binds"] = [
        text if isinstance(text, str) else Bind(text[0], text[1], readonly=bool(text[2]))
        for text in named.get("binds", [])
    ]
    pieces: list[bytes] = []
    result: dict[str, object] = {}
    try:
        if "context" in given:
            context, status = given["context"], Path(given["context"]).stat()
            shown = (context, status.st_dev, given.get("inode") or status.st_ino)
            script = HostScript(program["argv"], StepContext(context, (shown,), tuple(given.get("hidden", ()))))
            result["status"] = run_host_script(root, script, pieces.append)
        else:
            result["status"] = run_build_step(root, StepProgram(**program), pieces.append, **named)
    except KedgeError as problem:
        result["error"] = problem.as_dict()
    result["output"] = b"".join(pieces).decode(errors="replace")
    result["pieces"] = len(pieces)
    print(json.dumps(result))


main()
