# SPDX-License-Identifier: BSD-3-Clause
"""The command line of nbody, and how the program ends where it cannot go on."""

import sys

USAGE = """nbody -benchmark [options]: times the forces between all pairs of bodies

  -numbodies=N        bodies (default: 1024 for each multiprocessor of a GPU, 4096 with -cpu)
  -i=N, -iterations=N steps that are timed together (default: 10)
  -fp64               double precision
  -numdevices=N       GPUs that share the bodies (default: 1)
  -device=N           the GPU to use (default: 0)
  -cpu                use the CPU's cores through NumPy
  -compare            check one step on the GPU against the CPU, and end
  -repeats=N          how often it is timed (default: 1)
  -warmup=N           steps before the first timing (default: 1)
  -blockSize=N        threads of a block (default: 256)
  -perThread=N        bodies of a thread (default: 4; 1 with -fp64)
  -unroll=N           bodies of a tile that are read at a time (default: 8)
  -json               print one JSON object instead
"""
FLAGS = ("benchmark", "fp64", "cpu", "compare", "json", "fullscreen", "help")
NUMBERS = ("numbodies", "iterations", "numdevices", "device", "repeats", "warmup", "blockSize", "perThread", "unroll")


class Problem(Exception):
    """What ends the program: the text for standard output, a remedy for standard error."""

    def __init__(self, text, remedy="", status=1):
        super().__init__(text)
        self.remedy, self.status = remedy, status


class Options:
    """What the command line says."""

    def __init__(self, words):
        for name in FLAGS:
            setattr(self, name, False)
        for name in NUMBERS:
            setattr(self, name, None)
        words = list(words)
        while words:
            word = words.pop(0)
            name, equals, value = word.lstrip("-").partition("=")
            name = "iterations" if name == "i" else name
            if not word.startswith("-") or name not in FLAGS + NUMBERS:
                raise Problem(f"nbody: unknown option {word}", "nbody -help lists all options", 2)
            if name in FLAGS:
                setattr(self, name, True)
                continue
            if not equals:
                value = words.pop(0) if words else ""
            if not value.isdigit():
                raise Problem(f"nbody: -{name} takes a number, such as -{name}=1", "", 2)
            setattr(self, name, int(value))
        self._check()

    def _check(self):
        if self.numdevices is not None and self.device is not None:
            raise Problem("Error: -device names one GPU, and -numdevices several.  Exiting.", "leave out one of them")
        for name in ("numdevices", "iterations", "numbodies", "repeats", "blockSize", "perThread", "unroll"):
            if getattr(self, name) == 0:
                raise Problem(f"Error: -{name} must be at least 1.  Exiting.")
        self.iterations = self.iterations or 10
        self.repeats = self.repeats or 1
        self.warmup = 1 if self.warmup is None else self.warmup
        self.blockSize = self.blockSize or 256
        self.perThread = self.perThread or (1 if self.fp64 else 4)
        self.unroll = self.unroll or 8

    def say(self, text):
        """A line of the report, unless it is JSON."""
        if not self.json:
            print(text)
            sys.stdout.flush()
