# SPDX-License-Identifier: BSD-3-Clause
"""The bodies, the rule they move by, and the simulation on this host's cores through NumPy."""

import array
import math
import os
import random
import time

from options import Problem

TIME_STEP, DAMPING, SOFTENING = 0.016, 1.0, 0.1


def make_bodies(count, fp64):
    """Positions in a ball, each with its mass; the same numbers every time."""
    draw = random.Random(2718).random
    values = array.array("d" if fp64 else "f", bytes(count * (32 if fp64 else 16)))
    mass = 1.0 / count
    for index in range(count):
        radius = draw() ** (1.0 / 3.0)
        height, angle = 2.0 * draw() - 1.0, 2.0 * math.pi * draw()
        width = math.sqrt(1.0 - height * height)
        place = 4 * index
        values[place] = radius * width * math.cos(angle)
        values[place + 1] = radius * width * math.sin(angle)
        values[place + 2] = radius * height
        values[place + 3] = mass
    return values


class Processor:
    """The simulation on this host's cores: NumPy for blocks of bodies, in as many threads as there are cores."""

    def __init__(self, values, fp64):
        self.numpy = import_numpy()
        kind = self.numpy.float64 if fp64 else self.numpy.float32
        self.bodies = self.numpy.array(values, dtype=kind).reshape(-1, 4)
        self.speed = self.numpy.zeros((len(self.bodies), 3), dtype=kind)
        self.threads = len(os.sched_getaffinity(0))

    def accelerate(self, first, last):
        """The accelerations of the bodies from `first` to before `last`."""
        numpy, bodies = self.numpy, self.bodies
        ways = [bodies[None, :, axis] - bodies[first:last, None, axis] for axis in range(3)]
        square = ways[0] * ways[0]
        square += ways[1] * ways[1]
        square += ways[2] * ways[2]
        square += bodies.dtype.type(SOFTENING * SOFTENING)
        inverse = 1 / numpy.sqrt(square)
        pull = bodies[None, :, 3] * inverse * inverse * inverse
        return numpy.stack([(way * pull).sum(axis=1) for way in ways], axis=1)

    def run(self, steps):
        """So many steps; returns the seconds."""
        from concurrent.futures import ThreadPoolExecutor

        count = len(self.bodies)
        size = max(1, min(256, (1 << 16) // count, -(-count // self.threads)))
        blocks = [(first, min(first + size, count)) for first in range(0, count, size)]
        kind = self.bodies.dtype.type
        begin = time.perf_counter()
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in range(steps):
                found = self.numpy.concatenate(list(pool.map(lambda block: self.accelerate(*block), blocks)))
                self.speed = (self.speed + found * kind(TIME_STEP)) * kind(DAMPING)
                self.bodies[:, :3] += self.speed * kind(TIME_STEP)
        return time.perf_counter() - begin

    def read(self):
        """The positions and masses, one after the other."""
        return self.bodies.reshape(-1).tolist()


def import_numpy():
    """NumPy, which only the CPU needs."""
    try:
        import numpy
    except ImportError:
        raise Problem("nbody: this Python has no NumPy, which -cpu needs", "install python3-numpy in the image")
    return numpy
