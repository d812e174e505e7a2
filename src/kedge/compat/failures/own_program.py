# SPDX-License-Identifier: BSD-3-Clause
"""What a node says when it cannot start kedge itself: the file is on the login node alone, or for another CPU."""

from __future__ import annotations

from kedge.compat.failures.failure import Failure

_SAYS = r"(?:line \d+: |execve\(\): )(/(?:[^\n:]{0,200}/)?kedge[\w.-]{0,80}): "

OWN_PROGRAM = (
    Failure(
        "kedge-not-on-node",
        _SAYS + r"No such file or directory",
        cause="that node has no {1}, the kedge that the job was submitted with",
        remedy="install or copy kedge to a directory that compute nodes see, such as your home, and submit with that "
        "one; a bundle is a single file: cp {1} DIRECTORY",
        source="bash; Slurm 22.05",
        examples=(
            "/var/spool/slurmd/job00007/slurm_script: line 35: /var/tmp/kedge-x86_64: No such file or directory",
            "slurmstepd: error: execve(): /opt/kedge/bin/kedge: No such file or directory",
        ),
    ),
    Failure(
        "kedge-for-another-cpu",
        _SAYS + r"(?:cannot execute binary file: )?Exec format error",
        cause="{1} is a bundle of kedge for another CPU than that node has",
        remedy="run 'kedge bundle' on a host with the node's CPU, copy the file to the cluster, and submit from a "
        "node with that CPU",
        source="bash; Slurm 22.05",
        examples=(
            "/var/spool/slurmd/job00007/slurm_script: line 35: /home/ada/bin/kedge: cannot execute binary file: Exec "
            "format error",
            "slurmstepd: error: execve(): /home/ada/kedge-aarch64: Exec format error",
        ),
    ),
)
