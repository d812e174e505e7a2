# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa
# fmt: off
import math, os, subprocess, sys
from pathlib import Path
from kedge.tools.functions.pack import read_answer, write_call

BASE = 5
class Point:
    def __init__(self, x): self.x = x
    def __add__(self, other): return Point(self.x + other.x)
def square(x, base=BASE): return x * x + base
def outer(offset):
    def inner(point, times=1):
        return Point(square(point.x) + math.floor(2.5) * times + offset) + Point(0)
    return inner

directory = Path(sys.argv[1])
packed = write_call(directory, outer(100), [[((Point(3),), {"times": 2})]])
subprocess.run([sys.argv[2], *packed.words], check=True, env={"PATH": os.environ["PATH"]})
print(read_answer(directory / "result", packed.key).values[0].x)
