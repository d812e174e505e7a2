# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa
# fmt: off
from __future__ import annotations
import functools, os, subprocess, sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from kedge.tools.functions.pack import read_answer, write_call
if TYPE_CHECKING:
    from nowhere import Nothing

@dataclass
class Point:
    x: int
    note: Nothing | None = None
    class Inner:
        y = 5
class Base:
    def make(self): return Derived().value()
class Derived(Base):
    def value(self): return 7
def id(x): return 1000 + x
def wrapping(function):
    @functools.wraps(function)
    def inner(*words): return function(*words) + 1
    return inner
@functools.lru_cache
def factorial(n): return 1 if n < 2 else n * factorial(n - 1)
@wrapping
def double(x): return 2 * x
def is_even(n): return True if n == 0 else is_odd(n - 1)
def is_odd(n): return False if n == 0 else is_even(n - 1)
def find(n): return n  # as a function of the runner is called
directory = None  # a value of its own beside a variable of the same name
@wrapping
def compute(point: Point, more: Nothing | None = None, squares=[factorial(n) for n in (1, 2)]):
    directory = sum(squares)
    return Base().make() + point.x + factorial(5) + id(find(directory)) + double(4) + is_even(4) + Point.Inner.y

place = Path(sys.argv[1])
packed = write_call(place, compute, [[((Point(3),), {})]])
subprocess.run([sys.argv[2], *packed.words], check=True, env={"PATH": os.environ["PATH"]})
print(read_answer(place / "result", packed.key).values[0] == compute(Point(3)), compute(Point(3)))
