# SPDX-License-Identifier: BSD-3-Clause
"""nvcr.io with real releases: indexes, manifests and configs as NGC writes them, filled with the tables' values.

Where the table knows nothing of a tag, its config has what other images of the month have, as the real one would. The
layers have sizes, but no bytes: nobody can pull these images.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kedge.base.digest import Digest
from kedge.base.manifest import DOCKER_CONFIG, DOCKER_LAYER_GZIP, DOCKER_LIST, DOCKER_MANIFEST
from kedge.base.versions import order
from kedge.compat.contents.table_facts import read_row
from kedge.compat.tables.load import load_tables
from kedge.compat.tables.rows import NgcRelease
from tests.builders.certificates import Authority, make_authority
from tests.fakes.proxy import ConnectProxy
from tests.fakes.registry import FakeRegistry, Policy, nvcr

PYTORCH = (
    "18.06-py3", "18.12.1-py3", "19.10-py3", "20.03-py3", "20.06-py3", "20.12-py3", "21.03-py3", "21.06-py3",
    "21.10-py3", "22.03-py3", "22.09-py3", "23.01-py3", "23.10-py3", "24.01-py3", "24.03-py3", "24.05-py3", "24.12-py3",
    "25.03-py3", "25.04-py3", "25.10-py3", "25.12-py3", "26.03-py3", "26.07-py3",
)  # fmt: skip
OTHERS = {
    "tensorflow": ("18.12-py3", "20.03-tf1-py3", "21.06-tf1-py3", "22.03-tf2-py3", "23.01-tf2-py3", "24.02-tf2-py3"),
    "cuda": (
        "9.0-base-ubuntu16.04", "10.2-devel-ubuntu18.04", "11.4.3-base-ubuntu20.04", "11.4.3-devel-ubuntu20.04",
        "11.8.0-base-ubuntu22.04", "12.4.1-base-ubuntu22.04", "12.4.1-devel-ubuntu22.04",
        "12.4.1-cudnn-devel-ubuntu22.04", "12.8.1-base-ubuntu24.04", "13.0.0-base-ubuntu24.04",
        "13.0.0-devel-rockylinux9",
    ),
    "cuda-dl-base": ("25.03-cuda12.8-devel-ubuntu24.04", "26.03-cuda13.2-devel-ubuntu24.04"),
    "tritonserver": ("24.05-vllm-python-py3", "26.07-vllm-python-py3"),
    "jax": ("25.01-py3",),
}  # fmt: skip
RELEASES = [("pytorch", tag) for tag in PYTORCH] + [(name, tag) for name, tags in OTHERS.items() for tag in tags]
BRANDS = ("tesla", "unknown", "nvidia", "nvidiartx", "quadro", "quadrortx")
GEFORCE = ("geforce", "geforcertx", "titan", "titanrtx")
_FIRST_ARM = "21.03"  # the first month that the fake has arm64 versions of
_FIRST_COMPAT = "20.06"  # from here on configs name the driver that they bring
# What the notes of the tables say of configs, against the value in their own column.
_SAID_OTHERWISE = {("pytorch", "21.10-py3"): {"cuda": "11.4.3.001"}}
_PRODUCTS = {
    "pytorch": ("PyTorch", "PYTORCH_VERSION", "NVIDIA_PYTORCH_VERSION"),
    "tensorflow": ("TensorFlow", "TENSORFLOW_VERSION", "NVIDIA_TENSORFLOW_VERSION"),
    "tritonserver": ("Triton Server", "", "NVIDIA_TRITON_SERVER_VERSION"),  # the table has the versions of vLLM
    "jax": ("JAX", "JAX_VERSION", "NVIDIA_JAX_VERSION"),
    "cuda-dl-base": ("CUDA", "", ""),
}


@dataclass
class NgcSite:
    """The fake nvcr.io under its own name: reached through a proxy, vouched for by an authority of the test."""

    registry: FakeRegistry
    proxy: ConnectProxy
    authority: Authority

    @property
    def environment(self) -> dict[str, str]:
        """What a kedge needs in its environment to believe that this is nvcr.io."""
        return {"HTTPS_PROXY": self.proxy.url, "KEDGE_CA_BUNDLE": str(self.authority.certificate), "NO_PROXY": ""}

    def lead(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        """Let this process be a user with this home who reaches it, and forget what others asked and broke."""
        for name, value in {**self.environment, "HOME": str(home)}.items():
            monkeypatch.setenv(name, value)
        self.registry.server.log.clear()
        self.registry.server.faults.clear()


@contextlib.contextmanager
def open_ngc(folder: Path, policy: Policy | None = None, *names: str) -> Iterator[NgcSite]:
    """nvcr.io with all releases of the fake; `names` are further hosts that lead to it. Needs openssl."""
    hosts = ("nvcr.io", *names)
    authority = make_authority(folder)
    certificate = authority.issue(*hosts, "127.0.0.1")
    with FakeRegistry(policy or nvcr(), tls=certificate, name="nvcr.io") as registry:
        fill_registry(registry)
        with ConnectProxy({f"{host}:443": registry.server.port for host in hosts}) as proxy:
            yield NgcSite(registry, proxy, authority)  # type: ignore[arg-type]


def fill_registry(registry: FakeRegistry) -> None:
    """Put all releases of the fake into a registry, under `nvidia/`."""
    for name, tag in RELEASES:
        add_release(registry, name, tag)


def add_release(registry: FakeRegistry, name: str, tag: str) -> Digest:
    """One release; the digest of its index, or of its manifest where there is one architecture only."""
    repository = f"nvidia/{name}"
    row = find_row(name, tag)
    architectures = list_architectures(row)
    entries = []
    for architecture in architectures:
        raw = make_manifest(registry, repository, row, architecture)
        if len(architectures) == 1:
            return registry.add_manifest(repository, tag, raw, DOCKER_MANIFEST)
        digest = registry.add_manifest(repository, str(Digest.of(raw)), raw, DOCKER_MANIFEST)
        entries.append(
            {
                "mediaType": DOCKER_MANIFEST,
                "digest": str(digest),
                "size": len(raw),
                "platform": {"architecture": architecture, "os": "linux"},
            }
        )
    index = {"schemaVersion": 2, "mediaType": DOCKER_LIST, "manifests": entries}
    return registry.add_manifest(repository, tag, json.dumps(index, indent=2).encode(), DOCKER_LIST)


def find_row(name: str, tag: str) -> NgcRelease:
    """The table's row; KeyError where the fake names a release that the table does not have."""
    row = load_tables().find_release(f"nvcr.io/nvidia/{name}", tag)
    if row is None:
        raise KeyError(f"{name}:{tag}")
    return row


