# SPDX-License-Identifier: BSD-3-Clause
"""Collective communication of deep learning: NCCL and Gloo after the ranks have met."""

from __future__ import annotations

from kedge.compat.failures.failure import CONSEQUENCE, LIKELY, POSSIBLE, Failure

NCCL = (
    Failure(
        "nccl-interface",
        r"Bootstrap : no socket interface found|NCCL WARN.{0,40}no socket interface found",
        cause="NCCL_SOCKET_IFNAME names a network interface that this node does not have",
        remedy="'ip -br addr' on the node lists them; leave NCCL_SOCKET_IFNAME unset, or set it in the site's profile",
        source="https://github.com/NVIDIA/nccl/issues/1000",
        examples=("gpu01:512:540 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",),
    ),
    Failure(
        "gloo-interface",
        r"Unable to find address for: (\S+)|gloo.{0,80}(?:Unable to find interface|no such device)",
        cause="GLOO_SOCKET_IFNAME names a network interface that this node does not have ({1})",
        remedy="'ip -br addr' on the node lists them; leave GLOO_SOCKET_IFNAME unset, or set it in the site's profile",
        source="torch 2.4.1 with GLOO_SOCKET_IFNAME=nosuch0",
        examples=(
            "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != "
            "nullptr. "
            "Unable to find address for: nosuch0",
        ),
    ),
    Failure(
        "gloo-address",
        r"gloo/transport/tcp/device\.cc:\d+.{0,60}rv != -1|gloo connectFullMesh failed|Gloo connectFullMesh",
        cause="Gloo's ranks could not connect to each other: a node's own name resolves to 127.0.0.1 or to an "
        "address "
        "that other nodes do not reach",
        remedy="set GLOO_SOCKET_IFNAME to the interface that all nodes share ('ip -br addr'); 'kedge launch' "
        "chooses it",
        source="https://github.com/nebius/nebius-solutions-library/issues/177",
        examples=(
            "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] "
            "no error",
        ),
        sure=LIKELY,
    ),
    Failure(
        "duplicate-gpu",
        r"Duplicate GPU detected : rank (?P<rank>\d+) and rank (\d+) both on CUDA device (\S+)",
        cause="two ranks of one node use the same GPU: the program does not choose its GPU by LOCAL_RANK, or the "
        "job has "
        "fewer GPUs than processes",
        remedy="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first collective; as many processes "
        "per node as GPUs: 'kedge launch' counts them",
        source="NCCL",
        examples=(
            "init.cc:525 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1331, invalid usage, NCCL "
            "version "
            "2.18.1\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast "
            "error:\nDuplicate GPU "
            "detected : rank 1 and rank 0 both on CUDA device 3b000",
        ),
    ),
    Failure(
        "nccl-version",
        r"Mismatched NCCL version detected : ([^\n]{1,80})",
        cause="the ranks run different versions of NCCL: {1}; the nodes have different images, or ~/.local hides the "
        "image's on some",
        remedy="run the same image on all nodes, with PYTHONNOUSERSITE=1",
        source="NCCL",
        examples=("NCCL WARN Mismatched NCCL version detected : rank 0 version 22003 rank 1 version 22105",),
    ),
    Failure(
        "no-nccl",
        r"Distributed package doesn't have NCCL(?: built in)?|ProcessGroupNCCL is only supported with GPUs"
        r"|no GPUs found!",
        cause="NCCL needs GPUs and a PyTorch built for CUDA, and the program has neither or only one of them",
        remedy="add --nv and ask for GPUs; on CPUs use init_process_group(backend='gloo')",
        source="torch 2.4.1 for CPUs",
        examples=(
            "RuntimeError: Distributed package doesn't have NCCL built in",
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        ),
    ),
    Failure(
        "nccl-system",
        r"ncclSystemError: System call \(e\.g\. socket, malloc\)|NCCL WARN Call to connect (?:to \S+ "
        r")?(?:returned|failed)"
        r"|NCCL WARN .{0,60}(?:Connection refused|No route to host|Connection timed out)",
        cause="NCCL could not connect to the other ranks: another interface or a firewall stands between the "
        "nodes, or "
        "memory could not be had",
        remedy="set NCCL_SOCKET_IFNAME to the interface that all nodes share ('ip -br addr'); NCCL_DEBUG=WARN "
        "names the "
        "call that failed",
        source="NCCL",
        examples=(
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
            "gpu01:512:540 [0] misc/socket.cc:484 NCCL WARN Call to connect returned Connection refused, retrying",
        ),
        sure=POSSIBLE,
    ),
    Failure(
        "collective-timeout",
        r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out"
        r"|gloo/transport/tcp/\S+\] Timed out waiting \d+ms for|Socket Timeout$|collective operation timeout",
        cause="a rank waited for the others in vain: one of them died, hangs, or does not reach this step; it "
        "seldom is "
        "the network",
        remedy="look at the rank that is missing, not at this one; the same number of batches on all ranks? "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL names the ranks",
        source="PyTorch; workflow facts: distributed launch",
        examples=(
            "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 "
            "milliseconds "
            "before timing out.",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting "
            "1800000ms for "
            "recv operation to complete",
        ),
        level=CONSEQUENCE,
        sure=LIKELY,
    ),
    Failure(
        "peer-gone",
        r"gloo/transport/tcp/pair\.cc:\d+\] (?:Connection closed by peer|Read error|.{0,20}Connection reset)"
        r"|ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
        r"|NCCL WARN .{0,80}(?:Connection closed by remote peer|remote process exit)|Application timeout caused "
        r"pair closure",
        cause="another rank went away in the middle of a collective: it failed before this one",
        remedy="look at the rank that failed first; this is only what the others noticed",
        source="torch 2.4.1 with gloo; NCCL",
        examples=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            "[10.77.0.3]:11111",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "gpu01:512:540 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
            "gpu02<51422>",
        ),
        level=CONSEQUENCE,
    ),
)
