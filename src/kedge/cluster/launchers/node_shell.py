# SPDX-License-Identifier: BSD-3-Clause
"""MPI's launchers call ssh to reach other nodes of a job; where the scheduler has a program for that, they call it.

The program runs words as they are, and launchers write theirs for a shell: a script of some lines stands between.
"""

from __future__ import annotations

from collections.abc import Container

_SCRIPT = (
    "#!/bin/sh",
    "host=$1; shift",
    # launchers cut names of nodes at the first dot, and the scheduler knows them by the name in its list alone
    'while read -r name; do case $name in "$host" | "$host".*) host=$name ;; esac; done <"${{{node_file}}}"',
    'exec {program} "$host" /bin/sh -c "$*"',
)

# What the scheduler started ends with its first process, so daemons must not leave it; and the script is on one node
# only, so no node may start others.
_SETTINGS = (
    ("OMPI_MCA_plm_rsh_agent", "/bin/sh {script}"),  # by sh it runs where nothing may be executed
    ("OMPI_MCA_plm_rsh_no_tree_spawn", "1"),
    ("OMPI_MCA_orte_leave_session_attached", "1"),
    ("PRTE_MCA_plm_ssh_agent", "/bin/sh {script}"),
    ("PRTE_MCA_plm_ssh_no_tree_spawn", "1"),
    ("PRTE_MCA_prte_leave_session_attached", "1"),
    ("HYDRA_LAUNCHER", "rsh"),
    ("HYDRA_LAUNCHER_EXEC", "{script}"),
    ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
    ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "{script}"),
)


def write_node_shell(program: str, node_file: str) -> tuple[str, ...]:
    """The lines of the script; `node_file` is the variable that names the list of nodes."""
    return tuple(line.format(program=program, node_file=node_file) for line in _SCRIPT)


def list_shell_settings(script: str, environ: Container[str] = ()) -> tuple[tuple[str, str], ...]:
    """The variables that tell all launchers of it; what the user or the site has set stays."""
    return tuple((name, value.format(script=script)) for name, value in _SETTINGS if name not in environ)
