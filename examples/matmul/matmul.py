#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Times products of square matrices: on a GPU through PyTorch, on the CPU's cores through NumPy or PyTorch.

A product of two N x N matrices takes 2 N³ operations. Each size is warmed up, then timed several times; a timing covers
as many products as fill a twentieth of a second. Part of every result is checked against a product in float64. Runs
with Python 3.6 and newer. `kedge bench matmul` starts this file, too, and reads the lines of --json.
"""

import argparse
import json
import os
import sys
import time

CPU_SIZES, GPU_SIZES = "256,512,1024,2048", "256,512,1024,2048,4096,8192,16384"
CPU_TYPES, GPU_TYPES = "float32,float64", "float32,tf32,bf16"
TYPES = ("float32", "float64", "tf32", "bf16", "float16")
LEAST = 0.05  # seconds that one timing lasts
CHECKED = 8  # columns of the first row


class Problem(Exception):
    """What ends the program."""


class NumpyCpu:
    """NumPy and its BLAS, on all cores."""

    def __init__(self, numpy):
        self.numpy, self.name, self.device = numpy, "NumPy " + numpy.__version__, "cpu"

    def prepare(self, size, kind):
        """A function that multiplies once, and what it is checked with."""
        if kind not in ("float32", "float64"):
            raise Problem(f"NumPy multiplies float32 and float64, not {kind}: use PyTorch")
        draw = self.numpy.random.RandomState(size).random_sample
        left, right = (draw((size, size)).astype(kind) for _ in range(2))
        target = self.numpy.empty_like(left)
        return lambda: self.numpy.matmul(left, right, out=target), lambda: self.measure_error(left, right, target)

    def measure_error(self, left, right, target):
        """The largest relative error in a part of the first row."""
        exact = left[0].astype("float64") @ right[:, :CHECKED].astype("float64")
        return float(self.numpy.max(self.numpy.abs(target[0, :CHECKED] - exact) / exact))

    def wait(self):
        """Nothing is left running."""


class TorchDevice:
    """PyTorch, on a GPU or on all cores."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.name = "PyTorch " + torch.__version__
        if device == "cuda":
            self.device = torch.cuda.get_device_name(0)
        self.place = torch.device(device)

    def prepare(self, size, kind):
        """A function that multiplies once, and what it is checked with."""
        torch = self.torch
        if kind == "tf32" and self.place.type != "cuda":
            raise Problem("tf32 is for GPUs: use float32")
        dtype = {"bf16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}.get(kind, torch.float32)
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        torch.manual_seed(size)
        left, right = (torch.rand(size, size, device=self.place).to(dtype) for _ in range(2))
        target = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=target), lambda: self.measure_error(left, right, target)

    def measure_error(self, left, right, target):
        """The largest relative error in a part of the first row."""
        exact = left[:1].double() @ right[:, :CHECKED].double()
        return float(((target[:1, :CHECKED].double() - exact) / exact).abs().max())

    def wait(self):
        """Until the GPU has done what was started."""
        if self.place.type == "cuda":
            self.torch.cuda.synchronize()


def choose_library(device):
    """The library for `auto`, `cpu` or `cuda`."""
    torch = try_import("torch") if device != "cpu" else None
    if torch and torch.cuda.is_available():
        return TorchDevice(torch, "cuda")
    if device == "cuda":
        missing = "PyTorch sees no GPU: run the container with --nv on a host with a GPU"
        raise Problem(missing if torch else "this Python has no PyTorch, which a GPU needs")
    numpy = try_import("numpy")
    if numpy:
        return NumpyCpu(numpy)
    torch = torch or try_import("torch")
    if torch:
        return TorchDevice(torch, "cpu")
    raise Problem("this Python has neither NumPy nor PyTorch: install one of them in the image")


def try_import(name):
    """The module, or None."""
    try:
        return __import__(name)
    except ImportError:
        return None


def time_size(library, size, kind, options):
    """Seconds of one product for each repeat, and the error of the last."""
    multiply, measure_error = library.prepare(size, kind)
    for _ in range(options.warmup):
        multiply()
    library.wait()
    turns = 1
    while True:
        seconds = time_turns(library, multiply, turns)
        if seconds >= LEAST or turns >= 1 << 14:
            break
        turns = min(turns * max(2, int(1.2 * LEAST / max(seconds, 1e-7))), 1 << 14)
    found = [time_turns(library, multiply, turns) / turns for _ in range(options.repeats)]
    return found, measure_error()


def time_turns(library, multiply, turns):
    """Seconds of so many products."""
    begin = time.perf_counter()
    for _ in range(turns):
        multiply()
    library.wait()
    return time.perf_counter() - begin


def read_list(text, choices=None):
    """The parts of a list with commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if choices and part not in choices:
            raise Problem("{} is no type: use {}".format(part, ", ".join(choices)))
        if not choices and not (part.isdigit() and int(part)):
            raise Problem(f"{part} is no size: use numbers such as 1024,2048")
    return parts


def read_options(words):
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="matmul", description="Time products of square matrices")
    parser.add_argument("--sizes", default="", help="rows of the matrices, such as 1024,2048")
    parser.add_argument("--types", default="", help=f"{TYPES} (default: {CPU_TYPES}; GPU: {GPU_TYPES})")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    parser.add_argument("--repeats", type=int, default=5, help="timings of each size (default: 5)")
    parser.add_argument("--warmup", type=int, default=2, help="products before the first timing (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each result")
    return parser.parse_args(words)


def show(document, is_json):
    """One result as a row of the table, or as JSON."""
    if is_json:
        print(json.dumps(document, separators=(",", ":")))
    else:
        seconds = sorted(document["seconds"])
        median = seconds[len(seconds) // 2]
        rate = 2.0 * document["size"] ** 3 / median / 1e9
        spread = 100.0 * (seconds[-1] - seconds[0]) / median
        line = "{size:>6}  {type:<8}".format(**document)
        print(f"{line} {median * 1e3:>12.4f} {spread:>9.1f} % {rate:>14.1f}")
    sys.stdout.flush()


def main(words):
    """The exit status."""
    options = read_options(words)
    try:
        library = choose_library(options.device)
        is_gpu = getattr(library, "place", None) is not None and library.place.type == "cuda"
        sizes = read_list(options.sizes or (GPU_SIZES if is_gpu else CPU_SIZES))
        types = read_list(options.types or (GPU_TYPES if is_gpu else CPU_TYPES), TYPES)
        if not options.json:
            place = library.device if is_gpu else f"{len(os.sched_getaffinity(0))} cores"
            print(f"{library.name} on {place}")
            print("  size  type       median/ms     spread        GFLOP/s")
        for size in sizes:
            for kind in types:
                seconds, error = time_size(library, int(size), kind, options)
                document = {"kedge": "matmul", "device": library.device, "library": library.name}
                document.update(size=int(size), type=kind, seconds=seconds, error=error)
                show(document, options.json)
    except Problem as problem:
        sys.stderr.write(f"matmul: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
