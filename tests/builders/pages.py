# SPDX-License-Identifier: BSD-3-Clause
"""Values for pages: an image on a machine, a chart and findings, as kedge would tell them."""

from __future__ import annotations

from kedge.answers.doctor import surroundings
from kedge.answers.doctor.surroundings import Finding
from kedge.compat.driver_chart import Chart, ChartColumn, ChartRow
from kedge.compat.target import Gpu, Target
from kedge.compat.traits import Fact, ImageTraits, Layer
from kedge.compat.verdict import FAIL, FORWARD, MINOR, NATIVE, NO, NOTE, OK, OPEN, UNKNOWN, Judgement, Verdict

IMAGE = "nvcr.io/nvidia/pytorch"
CONFIG, TABLE = "image config, {}", "table: NVIDIA release notes of 24.03"
SIZES = (3_910_000_000, 2_220_000_000, 1_480_000_000, 730_000_000, 610_000_000, 212_000_000, 96_000_000, 30_500_000)
HISTORY = (
    "RUN pip install --no-cache-dir /opt/pytorch/dist/*.whl && ldconfig",
    "RUN /nvidia/build-scripts/installLIBS.sh",
    "RUN export DEVEL=1 BASE=0 && /nvidia/build-scripts/installCUDA.sh",
    "RUN /nvidia/build-scripts/installTRT.sh",
    "COPY / / # buildkit",
    "RUN apt-get update && apt-get install -y --no-install-recommends build-essential git libglib2.0-0 less",
    "RUN pip install --no-cache-dir jupyterlab notebook tensorboard jupyterlab_code_formatter black",
    "ADD file:3c74e7e08cbf9a876e1e4bcb1a3b0e2bbd3ec1a2f4 in /",
)


def make_traits() -> ImageTraits:
    layers = [Layer(size, f"sha256:{size:064x}", line) for size, line in zip(SIZES, HISTORY, strict=True)]
    layers += [Layer(1000 * number, f"sha256:{number:064x}", f"ENV STEP={number}") for number in range(1, 40)]
    return ImageTraits(
        f"{IMAGE}:24.03-py3",
        framework=Fact("PyTorch", CONFIG.format("NVIDIA_PRODUCT_NAME")),
        framework_version=Fact("2.3.0a0+40ec155e58", CONFIG.format("PYTORCH_VERSION")),
        release=Fact("24.03", CONFIG.format("NVIDIA_PYTORCH_VERSION")),
        python=Fact("3.10", CONFIG.format("history, PYVER")),
        cuda=Fact("12.4.0.041", CONFIG.format("CUDA_VERSION")),
        cudnn=Fact("9.0.0.306", CONFIG.format("CUDNN_VERSION")),
        nccl=Fact("2.20.5", CONFIG.format("NCCL_VERSION")),
        mpi=Fact("Open MPI 4.1.7", CONFIG.format("OPENMPI_VERSION")),
        os=Fact("Ubuntu 22.04", "label org.opencontainers.image.version"),
        driver=Fact("550.54.14", CONFIG.format("CUDA_DRIVER_VERSION")),
        compat=Fact("yes", CONFIG.format("_CUDA_COMPAT_PATH")),
        compat_branches=Fact("470 525 535 545", TABLE),
        capabilities=Fact("5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX", CONFIG.format("TORCH_CUDA_ARCH_LIST")),
        requires=(("NVIDIA_REQUIRE_CUDA", "cuda>=9.0"),),
        architecture="amd64",
        architectures=("amd64", "arm64"),
        entrypoint=("/opt/nvidia/nvidia_entrypoint.sh",),
        digest="sha256:8b3f6e2c1a" + "0" * 54,
        created="2024-03-15T21:40:31Z",
        size=sum(layer.size for layer in layers),
        layers=tuple(layers),
        notes=(
            "NVIDIA_REQUIRE_CUDA of framework images says less than the image needs; it is not taken for the answer.",
        ),
    )


def make_target() -> Target:
    gpu = Gpu("NVIDIA A100-SXM4-40GB", "8.0", "Ampere", "datacenter", count=8, takes_forward_compat=True)
    return Target(
        "site zih-alpha, queue alpha",
        "queue",
        (gpu,),
        True,
        "535.104.05",
        "seen by a job on 2026-09-12",
        "12.2",
        "amd64",
        cpu="AMD EPYC 7352 24-Core Processor",
        glibc="2.34",
    )


