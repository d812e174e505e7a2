# SPDX-License-Identifier: BSD-3-Clause
"""Many jobs at once: their records, and a squeue that tells of them and counts how often it is asked."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.jobs.records import Draft, Records
from tests.builders.containers import Runner


def make_records(user: Runner, count: int, site: str = "generic-slurm") -> Records:
    """Records of jobs 1..count, below the user's home."""
    root = user.home / ".local/state/kedge/jobs"
    records = Records(root)
    draft = Draft("train", site, "slurm", {"name": "train"}, "/", "/train-{id}.out", "", ["sbatch"])
    for number in range(1, count + 1):
        key, _ = records.place()
        records.name_id(records.create(f"{key}-{number}", draft, "#!/bin/bash\n"), str(number))
    if os.getuid() == 0:
        for folder in (user.home / ".local", *sorted((user.home / ".local").rglob("*"))):
            os.chown(folder, user.uid, user.uid, follow_symlinks=False)
    return records


def fake_squeue(folder: Path, count: int, counter: Path) -> Path:
    """A squeue whose answer is written already; it leaves a dot in `counter` for every call."""
    answer = folder / "squeue.txt"
    times = "2026-11-15T08:00:00|2026-11-15T08:10:00"
    answer.write_text(
        "".join(
            f"{number}|N/A|RUNNING|nobody|gpu|n[1-2]|{times}|2026-11-15T18:10:00|10:00:00|None|train\n"
            for number in range(1, count + 1)
        )
    )
    counter.write_text("")
    counter.chmod(0o666)
    program = folder / "bin" / "squeue"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\nprintf . >>{counter}\ncat {answer}\n")
    program.chmod(0o755)
    return program
