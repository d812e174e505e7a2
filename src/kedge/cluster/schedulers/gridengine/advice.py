# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of Grid Engine say when they refuse, and what to do about it."""

from kedge.cluster.schedulers.facts import RefusalAdvice

_SET_UP = "run kedge on a login node of the cluster; if this is one, source the cell's settings.sh: it sets SGE_ROOT"
ADVICE = RefusalAdvice(
    unreachable=("unable to contact qmaster", "unable to send message to qmaster", "got select error"),
    not_set_up={
        "unable to read qmaster name": (
            "Grid Engine is installed but not set up on this host: its programs find no cell",
            _SET_UP,
        ),
        "sge_root": (
            "Grid Engine is installed but not set up on this host: SGE_ROOT is unset or names no cell",
            _SET_UP,
        ),
    },
    remedies={
        "parallel environment": "'qconf -spl' lists the parallel environments; the site's profile names one for MPI",
        "unknown resource": "'qconf -sc' lists the resources of this cell; see --directive",
        "project": "'qconf -sprjl' lists the projects; --account chooses one",
        "unknown queue": "'qstat -Q' or 'qconf -sql' lists the queues; --queue chooses one",
    },
)
