# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from kedge.compat.gpu_rates import find_gpu_rates
from tests.builders.rows import each_row


@each_row(("name", "model"), [
    ("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("NVIDIA H100 NVL", "H100 NVL"), ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
    ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"), ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
    ("NVIDIA L40S", "L40S"), ("NVIDIA L4", "L4"), ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("Tesla T4", "T4"),
    ("Tesla K40m", "K40"), ("Quadro RTX 5000", "Quadro RTX 5000"), ("NVIDIA GH200 480GB", "GH200"),
])  # fmt: skip
def test_gpu_rates_are_found_by_the_name_that_nvidia_smi_shows(name: str, model: str) -> None:
    rates = find_gpu_rates(name)
    assert rates.model == model
    assert rates.find_rate("float32") > 0


def test_gpu_rates_unknown_models_and_types() -> None:
    assert find_gpu_rates("Voodoo 2") is None
    rates = find_gpu_rates("NVIDIA A100-SXM4-80GB")
    assert rates.find_rate("tf32") == 156
    assert rates.find_rate("memory") == 0
