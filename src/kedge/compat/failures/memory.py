# SPDX-License-Identifier: BSD-3-Clause
"""Memory of the node and of the GPU, shared memory, and limits of threads."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, Failure

MEMORY = (
    Failure(
        "job-memory",
        r"exceeded (?:job |step )?memory limit|Detected \d+ oom[-_]kill event|PBS: job killed: v?mem \S+ exceeded"
        r"|task (?P<rank>\d+): Out Of Memory",
        cause="it used more memory than it asked for, and the scheduler ended it",
        remedy="ask for more with --mem, or let it use less: smaller batches, fewer worker processes",
        source="Slurm 22.05 with memory limits; PBS",
        examples=(
            "slurmstepd-n1: error: StepId=2.batch exceeded memory limit (429772800 > 52428800), being killed",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM "
            "Killed.",
            "=>> PBS: job killed: mem 2097152kb exceeded limit 1048576kb",
            "srun: error: gpu01: task 0: Out Of Memory",
        ),
    ),
    Failure(
        "kernel-killed",
        r"Out of memory: Killed process (\d+)|Memory cgroup out of memory: Kill(?:ed)? process"
        r"|oom-kill:constraint=",
        cause="the node or the job's memory group was full, and the kernel killed the largest process",
        remedy="ask for more with --mem, or let it use less: smaller batches, fewer worker processes",
        source="the Linux kernel",
        examples=(
            "Memory cgroup out of memory: Killed process 31337 (python3) total-vm:41944304kB, anon-rss:33554000kB",
        ),
    ),
    Failure(
        "shared-memory",
        r"might be caused by insufficient shared memory \(shm\)|DataLoader worker \(pid[^)]{0,20}\) is killed by "
        r"signal:"
        r" Bus error|unable to (?:open|write to|mmap|resize) (?:shared memory )?(?:file|object)? ?</?torch_"
        r"|Error while creating shared memory segment|unable to allocate shared memory\(shm\)",
        cause="/dev/shm is full or too small for the program's worker processes or for NCCL; Docker and Podman give "
        "containers only 64 MB of it",
        remedy="start it with kedge or Apptainer, which use the node's /dev/shm; with Docker or Podman add "
        "--ipc=host or --shm-size=16g; 'df -h /dev/shm' in the job shows what is left by others",
        source="PyTorch; workflow facts: distributed launch; NCCL",
        examples=(
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
            "(shm).",
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
            "dataloader's "
            "workers are out of shared memory. Please try to raise your shared memory limit.",
            "RuntimeError: unable to open shared memory object </torch_1234_987_0> in read-write mode: No space "
            "left on "
            "device (28)",
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Tx3d2a (size 9637888), error: No "
            "space "
            "left on device (28)",
        ),
    ),
    Failure(
        "worker-killed",
        r"DataLoader worker \(pid[^)]{0,20}\) is killed by signal: Killed|A worker process managed by the "
        r"executor was "
        r"unexpectedly terminated|A process in the process pool was terminated abruptly",
        cause="a worker process was killed: nearly always for memory, of which every worker takes its own",
        remedy="use fewer workers (num_workers=), or ask for more memory with --mem",
        source="PyTorch, joblib, concurrent.futures",
        examples=(
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly "
            "while "
            "the future was running or pending.",
        ),
        sure=LIKELY,
    ),
    Failure(
        "threads",
        r"can't start new thread|libgomp: Thread creation failed|pthread_create failed for thread"
        r"|fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\] Resource temporarily"
        r"|failed to create new OS thread",
        cause="the limit of processes and threads is reached: 'ulimit -u', or that of the job; with many ranks "
        "on a node "
        "each starts a thread for every core",
        remedy="set OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to the cores of one rank; use fewer workers; "
        "'ulimit -u' in "
        "the job shows the limit",
        source="https://github.com/apptainer/singularity/issues/5434",
        examples=(
            "RuntimeError: can't start new thread",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "OpenBLAS blas_thread_init: pthread_create failed for thread 31 of 64: Resource temporarily unavailable",
            "bash: fork: retry: Resource temporarily unavailable",
        ),
        sure=LIKELY,
    ),
    Failure(
        "gpu-memory",
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|HIP out of memory",
        cause="the memory of the GPU is full; --mem is that of the node and makes no difference",
        remedy="make batches smaller, take a GPU with more memory, or more GPUs; 'nvidia-smi' in the job shows "
        "who uses it",
        source="PyTorch, JAX, cuBLAS",
        examples=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
            "8589934592 bytes.",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ),
    ),
    Failure(
        "locked-memory",
        r"set max locked memory \(ulimit -l\)|RLIMIT_MEMLOCK is \d+ bytes|ibv_create_cq\b.{0,60}failed"
        r"|ibv_reg_mr\b.{0,80}Cannot allocate memory",
        cause="the limit of locked memory is too low for InfiniBand",
        remedy="'ulimit -l' in a job must say unlimited: if not, tell the administrators (LimitMEMLOCK of slurmd, or "
        "limits.conf); until then UCX_TLS=tcp,self,sm works, slowly",
        source="workflow facts: MPI and containers; UCX, NCCL",
        examples=(
            "ib_md.c:379  UCX  ERROR ibv_reg_mr(address=0x7f2e, length=33554432, access=0xf) failed: Cannot allocate "
            "memory : Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)",
            "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.",
            "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
        ),
        sure=LIKELY,
    ),
    Failure(
        "memory-error",
        r"(?<![\w.])MemoryError\b|_ArrayMemoryError\b|std::bad_alloc|Cannot allocate memory"
        r"|DefaultCPUAllocator: (?:can't|not enough)",
        cause="a program asked for more memory than the node or the job's limit gives",
        remedy="ask for more with --mem, or let it use less: smaller batches, fewer worker processes",
        source="Python, NumPy, C++, PyTorch",
        examples=(
            "MemoryError",
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 80000000000000 bytes.",
        ),
        unless=r"ibv_|UCX",
    ),
)
