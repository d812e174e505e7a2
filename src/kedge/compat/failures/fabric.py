# SPDX-License-Identifier: BSD-3-Clause
"""Shared memory and networks between ranks: UCX, libfabric, InfiniBand."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, NOTE, POSSIBLE, Failure

FABRIC = (
    Failure(
        "cma-denied",
        r"process_vm_(?:readv|writev)\b.{0,120}Operation not permitted|Read -1, expected \d+, errno = 1\b"
        r"|cma_ep\.c:\d+.{0,160}Operation not permitted",
        cause="ranks of one node cannot read each other's memory (CMA): each runs in a user namespace of its own",
        remedy="start them with 'kedge launch', which gives the ranks of a node one container; with Apptainer "
        "--sharens; else OMPI_MCA_btl_vader_single_copy_mechanism=none or UCX_TLS=^cma",
        source="https://github.com/apptainer/apptainer/issues/1583, https://github.com/openucx/ucx/issues/8958",
        examples=(
            "[1653901623.470416] [n1:3210 :0]  cma_ep.c:84  UCX  ERROR process_vm_readv(pid=3211 length=524288) "
            "returned -1: Operation not permitted",
            "Read -1, expected 524288, errno = 1",
        ),
    ),
    Failure(
        "shared-memory-denied",
        r"mm_posix\.c:\d+.{0,40}open\(file_name=/proc/\d+/fd/\d+.{0,60}failed|ucp_ep_create\b.{0,80}Shared "
        r"memory error"
        r"|mm ep failed to connect to remote FIFO",
        cause="ranks of one node cannot open each other's shared memory: each runs in a container of its own",
        remedy="start them with 'kedge launch', which gives the ranks of a node one container; with Apptainer "
        "--sharens; else UCX_TLS=^posix,cma",
        source="https://github.com/apptainer/apptainer/issues/769",
        examples=(
            "[1663147105.112] [n1:77:0] mm_posix.c:233  UCX  ERROR open(file_name=/proc/78/fd/27 flags=0x0) failed: "
            "Permission denied",
            "[1794857844.138956] [gpu01:16487:0]           mm_ep.c:171  UCX  ERROR   mm ep failed to connect to "
            "remote FIFO "
            "id 0x1d0014: Shared memory error",
            "pml_ucx.c:419  Error: ucp_ep_create(proc=1) failed: Shared memory error",
        ),
    ),
    Failure(
        "vader-segment",
        r"system call failed during shared memory initialization|unlink\(2\) on /dev/shm/vader_segment"
        r"|vader_segment\.\S+",
        cause="Open MPI's ranks of one node collide in /dev/shm: two jobs or two nodes share it under one host "
        "name, or "
        "it is full",
        remedy="'df -h /dev/shm' and 'ls /dev/shm' on the node; OMPI_MCA_btl=tcp,self works around it, slowly",
        source="slurm-local facts: several slurmd on one host",
        examples=(
            "unlink(2) on /dev/shm/vader_segment.gpu01.1000.5a1b0001.0: No such file or directory (2)",
            "A system call failed during shared memory initialization that should\nnot have.  It is likely "
            "that your MPI "
            "job will now either abort or\nexperience performance degradation.",
        ),
        sure=LIKELY,
    ),
    Failure(
        "no-provider",
        r"libfabric:.{0,200}no provider|OFI addrinfo\(\) failed|MPIDI_OFI_\w+\(\d+\).{0,80}(?:failed|No data "
        r"available)"
        r"|fi_getinfo\b.{0,40}(?:No data available|failed)|open_fabric\(\d+\)",
        cause="libfabric has no provider that works there: FI_PROVIDER names one that the image does not have, "
        "or the "
        "provider's library is not in the container",
        remedy="'unset FI_PROVIDER FI_PROVIDER_PATH I_MPI_OFI_PROVIDER'; FI_PROVIDER=tcp works everywhere, slowly; "
        "'kedge mpi check IMAGE' says whether the host's libfabric can be bound",
        source="workflow facts: MPI and containers; Intel MPI",
        examples=(
            "MPIDI_OFI_mpi_init_hook(1529)..: OFI addrinfo() failed (ofi_init.c:1529:MPIDI_OFI_mpi_init_hook:No data "
            "available)",
            "libfabric:1234:1609459200::core:core:fi_getinfo_():1161<warn> no provider matches the given hints",
            "open_fabric(1485)..............: OFI fi_getinfo() failed (ofi_init.c:2684:find_provider:No data "
            "available)",
        ),
    ),
    Failure(
        "no-ib-device",
        r"Call to ibv_open_device failed|no usable IB (?:devices|HCA)|No devices found.{0,40}ibv_"
        r"|ibv_get_device_list.{0,40}"
        r"(?:failed|not found)|failed to open /dev/infiniband",
        cause="the program may not use the node's InfiniBand: its devices are not in the container, or the image's "
        "libibverbs has no driver for it",
        remedy="kedge and Apptainer bring /dev/infiniband along; with Docker or Podman add --device /dev/infiniband; "
        "'kedge doctor' on the node says whether there is a fabric",
        source="https://github.com/NVIDIA/nccl/issues/451, https://github.com/pytorch/pytorch/issues/111424",
        examples=("gpu01:512:540 [0] misc/ibvwrap.cc:99 NCCL WARN Call to ibv_open_device failed",),
        sure=LIKELY,
    ),
    Failure(
        "no-verbs-library",
        r"Failed to open libibverbs\.so",
        cause="the image has no libibverbs, so NCCL uses TCP, which is many times slower between nodes",
        remedy="use an image that has it (NVIDIA's have), or install libibverbs1 and ibverbs-providers in yours",
        source="https://github.com/sgl-project/sglang/pull/1427",
        examples=("gpu01:512:540 [0] NCCL INFO Failed to open libibverbs.so[.1]",),
        level=NOTE,
    ),
    Failure(
        "slow-socket",
        r"NET/Socket : Using \[0\](\w+)",
        cause="NCCL talks by TCP over {1}, not by InfiniBand: right on Ethernet or one node, slow elsewhere",
        remedy="where the nodes have InfiniBand: 'kedge doctor' on the node, and NCCL_DEBUG=INFO says why not",
        source="NCCL",
        examples=("gpu01:512:540 [0] NCCL INFO NET/Socket : Using [0]eth0:10.77.0.2<0>",),
        level=NOTE,
    ),
    Failure(
        "ucx-transport",
        r"no (?:active messages|remote registered memory access|am_bcopy|auxiliary) transport to|"
        r"network device '[^']{1,40}' is not available|transport '([\w,]+)' is not available",
        cause="UCX has no way to reach the other ranks: UCX_TLS or UCX_NET_DEVICES names what that node or the image "
        "does not have",
        remedy="'unset UCX_TLS UCX_NET_DEVICES'; UCX_TLS=tcp,self,sm works everywhere, slowly",
        source="UCX",
        examples=(
            "[1600000000.1] [n1:1:0] select.c:514  UCX  ERROR no active messages transport to <no debug data>: "
            "Unsupported "
            "operation",
            "[1763321411.2] [gpu01:9:0] ucp_context.c:1041 UCX  WARN  network device 'mlx5_0:1' is not "
            "available, please use "
            "one or more of: 'eth0'(tcp), 'lo'(tcp)",
        ),
        sure=POSSIBLE,
    ),
)
