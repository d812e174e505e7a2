# SPDX-License-Identifier: BSD-3-Clause
"""What to do about the commonest words with which schedulers' programs refuse: pure text."""

from __future__ import annotations

_NODES = (
    "no node has that much, or none of that kind: 'sinfo -o \"%P %D %c %m %G\"' shows nodes, processors, megabytes and "
    "GPUs of each partition; with a profile of this cluster ('kedge site init') kedge says which request would do"
)
_DOWN = "the scheduler does not answer: try again in a minute, and tell the site if it lasts"
_UNREACHABLE = (
    "unable to contact slurm controller",
    "socket timed out",
    "unable to contact qmaster",
    "unable to send message to qmaster",
    "cannot connect to server",
    "got select error",
)
# what programs say that were installed and never told of a cluster, and what to say instead
_NOT_SET_UP = {
    "could not establish a configuration source": (
        "Slurm is installed here, and not set up: its programs find no slurm.conf",
        "run it on a login node of the cluster; if this is one, set SLURM_CONF to the cluster's slurm.conf",
    ),
    "unable to read qmaster name": (
        "Grid Engine is installed here, and not set up: its programs find no cell",
        "run it on a login node of the cluster; if this is one, source the cell's settings.sh: it sets SGE_ROOT",
    ),
    "sge_root": (
        "Grid Engine is installed here, and not set up: SGE_ROOT is not set, or names no cell",
        "run it on a login node of the cluster; if this is one, source the cell's settings.sh: it sets SGE_ROOT",
    ),
    "no default server": (
        "PBS is installed here, and not set up: its programs know no server",
        "run it on a login node of the cluster; if this is one, set PBS_SERVER or PBS_CONF_FILE",
    ),
}
# the first that is found counts; the words are looked for in small letters
_ADVICE = (
    *((words, _DOWN) for words in _UNREACHABLE),
    ("invalid partition", "'sinfo -s' lists the partitions; --partition chooses one"),
    ("invalid account", "'sacctmgr show associations user=$USER format=account%30,qos%40' lists yours; see --account"),
    ("invalid qos", "'sacctmgr show associations user=$USER format=account%30,qos%40' lists yours; see --qos"),
    ("reservation is invalid", "'scontrol show reservation' lists them; leave --reservation out when it is over"),
    ("invalid feature", "'sinfo -o \"%P %f\"' lists the features of nodes; see --constraint"),
    ("invalid generic resource", "'sinfo -o \"%P %G\"' shows GPUs and their types; see --gpus and --gpu-type"),
    ("memory specification", _NODES),
    ("requested node configuration is not available", _NODES),
    ("node count specification invalid", _NODES),
    ("time limit is invalid", "'sinfo -o \"%P %l\"' shows how long jobs may run; see --time"),
    ("dependency problem", "'kedge jobs --all' lists the jobs that one can wait for"),
    ("policy limit", "the account or its quality of service allows less, or fewer jobs at once: ask for less, or wait"),
    ("unable to process configuration file", "SLURM_CONF names a file that cannot be read: 'unset SLURM_CONF'"),
    ("parallel environment", "'qconf -spl' lists the parallel environments; the site's profile names one for MPI"),
    ("unknown resource", "'qconf -sc' lists the resources of this cell; see --directive"),
    ("project", "'qconf -sprjl' lists the projects; --account chooses one"),
    ("unknown queue", "'qstat -Q' or 'qconf -sql' lists the queues; --queue chooses one"),
)


def find_advice(said: str) -> str | None:
    """The remedy for what a scheduler's program said, where one is known."""
    lower = said.lower()
    return next((advice for words, advice in _ADVICE if words in lower), None)


def find_missing_setup(said: str) -> tuple[str, str] | None:
    """What is wrong and what to do, where a scheduler's program was never told of a cluster."""
    lower = said.lower()
    return next((told for words, told in _NOT_SET_UP.items() if words in lower), None)


def is_unreachable(said: str) -> bool:
    """Whether it says that the scheduler itself does not answer, so that other questions are in vain too."""
    lower = said.lower()
    return any(words in lower for words in (*_UNREACHABLE, *_NOT_SET_UP))
