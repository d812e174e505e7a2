# SPDX-License-Identifier: BSD-3-Clause
"""Somebody who submits jobs to a queue of their own on this machine, with a home and a cache that are a test's."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.builders.warm_kedge import kedge


class QueueUser:
    """Works in `folder`, which is the home as well; `environment` is what is told to kedge beyond the tester's own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.environment = {
            "HOME": str(folder),
            "KEDGE_LOCAL_QUEUE": str(folder / "queue"),
            "KEDGE_LOCAL_GPUS": "0",
            **environment,
        }

    @property
    def cache(self) -> Path:
        """Where its images are kept."""
        return self.folder / "cache"

    def run(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run to the end; a failure fails the test, unless `check` says otherwise."""
        return kedge(*words, cache=self.cache, environment=self.environment, cwd=self.folder, check=check)

    def read(self, *words: str | Path) -> str:
        """What it prints."""
        return self.run(*words).stdout
