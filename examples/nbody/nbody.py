#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All pairs of N bodies that attract each other, timed: on GPUs or, with -cpu, on all cores through NumPy.

The GPU's kernel is CUDA C++ that NVRTC compiles for the GPU that is there. Options, output and the rule for GFLOP/s
(20 for each pair in single precision, 30 in double) are those of NVIDIA's sample of the same name, so that figures can
be compared. Runs with Python 3.6 and newer. `kedge bench nbody` starts this program, too, and reads the lines of -json.
"""

import sys

from gpus import Accelerator, choose_devices
from messages import introduce, print_json, print_seconds, round_bodies
from options import USAGE, Options, Problem
from physics import Processor, make_bodies


def main(words):
    """The exit status."""
    try:
        options = Options(words)
        if options.help:
            print(USAGE, end="")
            return 0
        if options.compare:
            return compare(options)
        if not options.benchmark:
            sys.stderr.write("nbody: there is no window to draw in: running as with -benchmark\n")
        run_benchmark(options)
    except Problem as problem:
        print(problem)
        if problem.remedy:
            sys.stderr.write(f"nbody: {problem.remedy}\n")
        return problem.status
    return 0


def run_benchmark(options):
    """Time it and report it."""
    devices = [] if options.cpu else choose_devices(options)
    introduce(options, devices)
    default = 1024 * devices[0].processors * len(devices) if devices else 4096
    bodies = round_bodies(options, options.numbodies or default)
    values = make_bodies(bodies, options.fp64)
    world = Accelerator(devices, values, options) if devices else Processor(values, options.fp64)
    if options.warmup:
        world.run(options.warmup)
    seconds = [world.run(options.iterations) for _ in range(options.repeats)]
    if options.json:
        print_json(options, devices, bodies, seconds)
        return
    for each in seconds:
        print_seconds(options, bodies, each)


def compare(options):
    """One step on the GPU and on the CPU: the largest distance between the two."""
    devices = choose_devices(options)
    values = make_bodies(round_bodies(options, options.numbodies or 4096), options.fp64)
    worlds = Processor(values, options.fp64), Accelerator(devices, values, options)
    for world in worlds:
        world.run(1)
    largest = max(abs(one - other) for one, other in zip(*[world.read() for world in worlds]))
    limit = 1e-10 if options.fp64 else 1e-5
    line = "{0} bodies after one step: GPU and CPU differ by {1:.1e} at most: {2}"
    print(line.format(len(values) // 4, largest, "good" if largest <= limit else "wrong"))
    return 0 if largest <= limit else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
