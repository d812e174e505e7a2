# SPDX-License-Identifier: BSD-3-Clause
"""How the processes of a training meet: address, port, number of ranks."""

from __future__ import annotations

from kedge.compat.failures.failure import CONSEQUENCE, LIKELY, NOTE, POSSIBLE, Failure

RENDEZVOUS = (
    Failure(
        "port-taken",
        r"server socket has failed to (?:listen|bind)|EADDRINUSE|address already in use|errno: 98\b",
        cause="another process on that node uses the port already: another job with the same MASTER_PORT, a process "
        "left over from an earlier run, or one torchrun too many on the node",
        remedy="use 'kedge launch', which draws a free port; else --master_port $((20000 + JOB % "
        "12000)), or --standalone on one node; start torchrun once per node, not once per GPU",
        source="torch 2.4.1, two torchruns on one node; https://github.com/pytorch/pytorch/issues/116974",
        examples=(
            "[W1116 19:20:00.1 socket.cpp:697] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
            "98 - "
            "Address already in use).",
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
            "address. "
            "port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
            "OSError: [Errno 98] Address already in use",
        ),
    ),
    Failure(
        "master-name",
        r"network addresses of \(([^,)]{1,100}), ?\S*\) cannot be retrieved|gai error: -\d"
        r"|Temporary failure in name resolution|Name or service not known|failed to resolve (?:host|address)",
        cause="the name of a host (such as MASTER_ADDR) is unknown on that node ({1})",
        remedy="use the node's name as the scheduler writes it; 'getent hosts NAME' on a node shows whether it "
        "is known; "
        "sites whose nodes have a suffix (-ib, .cluster) set it in their profile",
        source="torch 2.4.1 with MASTER_ADDR=n1 unknown; https://github.com/pytorch/examples/issues/1279",
        examples=(
            "[W socket.cpp:697] [c10d] The IPv6 network addresses of (n1, 29500) cannot be retrieved (gai error: "
            "-2 - Name "
            "or service not known).",
            "socket.gaierror: [Errno -2] Name or service not known",
        ),
        sure=LIKELY,
        unless=r"ssh: Could not resolve|https?://|registry|urllib3|HTTPSConnection",
        missing="the line names it",
    ),
    Failure(
        "rendezvous-timeout",
        r"RendezvousTimeoutError|RendezvousConnectionError|connection to the C10d store has failed"
        r"|client socket has timed out after \d+ms while trying to connect to \(([^,)]{1,100}), ?(\d+)\)"
        r"|timed out while waiting for (?:clients|workers) to join|DistStoreError: Timed out after \d+ seconds "
        r"waiting for"
        r" clients|Timed out after \d+ seconds waiting for clients",
        cause="the processes did not meet in time: not all nodes started theirs, MASTER_ADDR is not the first "
        "node or "
        "resolves to 127.0.0.1, or a firewall stands between",
        remedy="start one torchrun on every node with the same --nnodes and --master_addr: 'kedge launch' does; "
        "'getent hosts MASTER_ADDR' on the nodes shows what they take it for",
        source="torch 2.4.1, one of two nodes; https://github.com/pytorch/pytorch/issues/79388",
        examples=(
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
            "store has "
            "failed. See inner exception for details.",
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
            "connect to "
            "(gpu01, 29500).",
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        ),
        sure=LIKELY,
    ),
    Failure(
        "store-gone",
        r"failed to shutdown the rendezvous .{0,200}(?:RendezvousConnectionError|Broken pipe)"
        r"|\[c10d\] recvValue\w* failed|TCPStore.{0,120}(?:Broken pipe|Connection reset by peer)"
        r"|sendBytes failed on SocketImpl.{0,160}Broken pipe",
        cause="the process that keeps the rendezvous (rank 0) ended before this one",
        remedy="look at rank 0; where it completed, this is harmless",
        source="torch 2.4.1 under Slurm",
        examples=(
            "[W TCPStore.cpp:131] [c10d] recvValue failed on SocketImpl(fd=3, addr=[gpu02]:41234, "
            "remote=[gpu01]:29500): "
            "failed to recv, got 0 bytes",
        ),
        level=CONSEQUENCE,
    ),
    Failure(
        "lightning-tasks",
        r"You set `--ntasks=(\d+)` in your SLURM bash script, but this variable is not supported"
        r"|You set `devices=(\d+)` in Lightning, but the number of tasks per node configured in SLURM "
        r"`--ntasks-per-node"
        r"|You set `num_nodes=(\d+)` in Lightning, but the number of nodes configured in SLURM"
        r"|requested gpu: .{0,80}But your machine only has",
        cause="Lightning and the job disagree: Slurm must start as many tasks per node as Lightning has devices, "
        "on as "
        "many nodes as num_nodes says",
        remedy="Trainer(devices=N, num_nodes=M) with --ntasks-per-node=N --nodes=M: 'kedge launch' starts them "
        "so; do "
        "not use --ntasks",
        source="https://github.com/Lightning-AI/pytorch-lightning/issues/10098",
        examples=(
            "ValueError: You set `devices=4` in Lightning, but the number of tasks per node configured in SLURM "
            "`--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
            "RuntimeError: You set `--ntasks=4` in your SLURM bash script, but this variable is not supported. "
            "HINT: Use "
            "`--ntasks-per-node=4` instead.",
        ),
    ),
    Failure(
        "lightning-waits",
        r"Initializing distributed: GLOBAL_RANK: \d+, MEMBER: \d+/(\d+)",
        cause="Lightning waits here for {1} processes; if nothing follows, fewer were started",
        remedy="--ntasks-per-node must be devices= and --nodes must be num_nodes=: 'kedge launch' starts them "
        "so; in an "
        "interactive job set SLURM_JOB_NAME=bash",
        source="https://github.com/Lightning-AI/pytorch-lightning/issues/8707",
        examples=("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8",),
        level=NOTE,
        sure=POSSIBLE,
    ),
    Failure(
        "omp-threads",
        r"Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        cause="torchrun gives each process one thread, as OMP_NUM_THREADS is not set: loading data may be slow",
        remedy="set OMP_NUM_THREADS to the CPUs of a node divided by its processes; 'kedge launch' does",
        source="torch 2.4.1",
        examples=(
            "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your "
            "system being "
            "overloaded, please further tune the variable",
        ),
        level=NOTE,
    ),
    Failure(
        "missing-rank-variables",
        r"Error initializing torch\.distributed using env:// rendezvous: environment variable (\w+) expected, "
        r"but not set"
        r"|KeyError: '(LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
        cause="the program expects the variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR …), and nobody set them",
        remedy="start it with 'kedge launch --torchrun', or 'kedge launch --ranks' for "
        "one task "
        "per GPU; or with torchrun itself",
        source="torch 2.4.1",
        examples=(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
            "expected, "
            "but not set",
            "KeyError: 'LOCAL_RANK'",
        ),
    ),
    Failure(
        "world-size",
        r"number of processes .{0,40}must match|world size .{0,60}(?:mismatch|does not match)|WORLD_SIZE "
        r".{0,40}does not "
        r"match|inconsistent world size|Rank \d+ (?:is )?(?:out of range|not in)|rank should be (?:smaller|less) "
        r"than",
        cause="the processes disagree about how many they are",
        remedy="let one launcher set the numbers ('kedge launch'), and take WORLD_SIZE and RANK out of the script",
        source="workflow facts: distributed launch",
        examples=("ValueError: the world size 4 does not match the number of processes 8",),
        sure=POSSIBLE,
    ),
    Failure(
        "horovod-ssh",
        r"SSH was not successful on the following hosts|horovodrun.{0,80}ssh",
        cause="horovodrun starts the other ranks by ssh, which containers and many clusters do not allow",
        remedy="use 'kedge launch' (or srun, mpirun) instead of horovodrun: Horovod reads the launcher's own variables",
        source="Horovod",
        examples=("SSH was not successful on the following hosts:",),
    ),
    Failure(
        "jax-coordinator",
        r"DEADLINE_EXCEEDED: .{0,60}Barrier timed out|jax.{0,40}Connect\(\) timed out|coordination service.{0,120}"
        r"(?:timed out|UNAVAILABLE|DEADLINE_EXCEEDED)",
        cause="JAX's processes did not all reach their coordinator in time: one did not start, or its address is wrong",
        remedy="start one process per rank with 'kedge launch --contract jax'; look whether one of them failed before",
        source="JAX",
        examples=(
            "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: "
            "PjRT_Client_Connect. Timed out task names:",
        ),
        sure=LIKELY,
    ),
)
