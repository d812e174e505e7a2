# SPDX-License-Identifier: BSD-3-Clause
"""What shells and small programs say in passing: the cause where nothing else failed, else a detail of the script."""

from __future__ import annotations

from kedge.compat.failures.failure import GENERAL, Failure

SHELL = (
    Failure(
        "command-not-found",
        r"^(?:[\w./-]+: )?(?:line \d+: )?([\w./+-]{1,80}): (?:command )?not found\s*$|^\S+: \d+: (\S+): not found",
        cause="a program was not found: {1}; it is not installed there, not in PATH, or its module is not loaded",
        remedy="give its absolute path, or load its module in the script; a program of the image runs as 'kedge exec "
        "IMAGE PROGRAM'",
        source="bash, dash",
        examples=(
            "/var/spool/slurmd/job00012/slurm_script: line 4: apptainer: command not found",
            "/bin/sh: 1: nvcc: not found",
        ),
        level=GENERAL,
    ),
    Failure(
        "script-no-file",
        r"^(?:[\w./-]+: )?cannot (?:access|open|stat) '?([^'\n]{1,200}?)'?: No such file or directory"
        r"|^(?:[\w./-]+: )(?:line \d+: )?([\w./+-]{1,200}): No such file or directory$",
        cause="there is no {1}: a wrong name or directory, or the directory is not in the container, or not on "
        "that node",
        remedy="paths are relative to where the job was submitted; --bind DIRECTORY brings one into the container; "
        "'kedge exec IMAGE ls DIRECTORY' shows what it sees",
        source="coreutils, bash",
        examples=(
            "ls: cannot access '/data': No such file or directory",
            "cat: x: No such file or directory",
            "bash: line 1: ./train.sh: No such file or directory",
        ),
        level=GENERAL,
    ),
    Failure(
        "script-denied",
        r"^(?:[\w./-]+: )?(?:line \d+: )?(\S{1,200}?): Permission denied\s*$",
        cause="you may not use {1}: its rights do not allow it, or a script is not executable",
        remedy="'ls -ld FILE' shows its rights; 'chmod +x SCRIPT' makes a script executable; inside of a "
        "container write "
        "to your own directories",
        source="bash",
        examples=("bash: line 3: ./train.sh: Permission denied",),
        level=GENERAL,
        unless=r"publickey|/proc/\d+/fd|Host key",
    ),
)
