# SPDX-License-Identifier: BSD-3-Clause
"""What the tutorials say about images, GPUs and drivers holds in the tables, too.

The figures of single tags and GPUs that they name are rows of test_tables.py and test_gpu_names.py.
"""

from __future__ import annotations

from kedge.base.versions import is_at_least, order
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import load_tables
from tests.builders.rows import each_row

TABLES = load_tables()


def test_sdumont_k40_is_not_served_by_the_pytorch_of_ngc() -> None:
    """The PyTorch inside NVIDIA's images does not work on K40 GPUs."""
    k40 = find_gpu("K40", TABLES)
    for row in TABLES.list_releases("nvcr.io/nvidia/pytorch"):
        assert "3.5" not in row.capabilities.split()
        stated = [part for part in row.capabilities.split("; ") if part.endswith("(stated)")]
        assert not any(is_at_least(k40.capability, part) for part in stated)


@each_row(("gpu", "cuda", "serves"), [
    ("K40", "10.2", True),  # SDumont built an image for it on 20.03-py3, which has that
    ("A100-SXM4-40GB", "11.3.1", True),  # ZIH: the images of 21.06
    ("A100-PCIE-40GB", "10.2", False),  # TACC ticks images of CUDA 11 alone for Lonestar6
    ("A100-PCIE-40GB", "11.0", True),
    ("Quadro RTX 5000", "10.0", True),  # and those of CUDA 10, 11 and 12.1 for the rtx nodes of Frontera
    ("Quadro RTX 5000", "12.1", True),
    ("NVIDIA L40S", "12.4.1", True),  # NVIDIA's exercise of n-bodies
])  # fmt: skip
def test_gpus_have_code_of_the_toolkits_that_tutorials_use(gpu: str, cuda: str, serves: bool) -> None:
    found = find_gpu(gpu, TABLES)
    assert (is_at_least(cuda, found.first_cuda) and is_at_least(found.last_cuda or "99", cuda)) is serves


def test_nvidia_newer_libraries_work_on_older_drivers() -> None:
    """Within one major version of CUDA a newer runtime works on an older driver, down to a floor."""
    rows = [(order(row.version)[0], row.minor_floor) for row in TABLES.cuda]
    assert {row for row in rows if row[0] > 10} == {(11, "450.80.02"), (12, "525.60.13"), (13, "580.65.06")}
