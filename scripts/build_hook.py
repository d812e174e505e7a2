# SPDX-License-Identifier: BSD-3-Clause
"""What hatchling calls while it makes a wheel, also that of an editable install: the man pages are made for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        self.pages = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, str(Path(self.root, "scripts/make-reference")), self.pages.name], check=True)
        build_data["shared_data"][f"{self.pages.name}/man"] = "share/man/man1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        self.pages.cleanup()
