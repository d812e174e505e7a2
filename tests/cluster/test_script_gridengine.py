# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge script` believes about Grid Engine's qsub, asked of a real one."""

from __future__ import annotations

import pytest

from kedge.batchscript.findings import Severity
from kedge.batchscript.reader import read_script
from kedge.batchscript.rules import check_script
from tests.cluster.gridengine_cell import GridEngineCell

HEAD = "#!/bin/bash\n#$ -cwd\n"
TAKEN = [
    "#$ -N foo # a comment\n",
    "#$ -N foo#comment\n",
    "#$-N foo\n",
    " #$ -foo\n# $ -foo\n##$ -foo\n",
    "hostname\n#$ -N late\n",
    "#$ -o $HOME/x.$JOB_ID -j y\n",
    "#$ -l h_rt=1:00:00\n#$ -pe smp 1\n",
]
REFUSED = [
    "#$ -N foo bar\n",
    "#$ -foo 3\n",
    "#$HOME is a directory\n",
    "#$ -l h_rt=1:30\n",
    "#$ -l h_rt=1d\n",
    "#$ -g group\n",
    "#$ -l h_rt=60 \\\n",
    "hostname\n#$ -N late and more\n",
]


def _submit(cell: GridEngineCell, text: str) -> int:
    user = cell.user()
    done = user.run_program("qsub", "-terse", "-h", stdin=text)
    if done.returncode == 0:
        user.run_program("qdel", done.stdout.strip())
    return done.returncode


@pytest.mark.parametrize("directives", TAKEN)
def test_script_and_qsub_agree_on_what_is_taken(directives: str, gridengine: GridEngineCell) -> None:
    text = f"{HEAD}{directives}hostname\n"
    assert _submit(gridengine, text) == 0
    assert not [each for each in check_script(read_script(text)) if each.severity is Severity.ERROR]


@pytest.mark.parametrize("directives", REFUSED)
def test_script_and_qsub_agree_on_what_is_refused(directives: str, gridengine: GridEngineCell) -> None:
    text = f"{HEAD}{directives}hostname\n"
    assert _submit(gridengine, text) != 0
    assert [each for each in check_script(read_script(text)) if each.severity in (Severity.ERROR, Severity.WARNING)]
