# SPDX-License-Identifier: BSD-3-Clause
"""Batch scripts that nobody would write: they cost time in proportion to their size, and no more."""

from __future__ import annotations

import time

import pytest

from kedge.jobs.scripts.convert import convert_script
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script

SIZE = 1 << 15
HEAD = "#!/bin/bash\n#SBATCH -N 1\n"
PIECES = {
    "one word": "a",
    "directives": "#SBATCH -N 1\n",
    "options": "#SBATCH " + "-v " * 40 + "\n",
    "words": " -- singularity",
    "calls": "singularity exec $A a\n",
    "variables": "A1=b\n",
    "exports": "export A1=b\n",
    "commands": "$(",
    "braces": "${",
    "backquotes": "`",
    "quotes": '"',
    "here documents": "cat <<E\n",
    "redirections": "<",
    "brackets": "(",
    "placeholders": " <a",
    "underscores": "a_",
}


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", PIECES)
def test_scripts_cost_no_more_than_their_size(name: str, times: int) -> None:
    piece = PIECES[name]
    text = HEAD + piece * (times * SIZE // len(piece)) + "\nsingularity exec x.sif a\n"
    began = time.process_time()
    script = read_script(text)
    check_script(script)
    convert_script(script, target="pbs")
    assert time.process_time() - began < 4 * times  # squares of the size would be many times that


def test_scripts_with_one_endless_directive_are_read() -> None:
    began = time.process_time()
    assert read_script(HEAD + '#SBATCH -J "' + "a" * SIZE + '"\n').live[1].value == "a" * SIZE
    assert len(read_script(HEAD + "#SBATCH " + "-v " * SIZE + "\n").live) == SIZE + 1
    assert time.process_time() - began < 5
