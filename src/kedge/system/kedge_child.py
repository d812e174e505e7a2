# SPDX-License-Identifier: BSD-3-Clause
"""kedge in a child process, whose own failures can be raised here.

A Python program cannot start a container in itself: the process that starts one becomes the container's program.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from kedge.errors import KedgeError, rebuild_error
from kedge.system.lean_programs import Finished
from kedge.system.process import run_program
from kedge.system.start_kedge import own_command

OWN_FAILURE = 255  # of the verbs that start containers


def run_kedge(
    words: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    capture: bool = True,
    name: str = "kedge",
) -> Finished:
    """Run `kedge WORDS` to its end; with `capture` its failures are JSON in the output, for `read_error`."""
    done = run_program(
        own_command(*(["--json"] if capture else []), *words),
        environment=dict(os.environ if environment is None else environment),
        timeout=timeout,
        check=False,
        capture=capture,
        name=name,
    )
    return Finished(("kedge", *words), done.status, done.output, done.errors)


def read_error(output: bytes) -> KedgeError | None:
    """The error that `--json` printed; None when this is something else, such as the output of a program."""
    if not output.startswith(b"{") or not output.rstrip().endswith(b"}"):
        return None
    try:
        document = json.loads(output)
    except ValueError:
        return None
    return (
        rebuild_error(document)
        if isinstance(document, dict) and {"error", "exit_code", "message"} <= set(document)
        else None
    )
