# SPDX-License-Identifier: BSD-3-Clause
"""Grid Engine: SGE 8.1.9 and its sons, Univa's and Altair's. Seen at work: 8.1.9.

A site's `options`: memory_resource (h_vmem), memory_per_slot (yes), gpu_per_slot (no), smp_environment (smp),
mpi_environment with {tasks} for the slots per node, and exclusive, a directive such as `-l exclusive=true`.
"""

from kedge.cluster.schedulers.facts import SchedulerFacts

FACTS = SchedulerFacts(
    name="gridengine",
    title="Grid Engine",
    prefix="#$",
    submit="qsub",
    submit_path="/usr/bin/qsub",
    launcher_of_tasks="qrsh",
    interactive=("qrsh",),
    job_id="JOB_ID",
    job_queue="QUEUE",
    job_mark="SGE_TASK_ID",
    job_scope=("JOB_ID", "SGE_TASK_ID"),
    submit_directory="SGE_O_WORKDIR",
    submit_host="SGE_O_HOST",
    gpu_counts=("SGE_HGR_gpu",),
    own_variables=r"SGE_\w+|PE_HOSTFILE|NSLOTS|NHOSTS|JOB_ID|JOB_NAME|TASK_ID",
    traces=r"\bSGE_\w+|\bPE_HOSTFILE\b|\bNSLOTS\b|\bqrsh\b",
    settings="SGE_ROOT",
    program="qconf",
    version=("qconf", "-help"),
    queues=("qconf", "-sql"),
    queue_line=r"^\s*(\S+)\s*$",
    has_array_lists=False,
    first_index=1,
    ask_for_gpu="add the site's GPU request (often '-l gpu=1') to qsub",
    job_with_memory="qrsh -cwd -l h_vmem=8G -now no",
)
