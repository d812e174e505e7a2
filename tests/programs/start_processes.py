# SPDX-License-Identifier: BSD-3-Clause
"""Starts a node's processes of a program, with the options and variables of PyTorch's launchers, where PyTorch is not.

It stands in for `torch.distributed.run` and for the `multiproc.py` of NVIDIA's examples.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("nnodes", 1), ("nproc_per_node", 1), ("node_rank", 0), ("master_port", 29500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("program")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    place = {"MASTER_ADDR": given.master_addr, "MASTER_PORT": str(given.master_port)}
    started = []
    for local in range(given.nproc_per_node):
        rank = given.node_rank * given.nproc_per_node + local
        own = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": given.nnodes * given.nproc_per_node}
        variables = {**os.environ, **place, **{name: str(value) for name, value in own.items()}}
        started.append(subprocess.Popen([sys.executable, given.program, *given.words], env=variables))
    sys.exit(max(abs(each.wait()) for each in started))


if __name__ == "__main__":
    main()
