# SPDX-License-Identifier: BSD-3-Clause
"""Public threads of users whose GPU images did not run, by number; and what their cases share.

Each has a case in tests/functional/test_threads_*.py; what a thread leaves out (a tag, the last digits of a driver) is
filled in there with what fits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kedge.compat.contents.read_traits import read_traits
from kedge.compat.judge import judge
from kedge.compat.tables.gpu_names import make_gpu
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Target
from kedge.compat.traits import ImageTraits
from kedge.compat.verdict import Verdict
from kedge.container.devices import plan_devices
from kedge.container.facts import Additions, HostFacts, ImageFacts
from kedge.container.options import RunOptions
from tests.builders.gpu_hosts import make_driver_tree, make_host, make_image

TABLES = load_tables()
_NAMES = """
1 NVIDIA/nvidia-docker/issues/543            2 NVIDIA/nvidia-docker/issues/536
3 NVIDIA/nvidia-docker/issues/688            4 NVIDIA/nvidia-docker/issues/1442
5 NVIDIA/nvidia-container-toolkit/issues/152 6 NVIDIA/nvidia-docker/issues/1796
7 nodefluxio/vortex/issues/106               8 Xilinx/Vitis-AI/issues/103
9 SyneRBI/PETRIC2/issues/27                  10 MauriceNino/dashdot/issues/1226
11 iot-salzburg/gpu-jupyter/issues/24        12 apptainer/singularity/issues/611
13 NVIDIA/nvidia-docker/issues/1294          14 NVIDIA/nvidia-docker/issues/1515
15 DeepVAC/TorchPod/issues/43                16 oobabooga/textgen/issues/4407
17 mistralai/mistral-inference/issues/144    18 NVIDIA/TensorRT-LLM/issues/1806
19 gpustack/gpustack/issues/1254             20 Haidra-Org/horde-worker-reGen/issues/349
21 microsoft/onnxruntime/issues/21435        22 AIR-DISCOVER/ICRA2024-Sim2Real-AXS/issues/5
23 pytorch/pytorch/issues/31285              24 pytorch/pytorch/issues/46647
25 pytorch/pytorch/issues/52736              26 pytorch/pytorch/issues/59219
27 Kaggle/kaggle-cli/issues/1151             28 Comfy-Org/ComfyUI/pull/16438
29 apptainer/apptainer/issues/598            30 apptainer/apptainer/issues/945
31 apptainer/apptainer/issues/2421           32 apptainer/apptainer/issues/3041
33 apptainer/apptainer/issues/1080           34 apptainer/singularity/issues/4989
35 apptainer/singularity/issues/1714         36 apptainer/apptainer/issues/2261
37 apptainer/singularity/issues/4783         38 apptainer/singularity/issues/5002
39 apptainer/singularity/issues/5935         40 apptainer/singularity/issues/5337
41 apptainer/singularity/issues/5837         42 sylabs/singularity/issues/523
43 sylabs/singularity/issues/471             44 apptainer/singularity/issues/6339
45 apptainer/apptainer/issues/2203           46 labsyspharm/mcmicro/issues/209
47 NVIDIA/NVFlare/pull/5038                  48 NVIDIA/pyxis/issues/47
49 determined-ai/determined/pull/7337        50 ComparativeGenomicsToolkit/cactus/issues/1618
51 pytorch/functorch/issues/1072             52 cresset-template/cresset/issues/230
53 crickett-hpe/hpc-ai-envs/pull/29          54 ServiceNow/Fast-LLM/pull/521
55 vllm-project/vllm/issues/1781
"""
_WORDS = _NAMES.split()
THREADS = {int(number): f"https://github.com/{name}" for number, name in zip(_WORDS[::2], _WORDS[1::2], strict=True)}

# What kedge deliberately does nothing about, though the rest of the thread has its case.
NOT_TREATED = {
    7: "that docker's check also fires while an image is built: kedge builds none",
    50: "nvidia-container-cli in the configuration of another runtime: kedge does without that program",
    53: "a site that writes over the constraints inside its own images: kedge changes no image, and says how to",
}

_Test = Callable[..., None]


def about(*numbers: int) -> Callable[[_Test], _Test]:
    """Says which threads a test is a case of; test_threads_complete reads it."""
    assert all(number in THREADS for number in numbers)
    return lambda test: test


def case(number: int, *values: object) -> object:
    """A row of a parametrized test that is the case of one thread; its address is the row's name."""
    return pytest.param(*values, id=f"{number} {THREADS[number].removeprefix('https://github.com/')}")


def read_image(name: str, **environment: str) -> ImageTraits:
    """An image by its name and the variables of its config, with what the tables know of its tag."""
    return read_traits(name, environment=environment, labels={}, history=(), tables=TABLES, architecture="amd64")


def ask(image: ImageTraits, gpu: str, driver: str, **facts: object) -> Verdict:
    """The verdict on a node whose driver reports such a GPU."""
    values: dict[str, object] = {"has_gpus": True, "architecture": "amd64", **facts}
    target = Target("node", "host", (make_gpu(gpu, TABLES),), driver=driver, **values)  # type: ignore[arg-type]
    return judge(image, target, TABLES)


def tell(verdict: Verdict) -> str:
    """All that a user reads below the headline."""
    return " ".join(f"{each.sentence} {each.remedy}" for each in verdict.judgements)


def start(host: HostFacts, image: ImageFacts | None = None, **options: object) -> Additions:
    """What `kedge exec --nv IMAGE python` prepares on a host, or refuses."""
    given = {"verb": "exec", "arguments": ["python"], "nv": True, **options}
    return plan_devices(RunOptions(**given), host, image or make_image())


def make_node(driver: str, *models: str, environ: Mapping[str, str] | None = None, **tree: object) -> HostFacts:
    """A node with a driver and its libraries, and GPUs under the names that the driver reports."""
    return make_host(make_driver_tree(driver, models, **tree), **(environ or {}))  # type: ignore[arg-type]
