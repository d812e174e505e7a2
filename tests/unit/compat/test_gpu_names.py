# SPDX-License-Identifier: BSD-3-Clause
"""GPUs are found under the names of people, schedulers, profiles and drivers; what is not certain is refused."""

from __future__ import annotations

import pytest

from kedge.cluster.sites.profile import SHIPPED as PROFILES
from kedge.compat.gpu_rates import find_gpu_rates
from kedge.compat.tables import gpu_index
from kedge.compat.tables.gpu_index import find_capability
from kedge.compat.tables.gpu_names import find_gpu, make_gpu
from kedge.compat.tables.load import load_tables
from kedge.errors import UnknownGpu
from tests.builders.rows import each_row

TABLES = load_tables()


@each_row(("text", "name", "capability"), [
    ("H200", "NVIDIA H200", "9.0"), ("h200", "NVIDIA H200", "9.0"), ("NVIDIA H200", "NVIDIA H200", "9.0"),
    ("H200-SXM5-141GB", "NVIDIA H200", "9.0"), ("A100", "NVIDIA A100", "8.0"),
    ("A100-SXM4-40GB", "NVIDIA A100 40GB", "8.0"), ("a100_80", "NVIDIA A100 80GB", "8.0"),
    ("A100 80GB", "NVIDIA A100 80GB", "8.0"), ("gpu:a100", "NVIDIA A100", "8.0"),
    ("gpu:nvidia_a100-sxm4-40gb:8(S:0-1)", "NVIDIA A100 40GB", "8.0"), ("gres:gpu:a100:2", "NVIDIA A100", "8.0"),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100 40GB", "8.0"), ("Tesla K40m", "Tesla K40", "3.5"),
    ("K40", "Tesla K40", "3.5"), ("K80", "Tesla K80", "3.7"), ("V100-SXM2-32GB", "Tesla V100", "7.0"),
    ("v100s", "Tesla V100S", "7.0"), ("P100", "Tesla P100", "6.0"), ("T4", "Tesla T4", "7.5"),
    ("L40S", "NVIDIA L40S", "8.9"), ("L40", "NVIDIA L40", "8.9"), ("A10", "NVIDIA A10", "8.6"),
    ("A10G", "NVIDIA A10G", "8.6"), ("RTX_3090", "GeForce RTX 3090", "8.6"), ("rtx3090", "GeForce RTX 3090", "8.6"),
    ("3090", "GeForce RTX 3090", "8.6"), ("2080ti", "GeForce RTX 2080 Ti", "7.5"),
    ("nvidia_geforce_rtx_2080_ti", "GeForce RTX 2080 Ti", "7.5"), ("gtx1080ti", "GeForce GTX 1080 Ti", "6.1"),
    ("a6000", "RTX A6000", "8.6"), ("RTX 6000 Ada", "RTX 6000 Ada", "8.9"),
    ("RTX PRO 6000", "RTX PRO 6000 Blackwell", "12.0"), ("Quadro-RTX-5000", "Quadro RTX 5000", "7.5"),
    ("titan_v", "TITAN V", "7.0"), ("H100", "NVIDIA H100", "9.0"), ("H100-SXM5-94GB", "NVIDIA H100 SXM", "9.0"),
    ("H100-PCIE-80GB", "NVIDIA H100 PCIe", "9.0"), ("h100_nvl", "NVIDIA H100 NVL", "9.0"),
    ("GH200", "NVIDIA GH200", "9.0"), ("GB200", "NVIDIA GB200", "10.0"), ("B200", "NVIDIA B200", "10.0"),
    ("Orin", "Jetson AGX Orin", "8.7"), ("sm_90", "GPU of compute capability 9.0", "9.0"),
    ("sm_90a", "GPU of compute capability 9.0", "9.0"), ("sm_120", "GPU of compute capability 12.0", "12.0"),
    ("compute_80", "GPU of compute capability 8.0", "8.0"), ("9.0", "GPU of compute capability 9.0", "9.0"),
    ("Hopper", "Hopper GPU", "9.0"), ("ada", "Ada Lovelace GPU", "8.9"), ("volta", "Volta GPU", "7.0"),
])  # fmt: skip
def test_find_gpu_by_the_names_people_use(text: str, name: str, capability: str) -> None:
    found = find_gpu(text, TABLES)
    assert (found.name, found.capability) == (name, capability)


@each_row(("text", "kind", "brand", "forward", "branch"), [
    ("K40", "datacenter", "tesla", True, 470),
    ("V100", "datacenter", "tesla", True, 580),
    ("T4", "datacenter", "tesla", True, None),
    ("A100", "datacenter", "nvidia", True, None),
    ("H200", "datacenter", "nvidia", True, None),
    ("RTX 3090", "consumer", "geforce", False, None),
    ("TITAN RTX", "consumer", "titan", False, None),
    ("GeForce GTX TITAN", "consumer", "geforce", False, 470),
    ("Quadro P6000", "workstation", "quadro", None, 580),
    ("Quadro RTX 5000", "workstation", "quadrortx", None, None),
    ("RTX A6000", "workstation", "nvidiartx", None, None),
    ("RTX 6000 Ada", "workstation", "nvidiartx", None, None),
    ("9.0", "datacenter", "nvidia", True, None),
    ("8.6", "", "", None, None),
    ("Orin", "embedded", "", None, None),
])  # fmt: skip
def test_find_gpu_tells_what_the_rules_need(
    text: str, kind: str, brand: str, forward: bool | None, branch: int | None
) -> None:
    found = find_gpu(text, TABLES)
    assert (found.kind, found.brand) == (kind, brand)
    assert (found.takes_forward_compat, found.last_driver_branch) == (forward, branch)


