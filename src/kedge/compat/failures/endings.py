# SPDX-License-Identifier: BSD-3-Clause
"""How launchers say that a rank ended: which one and how, not why."""

from __future__ import annotations

from kedge.compat.failures.failure import CONSEQUENCE, GENERAL, POSSIBLE, Failure

ENDINGS = (
    Failure(
        "illegal-instruction",
        r"\bIllegal instruction\b|task (?P<rank>\d+): Illegal instruction",
        cause="the program uses instructions that the CPU of that node does not have: it was built for a newer CPU",
        remedy="use nodes with a newer CPU (--constraint), or build it without -march=native",
        source="the shell, srun",
        examples=("Illegal instruction (core dumped)", "srun: error: n1: task 0: Illegal instruction"),
    ),
    Failure(
        "segmentation-fault",
        r"task (?P<rank>\d+): Segmentation fault|Caught signal 11 \(Segmentation fault|Signal: Segmentation fault"
        r"|\bSegmentation fault(?: \(core dumped\))?\s*$|Fatal Python error: Segmentation fault"
        r"|process rank (?P<rank_mpirun>\d+) with PID \d+ on\s+node \S+ exited on signal 11|exitcode *: -11\b"
        r"|Signal 11 \(SIGSEGV\) received",
        cause="the program used memory that is not its own: an error of the program or of one of its libraries, "
        "often two "
        "versions of one library (MPI, CUDA, packages below ~/.local)",
        remedy="run it with PYTHONNOUSERSITE=1, and python -X faulthandler to see the line; without bound host "
        "libraries "
        "if there are any",
        source="a C program under Open MPI 4.1.4, MPICH 4.0.2 and srun",
        examples=(
            "[vm:21901] Signal: Segmentation fault (11)",
            "[vm:21938:0:21938] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
            "srun: error: gpu01: task 1: Segmentation fault (core dumped)",
            "Fatal Python error: Segmentation fault",
        ),
        level=GENERAL,
        sure=POSSIBLE,
    ),
    Failure(
        "killed",
        r"task (?P<rank>\d+): Killed|process rank (?P<rank_mpirun>\d+) with PID \d+ on\s+node \S+ exited on signal 9"
        r"|EXIT STRING: Killed \(signal 9\)|\bKilled\s*$|: +\d+ Killed {2,}\S|exitcode *: -9\b"
        r"|Signal 9 \(SIGKILL\) received",
        cause="somebody killed the process: the kernel for memory, most often; else the scheduler, or another "
        "rank's end",
        remedy="'kedge status JOB' shows whether the scheduler did; ask for more memory with --mem if not",
        source="Open MPI 4.1.4, MPICH 4.0.2, srun, torchrun",
        examples=(
            "srun: error: gpu01: task 1: Killed",
            "mpirun.openmpi noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).",
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
            "./train.sh: line 3: 4711 Killed                  python train.py",
        ),
        level=GENERAL,
        sure=POSSIBLE,
    ),
    Failure(
        "bus-error",
        r"task (?P<rank>\d+): Bus error|\bBus error(?: \(core dumped\))?\s*$|Signal: Bus error",
        cause="a file that the program had mapped into memory became shorter, or /dev/shm is full",
        remedy="'df -h /dev/shm /tmp' on the node; with Docker or Podman --ipc=host; a damaged image file: pull "
        "it again",
        source="workflow facts: distributed launch",
        examples=("Bus error (core dumped)", "srun: error: gpu01: task 3: Bus error (core dumped)"),
        sure=POSSIBLE,
    ),
    Failure(
        "torchrun-child",
        r"Root Cause \(first observed failure\):(?:[\s\S]{0,200}?rank +: (?P<rank>\d+))?"
        r"|failed \(exitcode: (-?\d+)\) local_rank: (\d+)|ChildFailedError",
        cause="torchrun ended because one of its processes failed",
        remedy="read that process's own message, which stands before this one; with @record of "
        "torch.distributed.elastic.multiprocessing.errors torchrun repeats it",
        source="torch 2.4.1",
        examples=(
            "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-16_19:20:00\n  host      : gpu01\n"
            "  rank      : 1 (local_rank: 1)",
            "E1116 19:20:00.123 failed (exitcode: 1) local_rank: 1 (pid: 4711) of binary: /usr/bin/python3",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        ),
        level=CONSEQUENCE,
    ),
    Failure(
        "rank-exited",
        r"tasks? (?P<rank>\d+)(?:[,-]\d+)*: Exited with exit code (\d+)"
        r"|process rank (?P<rank_mpirun>\d+) with PID \d+ on\s+node \S+ exit(?:ing improperly|ed on signal)"
        r"|Process name: \[\[\d+,\d+\],(?P<rank_name>\d+)\]|tasks? \d[\d,-]*: (?:running|Terminated)"
        r"|warning: (?:rank (?P<rank_kedge>\d+)|torchrun|multiproc)(?: on \S+)? [^\n]{1,80}; the other ranks were "
        "ended",
        cause="the launcher says that a rank ended with an error, and ended the others",
        remedy="read that rank's own last lines: what it printed before says why",
        source="srun 22.05, Open MPI 4.1.4, MPICH 4.0.2",
        examples=(
            "srun: error: gpu01: task 1: Exited with exit code 7",
            "srun: error: gpu02: tasks 0-1: Exited with exit code 1",
            "mpirun.openmpi has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly.",
            "  Process name: [[14642,1],1]\n  Exit code:    7",
            "warning: rank 3 on gpu02 failed with status 7; the other ranks were ended",
            "warning: torchrun on gpu02 failed with status 1; the other ranks were ended",
        ),
        level=CONSEQUENCE,
    ),
    Failure(
        "launch-aborted",
        r"Primary job +terminated normally, but \d+ process|BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        cause="a rank ended with an error, and the launcher ended the others",
        remedy="read what the ranks printed before; with mpirun --tag-output, or mpiexec -l, each line names its rank",
        source="Open MPI 4.1.4, MPICH 4.0.2",
        examples=(
            "Primary job  terminated normally, but 1 process returned\na non-zero exit code.",
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        ),
        level=CONSEQUENCE,
    ),
    Failure(
        "errors-are-fatal",
        r"MPI_ERRORS_ARE_FATAL|Local abort before MPI_INIT completed",
        cause="an MPI call failed, and MPI ended the job",
        remedy="the lines around it name the call and the reason",
        source="Open MPI 4.1.4",
        examples=(
            "[vm:22569] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
            "[vm:24053] Local abort before MPI_INIT completed completed successfully, but am not able to "
            "aggregate error "
            "messages, and not able to guarantee that all other processes were killed!",
        ),
        level=CONSEQUENCE,
    ),
)
EXCEPTION = Failure(
    "python-exception",
    r"([A-Za-z_][\w.]{0,120}(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Expired))\b(?::|$)",
    cause="the Python program ended with {1}; kedge does not know this message",
    remedy="the lines above it say where in the program: read the last one that names a file of yours",
    source="Python",
    examples=(
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: bad learning rate',
    ),
    level=GENERAL,
)
