# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of PBS say when they refuse, and what to do about it."""

from kedge.cluster.schedulers.facts import RefusalAdvice

ADVICE = RefusalAdvice(
    unreachable=("cannot connect to server",),
    not_set_up={
        "no default server": (
            "PBS is installed but not set up on this host: its programs know no server",
            "run kedge on a login node of the cluster; if this is one, set PBS_SERVER or PBS_CONF_FILE",
        ),
    },
    remedies={"unknown queue": "'qstat -Q' or 'qconf -sql' lists the queues; --queue chooses one"},
)
