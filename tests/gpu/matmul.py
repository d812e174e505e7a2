# SPDX-License-Identifier: BSD-3-Clause
"""Multiplies bf16 matrices with PyTorch; prints one JSON object: the rate, the card, and which libcuda was loaded."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def measure(size: int, repeats: int) -> dict[str, object]:
    """The best of some rounds, in TFLOP/s, checked against 32-bit arithmetic on a corner."""
    started = time.perf_counter()
    import torch

    imported = time.perf_counter() - started
    left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    product = left @ right
    expected = left[:64].float() @ right[:, :64].float()
    error = ((product[:64, :64].float() - expected).abs().max() / expected.abs().max()).item()
    best = 0.0
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            product = left @ right
        end.record()
        torch.cuda.synchronize()
        best = max(best, 2.0 * size**3 * repeats / (begin.elapsed_time(end) / 1000) / 1e12)
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = sorted({line.split()[-1] for line in maps if "libcuda.so" in line})
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "tflops": round(best, 1),
        "error": error,
        "import_seconds": round(imported, 2),
        "libcuda": loaded[0] if loaded else "",
    }


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    print(json.dumps(measure(size, 20)))
