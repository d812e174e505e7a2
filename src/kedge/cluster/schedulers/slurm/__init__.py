# SPDX-License-Identifier: BSD-3-Clause
"""Slurm 20.11 to 25.05."""

from kedge.cluster.schedulers.facts import SchedulerFacts

FACTS = SchedulerFacts(
    name="slurm",
    title="Slurm",
    queue_word="partition",
    prefix="#SBATCH",
    submit="sbatch",
    submit_path="/usr/bin/sbatch",
    launcher_of_tasks="srun",
    broadcast="sbcast",
    interactive=("srun", "salloc", "idev"),  # idev: TACC's
    job_id="SLURM_JOB_ID",
    step_id="SLURM_STEP_ID",
    job_begin="SLURM_JOB_START_TIME",
    job_queue="SLURM_JOB_PARTITION",
    job_mark="SLURM_JOB_ID",
    job_scope=("SLURM_JOB_ID",),
    submit_directory="SLURM_SUBMIT_DIR",
    submit_host="SLURM_SUBMIT_HOST",
    gpu_lists=("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
    gpu_counts=("SLURM_GPUS_ON_NODE",),
    own_variables=r"SLURM\w*|SRUN_\w+",
    traces=r"\bSLURM_\w+|\bsrun\b|\bscontrol\b|\bibrun\b|\bsbcast\b",
    inherited=("SLURM_",),
    lasting=("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"),
    settings="SLURM_CONF",
    program="sbatch",
    settings_files=("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf"),
    version=("sinfo", "--version"),
    queues=("sinfo", "-h", "-a", "-o", "%R"),
    queue_line=r"^\s*(\S+)\s*$",
    ask_for_gpu="add '--gres=gpu:1' (or '--gpus=1') to sbatch, srun or salloc",
    job_with_memory="srun --mem=8G --cpus-per-task=4 --time=1:00:00",
)