def list_architectures(row: NgcRelease) -> tuple[str, ...]:
    """amd64 alone for old ones; the rows of `cuda` say which."""
    if row.image.endswith("/cuda"):
        return ("amd64", "arm64") if "arm64" in row.notes else ("amd64",)
    return ("amd64", "arm64") if row.tag[:5] >= _FIRST_ARM else ("amd64",)


def make_manifest(registry: FakeRegistry, repository: str, row: NgcRelease, architecture: str) -> bytes:
    """The manifest of one architecture; its config is put into the registry, its layers are only named."""
    sizes = list_layer_sizes(row)
    config = make_config(row, architecture, len(sizes))
    document = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": registry.add_blob(repository, config, DOCKER_CONFIG).as_json(),
        "layers": [
            {
                "mediaType": DOCKER_LAYER_GZIP,
                "digest": f"sha256:{hashlib.sha256(f'{row.image}{row.tag}{architecture}{place}'.encode()).hexdigest()}",
                "size": size,
            }
            for place, size in enumerate(sizes)
        ],
    }
    return json.dumps(document, indent=3).encode()


def list_layer_sizes(row: NgcRelease) -> list[int]:
    """A few large layers among many small ones, as NGC's images have; 8.6 GB for frameworks, 90 MB for `cuda` bases."""
    if row.image.endswith("/cuda"):
        sizes = [29_534_055, 4_622_073, 55_450_180, 183, 6_884]
        return sizes + ([1_373_800_000, 62_515] if "devel" in row.tag else [])
    return [29_541_000, 46_113_900, 1_210_000_000, 32, 2_455_000_000, 187_300_000] + [
        (place * 7919) % 90_000 + 200 for place in range(40)
    ] + [3_910_000_000, 744_000_000, 1_230]  # fmt: skip


def make_config(row: NgcRelease, architecture: str, layers: int) -> bytes:
    """An image config with environment, labels and history as NGC writes them."""
    name = row.image.rpartition("/")[2]
    values = read_values(row, architecture)
    environment = make_environment(name, row, values, architecture)
    labels = {
        "com.nvidia.volumes.needed": "nvidia_driver",
        "com.nvidia.cuda.version": "9.0",  # so in all framework images; nobody may believe it
        "maintainer": "NVIDIA CORPORATION <cudatools@nvidia.com>",
    }
    if name == "cuda":
        labels = {"maintainer": labels["maintainer"]}
    system = values.get("os", "")
    if system.startswith("Ubuntu"):
        labels["org.opencontainers.image.ref.name"] = "ubuntu"
        labels["org.opencontainers.image.version"] = ".".join(system.removeprefix("Ubuntu ").split(".")[:2])
    section = {
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "Labels": labels,
        "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
        "Cmd": None if name != "cuda" else ["/bin/bash"],
        "WorkingDir": "/workspace" if name == "pytorch" else "/",
    }
    document = {
        "architecture": architecture,
        "os": "linux",
        "created": "2024-03-12T18:01:47.123Z",
        "config": section,
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(f'{row.tag}{n}'.encode()).hexdigest()}" for n in range(layers)],
        },
        "history": list(make_history(environment, values, layers)),
    }
    return json.dumps(document).encode()


