# SPDX-License-Identifier: BSD-3-Clause
"""A PBS that is none: qsub, qstat, qdel and qsig that keep their jobs in a directory and really run them.

They answer as the documents and sources of OpenPBS 18 to 23 say that its programs do. FAKE_PBS names the directory;
FAKE_PBS_HISTORY=off forgets jobs that have ended, as servers do whose job_history_enable is not set.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent


def make_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables with which these programs are found first, and keep their jobs in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return {**environ, "PATH": f"{PROGRAMS}:{environ.get('PATH', '/usr/bin:/bin')}", "FAKE_PBS": str(folder)}


def end_all(folder: Path) -> None:
    """End what still runs or waits."""
    for path in folder.glob("job-*.json"):
        job = json.loads(path.read_text())
        for pid in [job.get("runner"), *(task.get("pid") for task in job["tasks"].values())]:
            with suppress(ProcessLookupError, TypeError):
                os.killpg(pid, signal.SIGKILL)
