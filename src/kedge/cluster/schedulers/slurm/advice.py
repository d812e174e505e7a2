# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of Slurm say when they refuse, and what to do about it."""

from kedge.cluster.schedulers.facts import RefusalAdvice

_NODES = (
    "no node has what the job requests: 'sinfo -o \"%P %D %c %m %G\"' shows nodes, CPUs, megabytes and "
    "GPUs of each partition; with a profile of this cluster ('kedge site init') kedge proposes a request that fits"
)
_ASSOCIATIONS = "'sacctmgr show associations user=$USER format=account%30,qos%40' lists yours; see "
ADVICE = RefusalAdvice(
    unreachable=("unable to contact slurm controller", "socket timed out"),
    not_set_up={
        "could not establish a configuration source": (
            "Slurm is installed but not set up on this host: its programs find no slurm.conf",
            "run kedge on a login node of the cluster; if this is one, set SLURM_CONF to the cluster's slurm.conf",
        ),
    },
    remedies={
        "invalid partition": "'sinfo -s' lists the partitions; --partition chooses one",
        "invalid account": f"{_ASSOCIATIONS}--account",
        "invalid qos": f"{_ASSOCIATIONS}--qos",
        "reservation is invalid": "'scontrol show reservation' lists them; omit --reservation if it is over",
        "invalid feature": "'sinfo -o \"%P %f\"' lists the features of nodes; see --constraint",
        "invalid generic resource": "'sinfo -o \"%P %G\"' shows GPUs and their types; see --gpus and --gpu-type",
        "memory specification": _NODES,
        "requested node configuration is not available": _NODES,
        "node count specification invalid": _NODES,
        "time limit is invalid": "'sinfo -o \"%P %l\"' shows how long jobs may run; see --time",
        "dependency problem": "'kedge jobs --all' lists the jobs that a job can depend on",
        "policy limit": "the account or its QOS allows less, or fewer jobs at once: request less, or wait",
        "unable to process configuration file": "SLURM_CONF names a file that cannot be read: 'unset SLURM_CONF'",
    },
)
