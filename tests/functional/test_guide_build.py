# SPDX-License-Identifier: BSD-3-Clause
"""What the guide about builds shows works: its recipes are built, and its commands show what it says.

Blocks below `<!-- file: build NAME -->` are files, those below `<!-- tool: build -->` are run. Needs user namespaces.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.builders.documents import Step
from tests.fakes.registry import FakeRegistry
from tests.functional.test_docs import judge_step, make_environment, registry
from tests.requirements import REPOSITORY, require_user_namespaces

__all__ = ["registry"]  # the fixture

GUIDE = REPOSITORY / "docs/guides/build.md"
BLOCK = re.compile(r"^<!-- (file|tool): build ?(\S*) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_blocks(kind: str) -> list[tuple[str, str]]:
    return [(name, text) for found, name, text in BLOCK.findall(GUIDE.read_text()) if found == kind]


def list_steps() -> list[Step]:
    parts = [part for _, text in read_blocks("tool") for part in re.split(r"^\$ ", text, flags=re.MULTILINE) if part]
    lines = [part.rstrip("\n").split("\n") for part in parts]
    return [Step(first.partition("  #")[0].strip(), tuple(shown)) for first, *shown in lines]


def test_guide_builds_what_it_shows(tmp_path: Path, registry: FakeRegistry) -> None:
    if os.geteuid() != 0:
        require_user_namespaces()
    environment = make_environment(tmp_path, registry)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in read_blocks("file"):
        (folder / name).write_text(text)
    steps = list_steps()
    assert len(steps) >= 10
    for step in steps:
        judge_step("build.md", step, folder, environment)
