# SPDX-License-Identifier: BSD-3-Clause
"""A terminal of a test's own: a command run on a pty, and all that it writes there."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence


def run_on_terminal(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """The exit status, and what the command wrote to the terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 4096):
                pieces.append(piece)
        except OSError:  # the last process that had the terminal open is gone
            pass
        os.close(ours)
        status = child.wait(timeout=60)
    return status, b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")
