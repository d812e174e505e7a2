# SPDX-License-Identifier: BSD-3-Clause
"""What the five tutorials say about images, GPUs and drivers holds in the tables, too."""

from __future__ import annotations

from kedge.base.versions import is_at_least, major_minor, order
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import load_tables
from kedge.compat.tables.rows import NgcRelease
from tests.builders.rows import each_row

TABLES = load_tables()


def release(image: str, tag: str) -> NgcRelease:
    found = TABLES.find_release(image, tag)
    assert found is not None, f"{image}:{tag} is not in the tables"
    return found


# SDumont


def test_sdumont_what_2203_is_composed_of() -> None:
    """The newest tag of its time has Ubuntu 20.04, CUDA 11.6.1 and PyTorch 1.12.0."""
    row = release("docker://nvcr.io/nvidia/pytorch", "22.03-py3")
    assert row.ubuntu.startswith("20.04")
    assert row.cuda.startswith("11.6.1")
    assert row.framework == "PyTorch"
    assert row.framework_version.startswith("1.12.0")


def test_sdumont_k40_is_not_served_by_the_pytorch_of_ngc() -> None:
    """The PyTorch inside NVIDIA's images does not work on K40 GPUs."""
    k40 = find_gpu("K40", TABLES)
    assert k40.capability == "3.5"
    for row in TABLES.list_releases("nvcr.io/nvidia/pytorch"):
        assert "3.5" not in row.capabilities.split()
        stated = [part for part in row.capabilities.split("; ") if part.endswith("(stated)")]
        assert not any(is_at_least(k40.capability, part) for part in stated)


def test_sdumont_base_of_the_k40_image() -> None:
    """The image that was built for K40 GPUs is based on 20.03-py3, which has CUDA 10.2."""
    row = release("nvcr.io/nvidia/pytorch", "20.03-py3")
    assert major_minor(row.cuda) == "10.2"
    assert is_at_least(find_gpu("K40", TABLES).last_cuda, "10.2")  # toolkits of that time still make code for it


@each_row(("queue_gpu", "capability"), [("K40", "3.5"), ("V100-SXM2-32GB", "7.0")])
def test_sdumont_gpus_of_its_queues(queue_gpu: str, capability: str) -> None:
    """The nvidia queues have K40 GPUs, the sequana ones V100."""
    assert find_gpu(queue_gpu, TABLES).capability == capability


# ZIH Dresden


@each_row("tag", ["21.06-py3", "21.08-py3"])
def test_zih_tags_are_known(tag: str) -> None:
    """21.08-py3 is pulled, 21.06-py3 is run on the A100 of partition alpha."""
    row = release("nvcr.io/nvidia/pytorch", tag)
    assert row.framework == "PyTorch"
    assert order(row.framework_version)[:2] >= (1, 9)


def test_zih_a100_needs_cuda_11_and_21_06_has_it() -> None:
    """A100 GPUs came with CUDA 11; the images of that month have 11.3.1."""
    a100 = find_gpu("A100-SXM4-40GB", TABLES)
    assert a100.first_cuda == "11.0"
    month = release("nvcr.io/nvidia/tensorflow", "21.06-tf1-py3")
    assert month.cuda == "11.3.1"
    assert release("nvcr.io/nvidia/pytorch", "21.06-py3").cuda == month.cuda
    assert is_at_least(month.cuda, a100.first_cuda)


# ABCI


def test_abci_mpirun_inside_2106_tf1() -> None:
    """mpirun of tensorflow:21.06-tf1-py3 says Open MPI 4.1.1rc1; the host's 4.0.5 has the same major version."""
    row = release("nvcr.io/nvidia/tensorflow", "21.06-tf1-py3")
    assert row.openmpi == "4.1.1rc1"
    assert order(row.openmpi)[0] == order("4.0.5")[0]
    assert row.framework == "TensorFlow"


# NVIDIA


def test_nvidia_flavours_of_cuda_images() -> None:
    """base has the runtime alone; runtime and devel add NCCL; those with cudnn before the flavour have cuDNN."""
    image = "nvcr.io/nvidia/cuda"
    base = release(image, "12.4.1-base-ubuntu22.04")
    assert (base.nccl, base.cudnn) == ("", "")
    devel = release(image, "12.4.1-devel-ubuntu22.04")
    assert (devel.nccl, devel.cudnn) == ("2.21.5", "")
    assert release(image, "12.4.1-cudnn-devel-ubuntu22.04").cudnn == "9.1.0.70"


def test_nvidia_image_of_the_nbody_exercise() -> None:
    """cuda:12.4.1-devel-ubuntu22.04 runs on an L40S (capability 8.9) with driver 565.57.01, CUDA 12.7."""
    row = release("nvcr.io/nvidia/cuda", "12.4.1-devel-ubuntu22.04")
    assert (row.cuda, row.ubuntu) == ("12.4.1", "22.04")
    toolkit = TABLES.find_cuda(row.cuda)
    assert is_at_least("565.57.01", toolkit.min_driver)
    l40s = find_gpu("NVIDIA L40S", TABLES)
    assert (l40s.capability, l40s.architecture) == ("8.9", "Ada Lovelace")
    assert is_at_least(row.cuda, l40s.first_cuda)


def test_nvidia_newer_libraries_work_on_older_drivers() -> None:
    """Within one major version of CUDA a newer runtime works on an older driver, down to a floor."""
    floors = {
        major: {row.minor_floor for row in TABLES.cuda if order(row.version)[0] == major} for major in (11, 12, 13)
    }
    assert floors == {11: {"450.80.02"}, 12: {"525.60.13"}, 13: {"580.65.06"}}


def test_nvidia_image_of_the_pip_exercises() -> None:
    """pytorch:24.03-py3 is the base of the Lightning image; pip replaces its own torch 2.3."""
    row = release("nvcr.io/nvidia/pytorch", "24.03-py3")
    assert row.framework_version.startswith("2.3.0a0")
    assert row.python.startswith("3.10")
    assert row.cuda.startswith("12.4.0")


# TACC


def test_tacc_quadro_rtx_5000() -> None:
    """The rtx nodes of Frontera have four Quadro RTX 5000 of 16 GB; images of CUDA 10, 11 and 12.1 work there."""
    gpu = find_gpu("Quadro RTX 5000", TABLES)
    assert (gpu.capability, gpu.memory, gpu.brand) == ("7.5", "16", "quadrortx")
    assert is_at_least("10.0", gpu.first_cuda)
    assert gpu.last_cuda == ""


def test_tacc_images_of_cuda_10_are_not_for_lonestar6() -> None:
    """Of the images for both machines only those with CUDA 11 are ticked for Lonestar6, whose GPUs are A100."""
    a100 = find_gpu("A100-PCIE-40GB", TABLES)
    assert not is_at_least("10.2", a100.first_cuda)
    assert is_at_least("11.0", a100.first_cuda)


def test_tacc_cuda_of_the_matmul_image() -> None:
    """The image of the scaling test has CUDA 12.1."""
    toolkit = TABLES.find_cuda("12.1")
    assert toolkit.min_driver == "530.30.02"
