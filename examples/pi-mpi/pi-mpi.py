#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Estimates π on all ranks of an MPI program: random points in a square, and how many of them lie in the circle."""

import math
import sys
import time

import mpi4py
import numpy

mpi4py.rc.recv_mprobe = False  # matched probes fail over some networks of older clusters
from mpi4py import MPI  # noqa: E402

CHUNK = 1 << 20  # points at a time, so that memory stays small


def count_inside(samples, rank):
    """How many of the points lie in the circle; every rank draws others."""
    draw = numpy.random.RandomState(rank + 1).random_sample
    inside = 0
    for first in range(0, samples, CHUNK):
        points = draw((2, min(CHUNK, samples - first)))
        inside += int(((points * points).sum(axis=0) <= 1).sum())
    return inside


def main(words):
    """The exit status."""
    if len(words) != 1 or not words[0].isdigit():
        sys.stderr.write("usage: pi-mpi.py SAMPLES, such as: pi-mpi.py 10000000\n")
        return 2
    world = MPI.COMM_WORLD
    samples = int(words[0]) // world.size
    if not samples:
        sys.stderr.write(f"pi-mpi.py: {words[0]} samples are too few for {world.size} ranks\n")
        return 2
    if world.rank == 0:
        print(f"\nComputing {samples} samples on each of the {world.size} ranks\n", flush=True)
    world.Barrier()
    begin = time.perf_counter()
    inside = count_inside(samples, world.rank)
    estimate = 4 * inside / samples
    lines = world.gather(report(f"[{MPI.Get_processor_name()}-{world.rank:02d}] Local", estimate))
    total = world.reduce(inside, op=MPI.SUM)
    if world.rank == 0:
        print("\n".join(lines))
        print(f"\nFinished computing {samples * world.size} samples in {time.perf_counter() - begin:.3f} seconds")
        print("\n" + report("Final", 4 * total / (samples * world.size)), flush=True)
    return 0


def report(name, estimate):
    """One line of the result."""
    return f"{name} Estimate: {estimate:.16f}   Error: {abs(estimate - math.pi):.16f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