def make_verdict(outcome: str = MINOR) -> Verdict:
    judgements = (
        Judgement(
            "gpu", OK, "The image has kernels for compute capability 8.0 (NVIDIA A100-SXM4-40GB).", outcome=NATIVE
        ),
        Judgement(
            "driver",
            NOTE,
            "Driver 535.104.05 offers CUDA 12.2; the image has CUDA 12.4. Within CUDA 12 that works (from driver"
            " 525.60.13 on), but the driver cannot compile PTX of CUDA 12.4: programs that do get"
            " cudaErrorUnsupportedPtxVersion.",
            "Where PTX is compiled, let the image's own libcuda be used: `kedge exec --nv --compat yes IMAGE …`,"
            " or take 23.10-py3, which runs natively.",
            MINOR,
        ),
        Judgement("mpi", OPEN, "Which MPI this queue's nodes have is not known."),
        *(
            [
                Judgement(
                    "processor",
                    FAIL,
                    "The image is for amd64, the machine is arm64.",
                    "Take the arm64 image of the same tag:\n    kedge pull --arch arm64 pytorch.sif docker://nvcr.io/…",
                    NO,
                )
            ]
            if outcome == NO
            else []
        ),
    )
    headlines = {
        NATIVE: "runs natively on NVIDIA A100-SXM4-40GB with driver 535.104.05",
        MINOR: "runs by minor-version compatibility on NVIDIA A100-SXM4-40GB with driver 535.104.05",
        NO: "does not run on site zih-alpha, queue alpha: the image is for amd64, the machine is arm64",
        UNKNOWN: "not known whether it runs: the driver is not known",
        FORWARD: "runs with the image's own libcuda 550.54.14 on NVIDIA A100-SXM4-40GB with driver 535.104.05",
    }
    return Verdict(outcome, headlines[outcome], judgements, "site zih-alpha, queue alpha", f"{IMAGE}:24.03-py3")


def make_small_chart() -> Chart:
    branches = (470, 525, 535, 550, 570, 580, 590, 595, 610)
    offers = ("11.4", "12.0", "12.2", "12.4", "12.8", "13.0", "13.1", "13.2", "")
    columns = tuple(
        ChartColumn(str(branch), "535.104.05" if branch == 535 else f"{branch}.10", branch == 535, cuda)
        for branch, cuda in zip(branches, offers, strict=True)
    )
    needs = [("26.07-py3", "13.3.1.008", 610), ("26.03-py3", "13.2.0.046", 595), ("25.10-py3", "13.0.2.006", 580)]
    needs += [("25.06-py3", "12.9.1.010", 575), ("25.01-py3", "12.8.0.038", 570), ("24.06-py3", "12.5.0.23", 555)]
    needs += [("24.03-py3", "12.4.0.041", 550), ("23.10-py3", "12.2.2.009", 535), ("23.01-py3", "12.0.1", 525)]
    rows = []
    for tag, cuda, least in needs:
        floor = 580 if least >= 580 else 525
        cells = [
            NATIVE if each >= least else MINOR if each >= floor else FORWARD if each >= 535 else NO for each in branches
        ]
        rows.append(ChartRow(tag, tag, cuda, tuple(cells), tag == "24.03-py3", 5 if tag == "23.10-py3" else 0))
    unknown = ChartRow("26.08-py3", "26.08-py3", "", (UNKNOWN,) * len(branches))
    return Chart(IMAGE, columns, (unknown, *rows), "NVIDIA A100-SXM4-40GB", 41, 19, "24.03-py3")


def make_findings() -> list[Finding]:
    return [
        Finding("processor", surroundings.OK, "amd64, AMD EPYC 7352"),
        Finding(
            "user-namespaces",
            surroundings.FAIL,
            "This kernel lets ordinary users make no user namespaces: unshare: Operation not permitted.",
            "Without them kedge cannot enter an image, so `run`, `exec` and `shell` fail.",
            "Ask the administrators to set this, and to keep it in a file below /etc/sysctl.d:\n"
            "    sysctl -w kernel.unprivileged_userns_clone=1\n"
            "    sysctl -w user.max_user_namespaces=15000",
            "guides/run.md#user-namespaces",
        ),
        Finding(
            "cache-place",
            surroundings.WARNING,
            "The cache is in $HOME, of whose quota 1.2 GB of 50 GB are left.",
            "Images of NGC take 8 to 20 GB each.",
            "Put it on a larger file system: 'kedge config set cache_dir /scratch/$USER/kedge'.",
            "guides/store.md#place",
        ),
        Finding(
            "locale",
            surroundings.NOTE,
            "LANG is not set.",
            "Names with umlauts are shown as escapes.",
            "export LANG=C.UTF-8",
        ),
        Finding("gpu-driver", surroundings.OK, "535.104.05, libraries complete and of one version"),
        Finding("overlay", surroundings.OK, "overlay mounts work in user namespaces"),
        Finding("fabric", surroundings.SKIPPED, "no NVSwitch here"),
    ]


SUMMARY = {
    "kedge": "0.1.0",
    "Host": "login2",
    "System": "Rocky Linux 8.9, kernel 4.18.0-513.el8.x86_64",
    "Scheduler": "Slurm 23.02.7",
    "GPU": "",
    "Cache": "/home/user/.cache/kedge (12.4 GB)",
}
