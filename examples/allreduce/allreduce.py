#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Times sums over all ranks of an MPI program (MPI_Allreduce) and prints bandwidths as nccl-tests defines them.

algbw is the message's size over the time; busbw is 2(n-1)/n times as much: what each link carried, which can be
compared with the link's rate whatever the number of ranks.
"""

import argparse
import sys
import time

import numpy
from mpi4py import MPI

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_size(text):
    """64M as a number of bytes."""
    number, unit = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 1)
    return int(number) * unit


def time_size(world, count, rounds):
    """Seconds of one sum of `count` numbers, the slowest rank's; and how many numbers are wrong."""
    mine = numpy.full(count, world.rank + 1, dtype=numpy.float32)
    total = numpy.empty_like(mine)
    for _ in range(3):
        world.Allreduce(mine, total)
    world.Barrier()
    begin = time.perf_counter()
    for _ in range(rounds):
        world.Allreduce(mine, total)
    seconds = world.allreduce((time.perf_counter() - begin) / rounds, op=MPI.MAX)
    wrong = int((total != world.size * (world.size + 1) / 2).sum())
    return seconds, world.allreduce(wrong)


def main(words):
    """The exit status: 1 where a sum is wrong."""
    parser = argparse.ArgumentParser(prog="allreduce.py", description="Time MPI_Allreduce")
    parser.add_argument("-b", "--minbytes", type=read_size, default=8, help="smallest message (default: 8)")
    parser.add_argument("-e", "--maxbytes", type=read_size, default=64 << 20, help="largest message (default: 64M)")
    parser.add_argument("-f", "--stepfactor", type=int, default=8, help="from one size to the next (default: 8)")
    parser.add_argument("-n", "--iters", type=int, default=20, help="sums that are timed together (default: 20)")
    options = parser.parse_args(words)
    if options.stepfactor < 2 or options.minbytes < 4 or options.iters < 1:
        parser.error("-f takes at least 2, -b at least 4, -n at least 1")
    world, size, all_wrong = MPI.COMM_WORLD, options.minbytes, 0
    if world.rank == 0:
        print(f"# {world.size} ranks, {MPI.Get_library_version().split(',')[0].strip()}")
        print("#     size       count    type   time(us)  algbw(GB/s)  busbw(GB/s)  wrong", flush=True)
    while size <= options.maxbytes:
        seconds, wrong = time_size(world, size // 4, options.iters)
        all_wrong += wrong
        rate = size / seconds / 1e9
        line = f"{size:>10} {size // 4:>11}   float {seconds * 1e6:>10.1f} {rate:>12.3f}"
        if world.rank == 0:
            print(f"{line} {rate * 2 * (world.size - 1) / world.size:>12.3f} {wrong:>6}", flush=True)
        size *= options.stepfactor
    if world.rank == 0:
        print(f"# Out of bounds values : {all_wrong} {'FAILED' if all_wrong else 'OK'}", flush=True)
    return 1 if all_wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
