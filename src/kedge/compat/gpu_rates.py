# SPDX-License-Identifier: BSD-3-Clause
"""How fast GPUs compute and read their memory, as NVIDIA's data sheets state it: the limit beside a measured figure.

Rates are TFLOP/s at the highest clock, of dense matrices: sheets often state twice as much, for matrices half of which
is zero. Memory is in GB/s. 0: the GPU has no such unit, or the sheet does not say.
"""

from __future__ import annotations

import re

from kedge.frozen import JsonValue, frozen


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
    (r"\bB200\b|GB200", GpuRates("B200", 80, 40, 1100, 2250, 2250, 8000)),
    (r"\bGH200", GpuRates("GH200", 67, 34, 494.7, 989.4, 989.4, 4000)),
    (r"\bH200 NVL", GpuRates("H200 NVL", 60, 30, 417.5, 835.5, 835.5, 4800)),
    (r"\bH200\b", GpuRates("H200", 66.9, 33.5, 494.7, 989.4, 989.4, 4800)),
    (r"\bH100.*NVL", GpuRates("H100 NVL", 60, 30, 417.5, 835.5, 835.5, 3900)),
    (r"\bH100.*PCIe", GpuRates("H100 PCIe", 51, 26, 378, 756, 756, 2000)),
    (r"\bH100\b", GpuRates("H100 SXM", 66.9, 33.5, 494.7, 989.4, 989.4, 3350)),
    (r"\bA100.*PCI.*80GB|\bA100 80GB PCIe", GpuRates("A100 PCIe 80 GB", 19.5, 9.7, 156, 312, 312, 1935)),
    (r"\bA100.*80GB", GpuRates("A100 SXM 80 GB", 19.5, 9.7, 156, 312, 312, 2039)),
    (r"\bA100\b", GpuRates("A100 40 GB", 19.5, 9.7, 156, 312, 312, 1555)),
    (r"\bA30\b", GpuRates("A30", 10.3, 5.2, 82, 165, 165, 933)),
    (r"\bA40\b", GpuRates("A40", 37.4, 0, 74.8, 149.7, 149.7, 696)),
    (r"\bA10\b", GpuRates("A10", 31.2, 0, 62.5, 125, 125, 600)),
    (r"\bL40S\b", GpuRates("L40S", 91.6, 0, 183, 362, 362, 864)),
    (r"\bL40\b", GpuRates("L40", 90.5, 0, 90.5, 181, 181, 864)),
    (r"\bL4\b", GpuRates("L4", 30.3, 0, 60, 121, 121, 300)),
    (r"RTX 4090\b", GpuRates("RTX 4090", 82.6, 0, 82.6, 165.2, 165.2, 1008)),
    (r"RTX 3090\b", GpuRates("RTX 3090", 35.6, 0, 35.6, 71, 71, 936)),
    (r"V100.*SXM", GpuRates("V100 SXM2", 15.7, 7.8, 0, 0, 125, 900)),
    (r"V100", GpuRates("V100 PCIe", 14, 7, 0, 0, 112, 900)),
    (r"\bT4\b", GpuRates("T4", 8.1, 0, 0, 0, 65, 320)),
    (r"Quadro RTX 5000\b", GpuRates("Quadro RTX 5000", 11.2, 0, 0, 0, 89.2, 448)),
    (r"P100.*SXM", GpuRates("P100 SXM2", 10.6, 5.3, 0, 0, 21.2, 732)),
    (r"P100", GpuRates("P100 PCIe", 9.3, 4.7, 0, 0, 18.7, 732)),
    (r"\bK40", GpuRates("K40", 4.29, 1.43, 0, 0, 0, 288)),
)


def find_gpu_rates(name: str) -> GpuRates | None:
    """Find the rates of a GPU by the name that nvidia-smi shows; None where the model is not in the table."""
    return next((rates for pattern, rates in _RATES if re.search(pattern, name, re.IGNORECASE)), None)
