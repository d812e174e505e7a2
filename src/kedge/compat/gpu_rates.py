# SPDX-License-Identifier: BSD-3-Clause
"""How fast GPUs compute and read their memory, as NVIDIA's data sheets state it: the limit beside a measured figure.

Rates are TFLOP/s at the highest clock, of dense matrices: sheets often state twice as much, for matrices half of which
is zero. Memory is in GB/s. 0: the GPU has no such unit, or the sheet does not say.
"""

from __future__ import annotations

import re

from kedge.base.frozen import JsonValue, frozen


@frozen
class GpuRates(JsonValue):
    """One model."""

    model: str
    float32: float
    float64: float = 0.0
    tf32: float = 0.0
    bf16: float = 0.0
    float16: float = 0.0
    memory: float = 0.0

    source = "NVIDIA's data sheet of the model"

    def find_rate(self, kind: str) -> float:
        """TFLOP/s of a type of numbers; 0: unknown."""
        return float(getattr(self, kind, 0.0)) if kind in _KINDS else 0.0


_KINDS = ("float32", "float64", "tf32", "bf16", "float16")
# By the names that nvidia-smi shows; the first that fits holds, so variants stand before their model.
_RATES: tuple[tuple[str, GpuRates], ...] = (
    (r"\bB200\b|GB200", GpuRates("B200", float32=80, float64=40, tf32=1100, bf16=2250, float16=2250, memory=8000)),
    (r"\bGH200", GpuRates("GH200", float32=67, float64=34, tf32=494.7, bf16=989.4, float16=989.4, memory=4000)),
    (r"\bH200 NVL", GpuRates("H200 NVL", float32=60, float64=30, tf32=417.5, bf16=835.5, float16=835.5, memory=4800)),
    (r"\bH200\b", GpuRates("H200", float32=66.9, float64=33.5, tf32=494.7, bf16=989.4, float16=989.4, memory=4800)),
    (r"\bH100.*NVL", GpuRates("H100 NVL", float32=60, float64=30, tf32=417.5, bf16=835.5, float16=835.5, memory=3900)),
    (r"\bH100.*PCIe", GpuRates("H100 PCIe", float32=51, float64=26, tf32=378, bf16=756, float16=756, memory=2000)),
    (r"\bH100\b", GpuRates("H100 SXM", float32=66.9, float64=33.5, tf32=494.7, bf16=989.4, float16=989.4, memory=3350)),
    (
        r"\bA100.*PCI.*80GB|\bA100 80GB PCIe",
        GpuRates("A100 PCIe 80 GB", float32=19.5, float64=9.7, tf32=156, bf16=312, float16=312, memory=1935),
    ),
    (
        r"\bA100.*80GB",
        GpuRates("A100 SXM 80 GB", float32=19.5, float64=9.7, tf32=156, bf16=312, float16=312, memory=2039),
    ),
    (r"\bA100\b", GpuRates("A100 40 GB", float32=19.5, float64=9.7, tf32=156, bf16=312, float16=312, memory=1555)),
    (r"\bA30\b", GpuRates("A30", float32=10.3, float64=5.2, tf32=82, bf16=165, float16=165, memory=933)),
    (r"\bA40\b", GpuRates("A40", float32=37.4, float64=0, tf32=74.8, bf16=149.7, float16=149.7, memory=696)),
    (r"\bA10\b", GpuRates("A10", float32=31.2, float64=0, tf32=62.5, bf16=125, float16=125, memory=600)),
    (r"\bL40S\b", GpuRates("L40S", float32=91.6, float64=0, tf32=183, bf16=362, float16=362, memory=864)),
    (r"\bL40\b", GpuRates("L40", float32=90.5, float64=0, tf32=90.5, bf16=181, float16=181, memory=864)),
    (r"\bL4\b", GpuRates("L4", float32=30.3, float64=0, tf32=60, bf16=121, float16=121, memory=300)),
    (r"RTX 4090\b", GpuRates("RTX 4090", float32=82.6, float64=0, tf32=82.6, bf16=165.2, float16=165.2, memory=1008)),
    (r"RTX 3090\b", GpuRates("RTX 3090", float32=35.6, float64=0, tf32=35.6, bf16=71, float16=71, memory=936)),
    (r"V100.*SXM", GpuRates("V100 SXM2", float32=15.7, float64=7.8, tf32=0, bf16=0, float16=125, memory=900)),
    (r"V100", GpuRates("V100 PCIe", float32=14, float64=7, tf32=0, bf16=0, float16=112, memory=900)),
    (r"\bT4\b", GpuRates("T4", float32=8.1, float64=0, tf32=0, bf16=0, float16=65, memory=320)),
    (
        r"Quadro RTX 5000\b",
        GpuRates("Quadro RTX 5000", float32=11.2, float64=0, tf32=0, bf16=0, float16=89.2, memory=448),
    ),
    (r"P100.*SXM", GpuRates("P100 SXM2", float32=10.6, float64=5.3, tf32=0, bf16=0, float16=21.2, memory=732)),
    (r"P100", GpuRates("P100 PCIe", float32=9.3, float64=4.7, tf32=0, bf16=0, float16=18.7, memory=732)),
    (r"\bK40", GpuRates("K40", float32=4.29, float64=1.43, tf32=0, bf16=0, float16=0, memory=288)),
)


def find_gpu_rates(name: str) -> GpuRates | None:
    """Find the rates of a GPU by the name that nvidia-smi shows; None where the model is not in the table."""
    return next((rates for pattern, rates in _RATES if re.search(pattern, name, re.IGNORECASE)), None)
