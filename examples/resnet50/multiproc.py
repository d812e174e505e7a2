#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Starts a training once per GPU of this node, with the variables that torch.distributed reads.

Local rank 0 writes to the terminal, the others to GPU_<n>.log in the current directory. If one process fails, the
others are ended, and the exit code is 1. `kedge launch --contract multiproc` adds the options for many nodes.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time


def parse_arguments():
    """The options of multiproc.py and torch.distributed.launch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnodes", type=int, default=1, help="number of nodes")
    parser.add_argument("--node_rank", type=int, default=0, help="number of this node, from 0")
    parser.add_argument("--nproc_per_node", type=int, default=1, help="processes on this node: one per GPU")
    parser.add_argument("--master_addr", default="127.0.0.1", help="address of node 0")
    parser.add_argument("--master_port", default="29500", help="free port of node 0")
    parser.add_argument("program", help="Python program, followed by its arguments")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def start_process(options, local_rank):
    """One process of this node."""
    environment = {
        **os.environ,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": options.master_port,
        "WORLD_SIZE": str(options.nnodes * options.nproc_per_node),
        "RANK": str(options.node_rank * options.nproc_per_node + local_rank),
        "LOCAL_RANK": str(local_rank),
    }
    command = [sys.executable, "-u", options.program, *options.arguments]
    print(command, flush=True)
    if local_rank == 0:
        return subprocess.Popen(command, env=environment)
    with pathlib.Path(f"GPU_{local_rank}.log").open("w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def wait_for_all(processes):
    """0 when all succeeded; ends the others as soon as one fails."""
    while True:
        states = [process.poll() for process in processes]
        if any(states):
            stop(processes)
            return 1
        if all(state == 0 for state in states):
            return 0
        time.sleep(0.2)


def stop(processes):
    """End those that still run."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        process.wait()


def main():
    """Start and wait."""
    options = parse_arguments()
    processes = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        processes += [start_process(options, rank) for rank in range(options.nproc_per_node)]
        return wait_for_all(processes)
    finally:
        stop(processes)


if __name__ == "__main__":
    sys.exit(main())
