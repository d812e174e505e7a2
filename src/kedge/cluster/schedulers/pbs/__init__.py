# SPDX-License-Identifier: BSD-3-Clause
"""PBS Professional 19 and later, and OpenPBS; seen at work: OpenPBS 23.06 (tests/live).

A site's `options`: cpu_resource (ncpus; empty: CPUs are not asked for), and reservation_variable, a variable
that gets the queue's name when a job runs in a reservation. `gpu_directive` and `memory_directive` are parts of a
chunk (`ngpus={count}`, `mem={size}`), or directives of their own when they begin with `-`.
"""

from kedge.cluster.schedulers.facts import SchedulerFacts

FACTS = SchedulerFacts(
    name="pbs",
    title="PBS",
    prefix="#PBS",
    submit="qsub",
    submit_path="/opt/pbs/bin/qsub",
    interactive=("qsub",),
    job_id="PBS_JOBID",
    job_queue="PBS_QUEUE",
    job_mark="PBS_JOBID",
    job_scope=("PBS_JOBID",),
    node_file="PBS_NODEFILE",
    submit_directory="PBS_O_WORKDIR",
    signal_carrier="URG",
    node_shell="pbs_tmrsh",
    submit_host="PBS_O_HOST",
    own_variables=r"PBS_\w+|NCPUS",
    traces=r"\bPBS_\w+|\bpbsdsh\b",
    settings="PBS_CONF_FILE",
    program="pbsnodes",
    own_files=("/etc/pbs.conf",),
    version=("qstat", "--version"),
    queues=("qstat", "-Qf"),
    queue_line=r"^Queue:\s*(\S+)",
    has_array_lists=False,
    has_single_arrays=False,
    reservation_queue=r"[RSM][0-9]+(\..*)?",
    ask_for_gpu="add '-l select=1:ngpus=1' to qsub",
    job_with_memory="qsub -I -l select=1:ncpus=4:mem=8gb -x --",
)
