# SPDX-License-Identifier: BSD-3-Clause
"""What schedulers say when they end, refuse or cannot start a job or a step of it."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, NOTE, POSSIBLE, Failure

SCHEDULER = (
    Failure(
        "time-limit",
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|PBS: job killed: walltime \S+ exceeded limit|TERM_RUNLIMIT"
        r"|job \d+ exceeded hard wallclock time|h_rt.{0,60}exceeded",
        cause="the job reached its time limit, and the scheduler ended it",
        remedy="ask for more time with --time, or write checkpoints and continue from the last one",
        source="Slurm 22.05; PBS; LSF; Grid Engine",
        examples=(
            "slurmstepd-n1: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-16T19:20:00 DUE TO TIME LIMIT ***",
            "=>> PBS: job killed: walltime 3636 exceeded limit 3600",
        ),
        is_late=True,
    ),
    Failure(
        "preempted",
        r"CANCELLED AT \S+ DUE TO PREEMPTION",
        cause="a job of higher priority needed the node, and the scheduler ended this one",
        remedy="submit it again; --requeue lets the scheduler do so; write checkpoints, or use a partition without "
        "preemption",
        source="Slurm",
        examples=("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-16T19:20:00 DUE TO PREEMPTION ***",),
    ),
    Failure(
        "node-failed",
        r"(?:CANCELLED AT \S+ )?DUE TO NODE FAILURE|Node failure on (\S+)|task launch for \S+ failed on node (\S+?):"
        r"|error: (?:Node|Host) (\S+) (?:is )?(?:DOWN|not responding)",
        cause="a node of the job failed or could not start its part of it",
        remedy="submit it again, without that node (--exclude NODE); tell the administrators if it happens twice",
        source="Slurm",
        examples=(
            "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-16T19:20:00 DUE TO NODE FAILURE, SEE "
            "SLURMCTLD "
            "LOG FOR DETAILS ***",
            "srun: error: Node failure on gpu02",
            "srun: error: task launch for StepId=12.0 failed on node gpu02: Communication connection failure",
        ),
        unless=r"Invalid job credential|Socket timed out",
    ),
    Failure(
        "step-timed-out",
        r"error: .{0,80}Socket timed out on send/recv operation|_send_slurmstepd_init failed|Socket timed out",
        cause="Slurm could not start the step on a node in time: its PMIx plugin is missing or broken there, or "
        "slurmd "
        "does not answer",
        remedy="'srun --mpi=none hostname' in the job shows whether nodes answer; 'srun --mpi=list' which "
        "plugins there "
        "are; tell the administrators",
        source="Slurm 22.05 without libpmix on a node",
        examples=(
            "srun: error: task 0 launch failed: Socket timed out on send/recv operation",
            "srun: error: Unable to create step for job 9: Socket timed out on send/recv operation",
            "slurmd: error: _send_slurmstepd_init failed",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-pyxis",
        r"unrecognized option '?-?-container-(?:image|mounts|name|workdir)|unknown option '?--container-image",
        cause="this cluster's Slurm has no Pyxis, which srun --container-image needs",
        remedy="start the container with kedge: srun kedge exec IMAGE PROGRAM, or 'kedge submit IMAGE PROGRAM', "
        "which "
        "needs no plugin; 'kedge script convert' rewrites a script",
        source="https://github.com/NVIDIA/pyxis/issues/84; srun 22.05",
        examples=(
            "srun: unrecognized option '--container-image=ubuntu'",
            "srun: error: unrecognized option --container-image",
            "sbatch: unrecognized option '--container-image=nvcr.io#nvidia/pytorch:24.03-py3'",
        ),
    ),
    Failure(
        "scheduler-policy",
        r"Batch job submission failed: Unspecified error|rejected by (?:the )?(?:JSV|job submit plugin)"
        r"|rejected by server|qsub: Job rejected",
        cause="a rule of this site refused the job: the lines before this one say which",
        remedy="name the site (--site), so that kedge writes only what the site accepts; 'kedge site list' has them",
        source="Slurm 22.05 with job_submit.lua",
        examples=("sbatch: error: Batch job submission failed: Unspecified error",),
        sure=LIKELY,
    ),
    Failure(
        "step-resources",
        r"Unable to create step for job \d+: (Requested node configuration is not available|More processors "
        r"requested than"
        r" permitted|Invalid generic resource[^\n]{0,60}|Memory required by task is not available|Requested "
        r"nodes are busy)",
        cause="srun asked for more than the job has: {1}",
        remedy="ask for it in the job, or ask srun for less; 'kedge launch' derives the step from the job",
        source="Slurm 22.05",
        examples=(
            "srun: error: Unable to create step for job 10: More processors requested than permitted",
            "srun: error: Unable to create step for job 3: Requested node configuration is not available",
            "srun: error: Unable to create step for job 9: Memory required by task is not available",
        ),
    ),
    Failure(
        "refused-request",
        r"error: (Memory specification can not be satisfied|invalid partition specified: \S+)|"
        r"(?:Batch job submission|Unable to allocate resources|Job submit/allocate) ?(?:failed)?: (Requested node "
        r"configuration is not available|Invalid partition\b[^\n]{0,40}|invalid partition specified: \S+|Invalid "
        r"account"
        r"[^\n]{0,60}|Invalid qos[^\n]{0,40}|Job violates [^\n]{0,80}|Requested time limit[^\n]{0,60}|Memory "
        r"specification[^\n]{0,40}|Node count specification invalid|Invalid generic resource[^\n]{0,40})",
        cause="Slurm refused the request: {1}",
        remedy="'kedge site show' lists the partitions and what their nodes have; 'kedge site check' says "
        "whether a job "
        "fits before it is submitted",
        source="Slurm 22.05",
        examples=(
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "srun: error: Unable to allocate resources: Invalid account or account/partition combination specified",
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
            "user's size "
            "and/or time limits)",
        ),
    ),
    Failure(
        "gridengine-refused",
        r"(got unknown command from JSV[^\n]{0,40})|"
        r"Unable to run job: (?:job rejected: )?(unknown resource \"[^\"]{1,60}\"|the requested parallel "
        r"environment \"[^\"]"
        r"{1,60}\" does not exist|no suitable queues|[^\n]{0,60}is no submit host|[^\n]{1,100})|qsub: (invalid "
        r"option argument"
        r" \"[^\"]{1,40}\"|Unknown option|[^\n]{0,40}no suitable queues)"
        r"|(job rejected: the requested parallel environment[^\n]{1,60})",
        cause="Grid Engine refused the request: {1}",
        remedy="'qconf -spl' lists the parallel environments, 'qconf -sc' the resources, 'kedge site show' what "
        "kedge "
        "knows of this site",
        source="Grid Engine 8.1.9",
        examples=(
            'Unable to run job: unknown resource "rt_X".',
            'Unable to run job: job rejected: the requested parallel environment "nosuch" does not exist.',
            'qsub: invalid option argument "-g"',
            'Unable to run job: got unknown command from JSV: "ERROR"',
            'Unable to run job: denied: host "ge01" is no submit host.',
        ),
        missing="the line says what",
    ),
    Failure(
        "gridengine-unreachable",
        r"commlib error: (access denied[^\n]{0,60}|got (?:select|read|write) error[^\n]{0,60}|can't [^\n]{0,60})"
        r"|unable to (?:send message to|contact) qmaster",
        cause="Grid Engine's programs cannot talk to its master: {1}",
        remedy="run it on a login node of the cluster with its environment (SGE_ROOT, SGE_CELL); inside of a "
        "container "
        "and on some nodes it is not reachable",
        source="Grid Engine 8.1.9",
        examples=(
            'error: commlib error: access denied (client IP resolved to host name "localhost". This is not '
            "identical to "
            'clients host name "vm")',
            'error: unable to send message to qmaster using port 26444 on host "head": got send error',
        ),
        missing="the line says why",
    ),
    Failure(
        "inherited-task",
        r"executing task of job \d+ failed: ([^\n]{1,120})|job \d+ failed: execution daemon on host \"?(\S+?)\"? "
        r"didn't accept",
        cause="Grid Engine did not start a task on another host of the job: {1}",
        remedy="as many tasks per host as the job has slots there; the parallel environment needs control_slaves "
        "TRUE "
        "('qconf -sp PE')",
        source="Grid Engine 8.1.9",
        examples=('error: executing task of job 12 failed: execution daemon on host "ge02" didn\'t accept task',),
        missing="its execution daemon refused it",
    ),
    Failure(
        "not-now",
        r"Your \"?qrsh\"? request could not be scheduled, try again later|Unable to allocate resources: "
        r"Requested nodes are "
        r"busy|allocation .{0,40}revoked",
        cause="no node is free at once, and the request does not wait",
        remedy="with qrsh add -now n; 'kedge alloc' waits by itself",
        source="Grid Engine 8.1.9",
        examples=('Your "qrsh" request could not be scheduled, try again later.',),
    ),
    Failure(
        "scheduler-unreachable",
        r"Unable to contact slurm controller|Could not establish a configuration source|slurm_persist_conn_open|"
        r"cannot connect to server \S+ \(errno=\d+\)|Protocol authentication error|Munge (?:encode|decode) failed"
        r"|Unable to confirm allocation for job",
        cause="the scheduler's programs do not reach it from there: inside of a container, on a node without its "
        "configuration, or while it restarts",
        remedy="run srun, sbatch and qsub outside of the container; try again in a minute on a login node",
        source="Slurm 22.05, PBS",
        examples=(
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "srun: error: Unable to confirm allocation for job 12: Invalid job id specified",
            "sbatch: fatal: Could not establish a configuration source",
            "qstat: cannot connect to server pbs (errno=111)",
            'sbatch: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or '
            "directory",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-accounting",
        r"Slurm accounting storage is disabled",
        cause="this cluster keeps no accounting, so sacct cannot tell of past jobs",
        remedy="'kedge status JOB' and 'kedge jobs --all' remember jobs that kedge submitted",
        source="Slurm 22.05; https://github.com/facebookincubator/submitit/issues/1720",
        examples=("Slurm accounting storage is disabled",),
        level=NOTE,
    ),
    Failure(
        "dos-lines",
        r"Batch script contains DOS line breaks|\$'\\r': command not found|bad interpreter: .{0,40}\^M|\^M: bad "
        r"interpreter"
        r"|/usr/bin/env: ['‘]?\w+\\r",
        cause="the script was written on Windows: its lines end with a carriage return",
        remedy="sed -i 's/\\r$//' SCRIPT; set your editor to Unix line ends",
        source="Slurm 22.05, bash",
        examples=(
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
            "train.sh: line 2: $'\\r': command not found",
            "/usr/bin/env: ‘python3\\r’: No such file or directory",
        ),
    ),
    Failure(
        "no-shebang",
        r"This does not look like a batch script",
        cause="the first line of the script does not name an interpreter",
        remedy="begin it with #!/bin/bash",
        source="Slurm 22.05",
        examples=(
            "sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must start with #!",
        ),
    ),
    Failure(
        "cancelled",
        r"\*\*\* (?:JOB|STEP) (\S+) ON \S+ CANCELLED AT \S+ \*\*\*|PBS: job killed: (?!walltime|v?mem)",
        cause="somebody cancelled the job or the step: you, the administrators, or the launcher after a rank had "
        "failed",
        remedy="look whether a rank failed before; else 'kedge status JOB' says who cancelled it, where the "
        "scheduler knows",
        source="Slurm 22.05",
        examples=("slurmstepd-n1: error: *** JOB 4 ON n1 CANCELLED AT 2026-11-16T19:20:00 ***",),
        sure=POSSIBLE,
        is_late=True,
    ),
)
