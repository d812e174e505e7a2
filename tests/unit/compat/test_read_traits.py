# SPDX-License-Identifier: BSD-3-Clause
"""Facts of images from their configs, as NGC and Docker Hub write them, and the table's rows."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.manifest import parse_config
from kedge.compat.contents.read_traits import read_config_traits, read_traits, split_name
from kedge.compat.tables.load import load_tables
from kedge.compat.tables.rows import CudaRelease, NgcRelease
from kedge.compat.traits import ImageTraits
from tests.builders.rows import each_row
from tests.wording import assert_says

PYTORCH = "nvcr.io/nvidia/pytorch"
# as the 24.01 image has it
NGC_2401 = {
    "CUDA_VERSION": "12.3.2.001", "CUDA_DRIVER_VERSION": "545.23.08", "_CUDA_COMPAT_PATH": "/usr/local/cuda/compat",
    "NVIDIA_REQUIRE_CUDA": "cuda>=9.0", "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "", "NCCL_VERSION": "2.19.4",
    "CUDNN_VERSION": "8.9.7.29+cuda12.2", "TRT_VERSION": "8.6.1.6+cuda12.0.1.011", "OPENMPI_VERSION": "4.1.5rc2",
    "HPCX_VERSION": "2.16rc4", "OPENUCX_VERSION": "1.15.0", "PYTORCH_VERSION": "2.2.0a0+81ea7a4",
    "NVIDIA_PYTORCH_VERSION": "24.01", "NVIDIA_PRODUCT_NAME": "PyTorch",
    "TORCH_CUDA_ARCH_LIST": "5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX",
}  # fmt: skip
UBUNTU_2204 = {
    "com.nvidia.cuda.version": "9.0",
    "org.opencontainers.image.ref.name": "ubuntu",
    "org.opencontainers.image.version": "22.04",
}


class Rows:
    """Tables with a few rows."""

    def __init__(self, *rows: NgcRelease, cuda: CudaRelease | None = None) -> None:
        self.rows, self.cuda = rows, cuda

    def find_release(self, image: str, tag: str) -> NgcRelease | None:
        return next((row for row in self.rows if (row.image, row.tag) == (image, tag)), None)

    def find_cuda(self, version: str) -> CudaRelease | None:
        return self.cuda if self.cuda and version.startswith(self.cuda.version) else None


def read(
    name: str,
    environment: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    history: tuple[object, ...] = (),
    rows: Rows | None = None,
    **more: str,
) -> ImageTraits:
    return read_traits(
        name,
        environment=environment or {},
        labels=labels or {},
        history=history,
        tables=rows or Rows(),  # type: ignore[arg-type]
        **more,
    )


def test_read_traits_every_version_comes_from_the_image_where_no_table_has_the_tag() -> None:
    more = {"HOROVOD_VERSION": "0.23.0", "DALI_VERSION": "1.8.0", "DALI_BUILD": "3362434"}
    traits = read("registry.example/mirror/pytorch:24.01", {**NGC_2401, **more})
    assert (traits.horovod.value, traits.dali.value) == ("0.23.0", "1.8.0")
    assert {fact.source.partition(", ")[0] for fact in traits.known.values() if fact.value} == {"image config"}


def test_read_traits_notes() -> None:
    name, tables = f"{PYTORCH}:24.01-py3", load_tables()
    traits = read_traits(name, environment=NGC_2401, labels={}, history=(), tables=tables)
    assert not [note for note in traits.notes if "kedge uses the image's" in note]
    assert traits.nccl.source == "image config, NCCL_VERSION"
    assert read("example.org/x:1", {}, UBUNTU_2204).cuda.value == ""
    traits = read("rocm/pytorch:latest", {"ROCM_PATH": "/opt/rocm"})
    assert any("AMD" in note for note in traits.notes)
    row = NgcRelease("nvcr.io/nvidia/cuda", "11.0.3-base-ubuntu20.04", notes="end-of-life (tags get deleted)")
    traits = read("nvcr.io/nvidia/cuda:11.0.3-base-ubuntu20.04", rows=Rows(row))
    assert any("deletes tags" in note for note in traits.notes)


def test_read_traits_of_framework_image_takes_versions_from_variables() -> None:
    history = ("RUN |3 CUDA_VERSION=12.3.2.001 PYVER=3.10 TARGETARCH=amd64 /bin/sh -c apt-get update # buildkit",)
    traits = read(f"{PYTORCH}:24.01-py3", NGC_2401, UBUNTU_2204, history)
    known = {name: fact.value for name, fact in traits.known.items()}
    assert known == {
        "framework": "PyTorch", "framework_version": "2.2.0a0+81ea7a4", "release": "24.01", "python": "3.10",
        "cuda": "12.3.2.001", "cudnn": "8.9.7.29", "nccl": "2.19.4", "tensorrt": "8.6.1.6",
        "mpi": "Open MPI 4.1.5rc2", "hpcx": "2.16rc4", "ucx": "1.15.0", "horovod": "", "dali": "", "apex": "",
        "jupyterlab": "", "os": "Ubuntu 22.04", "glibc": "2.35", "driver": "545.23.08",
        "capabilities": "5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX",
    }  # fmt: skip
    assert traits.compat.value == "yes"
    assert traits.requires == (("NVIDIA_REQUIRE_CUDA", "cuda>=9.0"),)
    assert traits.cuda.source == "image config, CUDA_VERSION"
    assert traits.python.source == "image history, PYVER"


def test_read_traits_of_a_tag_without_config_facts_uses_the_row() -> None:
    row = NgcRelease(
        PYTORCH, "22.03-py3", "PyTorch", "1.12.0a0+2c916ef", "20.04.4", cuda="11.6.1.005", cudnn="8.3.3.40",
        same_month="python=3.8;nccl=2.12.9 (MXNet 22.03 notes)", source="a file",
    )  # fmt: skip
    traits = read(f"{PYTORCH}:22.03-py3", rows=Rows(row))
    assert traits.os.value.startswith("Ubuntu 20.04")
    assert traits.cuda.value.startswith("11.6.1")
    assert traits.framework_version.value.startswith("1.12.0")
    assert traits.python.value == ""
    assert traits.nccl.value == ""
    assert any("Python 3.8" in note and "not for this tag" in note for note in traits.notes)
    assert traits.cuda.source == f"table, {PYTORCH}:22.03-py3 (a file)"
    assert traits.glibc.value == "2.31"


def test_read_traits_where_tables_tell_more_or_less_than_the_config() -> None:
    row = NgcRelease(PYTORCH, "21.10-py3", "PyTorch", "1.10.0a0+0aef44c", ubuntu="20.04", cuda="11.4.2")
    traits = read(f"{PYTORCH}:21.10-py3", {"CUDA_VERSION": "11.4.3.001"}, rows=Rows(row))
    assert traits.cuda.value == "11.4.3.001"
    assert_says(traits.notes, "compat/image-says-nvidias-notes-say", "CUDA", "11.4.3.001", "11.4.2")
    toolkit = CudaRelease("12.3.2", "12.3 Update 2", "545.23.08", "525.60.13", (470, 525, 535), "cuda-compat-12-3", "x")
    traits = read(f"{PYTORCH}:24.01-py3", NGC_2401, rows=Rows(cuda=toolkit))
    assert traits.compat_branches.value == "470 525 535"
    assert traits.compat_branches.source == "table, CUDA 12.3.2"
    row = NgcRelease("nvcr.io/nvidia/cuda", "12.4.1-base-ubuntu22.04", "CUDA", "12.4.1", "22.04", cuda="12.4.1",
                     cudnn="9.1.0.70-1", nccl="2.21.5")  # fmt: skip
    traits = read("nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04", rows=Rows(row))
    assert traits.cudnn.value == ""
    assert traits.nccl.value == ""
    devel = NgcRelease("nvcr.io/nvidia/cuda", "12.4.1-cudnn-devel-ubuntu22.04", cudnn="9.1.0.70-1", nccl="2.21.5")
    traits = read("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", rows=Rows(devel))
    assert (traits.cudnn.value, traits.nccl.value) == ("9.1.0.70", "2.21.5")


@each_row(("said", "noted"), [("12.4.1.003", "12.4.1"), ("12.4", "12.4.1"), ("12.4.1", "12.4.1.003")])
def test_read_traits_does_not_call_a_longer_version_a_contradiction(said: str, noted: str) -> None:
    row = NgcRelease(PYTORCH, "24.05-py3", cuda=noted)
    assert read(f"{PYTORCH}:24.05-py3", {"CUDA_VERSION": said}, rows=Rows(row)).notes == ()


def test_read_traits_of_cuda_image_reads_branches_from_its_requirement() -> None:
    environment = {
        "CUDA_VERSION": "12.4.1",
        "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-12-4",
        "NCCL_VERSION": "2.21.5-1",
        "NVIDIA_PRODUCT_NAME": "CUDA",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
        "brand=tesla,driver>=525,driver<526 brand=tesla,driver>=535,driver<536",
    }
    traits = read("docker.io/nvidia/cuda:12.4.1-devel-ubuntu22.04", environment)
    assert traits.compat_branches.value == "470 525 535"
    assert traits.compat_branches.source == "image config, NVIDIA_REQUIRE_CUDA"
    assert (traits.framework.value, traits.framework_version.value) == ("CUDA", "12.4.1")
    assert traits.nccl.value == "2.21.5"
    assert (traits.os.value, traits.os.source) == ("Ubuntu 22.04", "the tag")


@each_row(("name", "environment", "history", "expected"), [
    ("docker.io/pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime", {"PYTORCH_VERSION": "2.1.0"},
     ("RUN |4 PYTHON_VERSION=3.10 CUDA_VERSION=12.1.1 CUDA_CHANNEL=nvidia CHANNEL=pytorch /bin/sh -c x",),
     {"framework": "PyTorch", "framework_version": "2.1.0", "cuda": "12.1.1", "python": "3.10"}),
    ("pytorch/pytorch:1.6.0-cuda10.1-cudnn7-runtime", {}, (),
     {"framework": "PyTorch", "framework_version": "1.6.0", "cuda": "10.1", "python": ""}),
    ("tensorflow/tensorflow:2.15.0-gpu", {}, ("RUN |1 TF_PACKAGE_VERSION=2.15.0 /bin/sh -c python3 -m pip install",),
     {"framework": "TensorFlow", "framework_version": "2.15.0", "cuda": ""}),
    ("nvcr.io/nvidia/tensorflow:21.06-tf1-py3",
     {"TENSORFLOW_VERSION": "1.15.5", "NVIDIA_TENSORFLOW_VERSION": "21.06-tf1"}, (),
     {"framework": "TensorFlow", "framework_version": "1.15.5", "release": "21.06"}),
    ("python:3.11-bookworm", {"PYTHON_VERSION": "3.11.9"},
     ("# debian.sh --arch 'amd64' out/ 'bookworm' '@1722000000'",),
     {"python": "3.11.9", "os": "Debian 12", "glibc": "2.36", "framework": ""}),
])  # fmt: skip
def test_read_traits_of_docker_hub_images(
    name: str, environment: dict[str, str], history: tuple[str, ...], expected: dict[str, str]
) -> None:
    traits = read(name, environment, history=history)
    assert {key: getattr(traits, key).value for key in expected} == expected


@each_row(("variable", "value", "expected"), [
    ("MPICH_VERSION", "4.0.2", "MPICH 4.0.2"),
    ("I_MPI_VERSION", "2021.9", "Intel MPI 2021.9"),
    ("MV2_VERSION", "2.3.7", "MVAPICH2 2.3.7"),
    ("OPENMPI_VERSION", "4.1.7", "Open MPI 4.1.7"),
    ("OPENMPI_VERSION", "none", ""),
])  # fmt: skip
def test_read_traits_names_the_mpi_family(variable: str, value: str, expected: str) -> None:
    assert read("x:1", {variable: value}).mpi.value == expected


def test_read_traits_shows_no_control_characters_and_no_endless_values() -> None:
    environment = {
        "PYTORCH_VERSION": "2.1\x1b[31m\u202e" + "A" * 10_000_000,
        "NVIDIA_REQUIRE_CUDA": "cuda>=9\x1b]0;title\x07",
        "TORCH_CUDA_ARCH_LIST": "8.0 " * 100_000,
    }
    traits = read("x:1", environment)
    assert len(traits.framework_version.value) <= 60
    assert traits.framework_version.value.isprintable()
    assert all(value.isprintable() for _, value in traits.requires)
    assert traits.capabilities.value == ""


@each_row("history", [({"created_by": 7},), (None, 5, []), ({"created_by": "ARG " * 1_000_000},)])
def test_read_traits_passes_over_history_that_is_no_text(history: tuple[object, ...]) -> None:
    assert read("x:1", history=history).python.value == ""


@each_row(("tag", "architecture", "expected"), [
    ("25.10-py3", "arm64", "8.0 8.6 9.0 10.0 11.0 12.0+PTX"),
    ("25.10-py3", "amd64", "7.5 8.0 8.6 9.0 10.0 12.0+PTX"),
    ("24.01-py3", "arm64", ""),  # the list that is known is of amd64
])  # fmt: skip
def test_read_traits_has_the_kernels_of_one_architecture(tag: str, architecture: str, expected: str) -> None:
    name = f"nvcr.io/nvidia/pytorch:{tag}"
    traits = read_traits(name, environment={}, labels={}, history=(), tables=load_tables(), architecture=architecture)
    assert traits.capabilities.value == expected


@each_row(("name", "expected"), [
    ("docker://nvcr.io/nvidia/pytorch:24.01-py3", ("nvcr.io/nvidia/pytorch", "24.01-py3")),
    ("docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04", ("nvcr.io/nvidia/cuda", "12.4.1-base-ubuntu22.04")),
    ("localhost:5000/a/b", ("localhost:5000/a/b", "")),
    ("nvcr.io/nvidia/pytorch:24.01-py3@sha256:00", ("nvcr.io/nvidia/pytorch", "24.01-py3")),
])  # fmt: skip
def test_split_name(name: str, expected: tuple[str, str]) -> None:
    assert split_name(name) == expected


def test_read_config_traits_has_entrypoint_and_architecture() -> None:
    config = parse_config(
        b'{"architecture":"arm64","os":"linux","created":"2024-01-01T00:00:00Z",'
        b'"config":{"Env":["CUDA_VERSION=12.4.1","X"],"Entrypoint":["/opt/x"],"Cmd":["bash"]}}'
    )
    traits = read_config_traits("x:1", config, Rows())  # type: ignore[arg-type]
    assert (traits.architecture, traits.entrypoint, traits.command) == ("arm64", ("/opt/x",), ("bash",))
    assert traits.cuda.value == "12.4.1"