@each_row(("text", "memory"), [
    ("H200", "141"), ("V100-SXM2-16GB", "16"), ("V100", "16 or 32"), ("A100", ""), ("H100-SXM5-94GB", "94"),
    ("GH200-96GB", "96"), ("NVIDIA GH200 480GB", "96 or 144"), ("Quadro RTX 5000", "16"),
])  # fmt: skip
def test_find_gpu_memory_where_it_is_certain(text: str, memory: str) -> None:
    assert find_gpu(text, TABLES).memory == memory


@each_row(("text", "message", "hint"), [
    ("H1OO", "no GPU is known by the name 'H1OO'", "did you mean 'NVIDIA H100 SXM'?"),
    ("RTX 3O90", "no GPU is known by the name 'RTX 3O90'", "did you mean 'GeForce RTX 3090'?"),
    ("foo", "no GPU is known by the name 'foo'", "such as H200"),
    ("", "'' is no name of a GPU", "such as H200"),
    ("x" * 500, "is no name of a GPU", "such as H200"),
    ("\x1b[31mA100", "is no name of a GPU", "such as H200"),
    ("9.9", "no GPU has compute capability 9.9", "there are 3.0, 3.5"),
    ("Ampere", "Ampere GPUs have different compute capabilities: 8.0 (NVIDIA A100 40GB), 8.6", "name the model"),
    ("RTX 6000", "Quadro RTX 6000 (7.5), RTX 6000 Ada (8.9), RTX PRO 6000 Blackwell (12.0)", "name one of them"),
    ("TITAN X", "may mean GPUs of different compute capability", "name one of them"),
    ("GRID A100-10C", "no GPU is known", "such as H200"),
    ("RTX", "no GPU is known", ""),
    ("40GB", "no GPU is known", ""),
])  # fmt: skip
def test_find_gpu_refuses_what_is_not_certain(text: str, message: str, hint: str) -> None:
    with pytest.raises(UnknownGpu) as caught:
        find_gpu(text, TABLES)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_find_gpu_knows_every_name_of_the_shipped_profiles() -> None:
    import tomllib

    names = set()
    for path in PROFILES.glob("*.toml"):
        profile = tomllib.loads(path.read_text())
        names |= {queue["gpu"] for queue in profile.get("queue", profile.get("queues", [])) if queue.get("gpu")}
    assert len(names) >= 10
    for name in names:
        found = find_gpu(name, TABLES)
        assert found.capability or found.brand == "amd", name


def test_find_gpu_finds_every_row_by_every_name_it_has() -> None:
    for row in TABLES.gpus:
        for name in (row.name, *row.smi_names):
            assert find_gpu(name, TABLES).capability == row.capability, name
            assert make_gpu(name, TABLES).capability == row.capability
    found = find_gpu("MI300A", TABLES)
    assert (found.name, found.brand, found.capability, found.takes_forward_compat) == ("AMD MI300A", "amd", "", False)


def test_make_gpu_keeps_the_name_of_the_driver() -> None:
    found = make_gpu("NVIDIA A100-SXM4-40GB", TABLES)
    assert (found.name, found.capability, found.memory) == ("NVIDIA A100-SXM4-40GB", "8.0", "40")
    assert make_gpu("Tesla V100-FHHL-16GB", TABLES).capability == "7.0"
    found = make_gpu("NVIDIA X999 Future", TABLES)
    assert (found.name, found.capability, found.kind, found.takes_forward_compat) == (
        "NVIDIA X999 Future", "", "", None,
    )  # fmt: skip
    geforce = make_gpu("NVIDIA GeForce RTX 9090", TABLES)  # forward compatibility is refused to the whole line
    assert (geforce.capability, geforce.brand, geforce.takes_forward_compat) == ("", "geforce", False)
    tables = load_tables()
    assert make_gpu("NVIDIA GeForce RTX 4060 Laptop GPU", tables).capability == "8.9"
    assert find_capability("NVIDIA GeForce RTX 4060 Laptop GPU") is not None
    assert make_gpu("NVIDIA GeForce RTX 2050 Laptop GPU", tables).capability == ""  # no board of that number is known


@each_row(("name", "known"), [
    ("NVIDIA H200", ("9.0", "datacenter", True, None)),
    ("Tesla K40m", ("3.5", "datacenter", True, 470)),
    ("A100-SXM4-40GB", ("8.0", "datacenter", True, None)),
    ("NVIDIA A100-SXM4-96GB", ("8.0", "datacenter", True, None)),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", ("8.0", "datacenter", True, None)),
    ("GeForce RTX 3090", ("8.6", "consumer", False, None)),
    ("Quadro RTX 5000", ("7.5", "workstation", None, None)),
    ("NVIDIA GeForce RTX 4070 SUPER", None),
    ("NVIDIA", None),
    ("", None),
    ("\0", None),
])  # fmt: skip
def test_index_finds_what_drivers_report(name: str, known: object) -> None:
    assert find_capability(name) == known


def test_index_says_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in TABLES.gpus:
        known = (row.capability, row.kind, row.takes_forward_compat, row.last_driver_branch)
        assert all(find_capability(name) == known for name in row.smi_names), row.name
    for table in ("/nowhere", __file__, "/dev/null"):
        monkeypatch.setattr(gpu_index, "_TABLE", table)
        assert find_capability("NVIDIA H200") is None


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
