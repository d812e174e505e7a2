# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge script` believes about Grid Engine's qsub, asked of a real one."""

from __future__ import annotations

from kedge.jobs.scripts.findings import Severity
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script
from tests.cluster.gridengine_cell import GridEngineCell

HEAD = "#!/bin/bash\n#$ -cwd\n"
TAKEN = [
    *("#$ -N foo # a comment\n", "#$ -N foo#comment\n", "#$-N foo\n", " #$ -foo\n# $ -foo\n##$ -foo\n"),
    *("hostname\n#$ -N late\n", "#$ -o $HOME/x.$JOB_ID -j y\n", "#$ -l h_rt=1:00:00\n#$ -pe smp 1\n"),
]
REFUSED = [
    *("#$ -N foo bar\n", "#$ -foo 3\n", "#$HOME is a directory\n", "#$ -l h_rt=1:30\n", "#$ -l h_rt=1d\n"),
    *("#$ -g group\n", "#$ -l h_rt=60 \\\n", "hostname\n#$ -N late and more\n"),
]


def _submit(cell: GridEngineCell, text: str) -> int:
    user = cell.user()
    done = user.run_program("qsub", "-terse", "-h", stdin=text)
    if done.returncode == 0:
        user.run_program("qdel", done.stdout.strip())
    return done.returncode


def test_script_and_qsub_agree_on_what_is_taken(gridengine: GridEngineCell) -> None:
    wrong = []
    for text in (f"{HEAD}{directives}hostname\n" for directives in TAKEN):
        found = [each for each in check_script(read_script(text)) if each.severity is Severity.ERROR]
        if found or _submit(gridengine, text) != 0:
            wrong.append((text, found))
    assert not wrong


def test_script_and_qsub_agree_on_what_is_refused(gridengine: GridEngineCell) -> None:
    wrong = []
    for text in (f"{HEAD}{directives}hostname\n" for directives in REFUSED):
        found = [each for each in check_script(read_script(text)) if each.severity is not Severity.NOTE]
        if not found or _submit(gridengine, text) == 0:
            wrong.append((text, found))
    assert not wrong