def read_values(row: NgcRelease, architecture: str) -> dict[str, str]:
    """What the config is to say: the row's facts, then those of the month, each under the names of ImageTraits."""
    values = {name: fact.value for name, fact in read_row(row, row.tag, architecture).items() if fact}
    if values.get("capabilities", "").endswith("(stated)"):
        del values["capabilities"]
    names = {"cuda_toolkit": "cuda", "openmpi": "mpi", "ubuntu": "os"}
    for pair in row.same_month.partition(" (")[0].split(";"):
        key, _, value = pair.partition("=")
        prefix = {"openmpi": "Open MPI ", "ubuntu": "Ubuntu "}.get(key, "")
        if value and key in ("cuda_toolkit", "openmpi", "ubuntu", "cudnn", "nccl", "python", "tensorrt", "hpcx"):
            values.setdefault(names.get(key, key), prefix + value)
    return values | _SAID_OTHERWISE.get((row.image.rpartition("/")[2], row.tag), {})


def make_environment(name: str, row: NgcRelease, values: dict[str, str], architecture: str) -> dict[str, str]:
    """The variables, in about the order that NGC has them."""
    environment = {"PATH": "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/bin:/bin"}
    if name == "cuda":
        return environment | make_cuda_environment(row, values)
    product, version, release = _PRODUCTS[name]
    environment |= {
        "CUDA_VERSION": values.get("cuda", ""),
        "CUDA_DRIVER_VERSION": values.get("driver", ""),
        "_CUDA_COMPAT_PATH": "/usr/local/cuda/compat" if row.tag >= _FIRST_COMPAT else "",
        "ENV": "/etc/shinit_v2",
        "BASH_ENV": "/etc/bash.bashrc",
        "NVIDIA_REQUIRE_CUDA": "cuda>=9.0",
        "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "",
        "NCCL_VERSION": values.get("nccl", ""),
        "CUDNN_VERSION": values["cudnn"] + "+cuda" + values["cuda"].rpartition(".")[0] if "cudnn" in values else "",
        "TRT_VERSION": values["tensorrt"] + "+cuda12.0.1.011" if "tensorrt" in values else "",
        "OPENMPI_VERSION": values.get("mpi", "").removeprefix("Open MPI "),
        "HPCX_VERSION": values.get("hpcx", ""),
        "DALI_VERSION": values.get("dali", "").removesuffix("yes"),
        "HOROVOD_VERSION": values.get("horovod", "").removesuffix("yes"),
        "OPENUCX_VERSION": "1.15.0" if row.tag == "24.01-py3" else "",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility,video",
        "LD_LIBRARY_PATH": "/usr/local/cuda/compat/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "NVIDIA_PRODUCT_NAME": product,
        "TORCH_CUDA_ARCH_LIST": values.get("capabilities", "") if name == "pytorch" else "",
        "MAXSMVER": "121" if architecture == "arm64" and row.tag == "25.10-py3" else "",
        "PYTHONIOENCODING": "utf-8",
    }
    environment |= {version: values.get("framework_version", ""), release: row.tag.partition("-py")[0]}
    return {key: value for key, value in environment.items() if key and (value or key.startswith("NVIDIA_REQUIRE"))}


def make_cuda_environment(row: NgcRelease, values: dict[str, str]) -> dict[str, str]:
    """Variables of plain `cuda` images, which alone carry a requirement that means something."""
    version = values["cuda"]
    minor = ".".join(version.split(".")[:2])
    brands = BRANDS if order(minor) >= (12, 5) else BRANDS + GEFORCE
    branches = [int(branch) for branch in values.get("compat_branches", "").split()]
    terms = [f"brand={brand},driver>={each},driver<{each + 1}" for each in branches for brand in brands]
    environment = {
        "NVARCH": "x86_64",
        "NVIDIA_REQUIRE_CUDA": " ".join([f"cuda>={minor}", *terms]),
        "NV_CUDA_CUDART_VERSION": f"{version}-1",
        "NV_CUDA_COMPAT_PACKAGE": f"cuda-compat-{minor.replace('.', '-')}",
        "CUDA_VERSION": version,
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_PRODUCT_NAME": "CUDA",
    }
    if "nccl" in values:
        environment["NCCL_VERSION"] = f"{values['nccl']}-1"
    if "cudnn" in values:
        environment["NV_CUDNN_VERSION"] = values["cudnn"]
    return environment


def make_history(environment: dict[str, str], values: dict[str, str], layers: int) -> Iterator[dict[str, object]]:
    """One entry for each layer, and empty ones for the variables between them."""
    yield {"created": "2024-02-01T00:00:00Z", "created_by": "/bin/sh -c #(nop) ADD file:21c2e8d95909bec6f4ac in / "}
    arguments = f"|2 CUDA_VERSION={environment.get('CUDA_VERSION', '')} TARGETARCH=amd64"
    if "python" in values:
        yield {"created_by": f"ARG PYVER={values['python']}", "empty_layer": True}
        arguments = f"|1 PYVER={values['python']}"
    for key, value in environment.items():
        yield {"created_by": f"ENV {key}={value}", "comment": "buildkit.dockerfile.v0", "empty_layer": True}
    for place in range(1, layers):
        step = f"RUN {arguments} /bin/sh -c /nvidia/build-scripts/install-{place}.sh # buildkit"
        yield {"created_by": step, "comment": "buildkit.dockerfile.v0"}
