# SPDX-License-Identifier: BSD-3-Clause
"""What users met on real machines, by public threads about drivers, GPUs and libraries: predicted, with a remedy.

Each case is a thread; what it leaves out (a tag, the last digits of a driver) is filled in with what fits it.
"""

from __future__ import annotations

import pytest

from kedge.compat.gpus import find_gpu
from kedge.compat.judge import judge
from kedge.compat.recommend import recommend
from kedge.compat.tables import load_tables
from kedge.compat.target import Target
from kedge.compat.traits import Fact, ImageTraits
from kedge.compat.verdict import MINOR, NATIVE, NO, UNKNOWN, Verdict

TABLES = load_tables()
R_12_8 = "cuda>=12.8 brand=tesla,driver>=535,driver<536 brand=tesla,driver>=550,driver<551"


def make_image(cuda: str, **facts: str) -> ImageTraits:
    values: dict[str, object] = {name: Fact(value, "image config, X") for name, value in facts.items()}
    requires = values.pop("requires", None)
    if isinstance(requires, Fact):
        values["requires"] = (("NVIDIA_REQUIRE_CUDA", requires.value),)
    return ImageTraits("image", cuda=Fact(cuda, "image config, CUDA_VERSION"), **values)  # type: ignore[arg-type]


def ask(image: ImageTraits, gpu: str, driver: str, **facts: object) -> Verdict:
    values: dict[str, object] = {"has_gpus": True, **facts}
    target = Target("node", "host", (find_gpu(gpu, TABLES),), driver=driver, **values)  # type: ignore[arg-type]
    return judge(image, target, TABLES)


def tell(verdict: Verdict) -> str:
    return " ".join(f"{each.sentence} {each.remedy}" for each in verdict.judgements)


@pytest.mark.parametrize(
    ("thread", "image", "gpu", "driver", "words"),
    [
        (
            "NVIDIA/nvidia-docker#543, #536 and #688: CUDA 9 on driver 375.26; the host's toolkit is no matter",
            make_image("9.0.176", framework="CUDA"),
            *("GTX 1080 Ti", "375.26"),
            ["CUDA 9.0.176 needs driver 384.81 or newer", "ask the administrators for driver 384.81 or newer"],
        ),
        (
            "NVIDIA/nvidia-docker#1442: `cuda>=11.0`; the maintainer answers with the driver's number",
            make_image("11.0.3", framework="CUDA"),
            *("GTX 1080 Ti", "440.100"),
            ["CUDA 11.0.3 needs driver 450.51.06 or newer", "docker, podman and enroot refuse the image"],
        ),
        (
            "nodefluxio/vortex#106: `cuda>=10.2`",
            make_image("10.2.89", framework="CUDA"),
            *("GTX 1080 Ti", "418.87.00"),
            ["CUDA 10.2.89 needs driver 440.33 or newer", "Take an image for CUDA 10.1 or older"],
        ),
        (
            "Xilinx/Vitis-AI#103: `cuda should be 10.0? or other?`",
            make_image("10.0.130", framework="CUDA"),
            *("GTX 1080 Ti", "390.46"),
            ["CUDA 10.0.130 needs driver 410.48 or newer", "Take an image for CUDA 9.1 or older"],
        ),
        (
            "NVIDIA/nvidia-docker#1294: forward compatibility was attempted on non supported HW, GTX 1080 Ti",
            make_image("11.0.3", driver="450.51.06", compat="yes", compat_branches="418 440"),
            *("GTX 1080 Ti", "440.100"),
            ["on GeForce GTX 1080 Ti it fails with error 804"],
        ),
        (
            "mistralai/mistral-inference#144 and AIR-DISCOVER/ICRA2024-Sim2Real-AXS#5: RTX with 525, 804",
            make_image("13.0.2", driver="580.95.05", compat="yes"),
            *("RTX 3090", "525.60.13"),
            ["on GeForce RTX 3090 it fails with error 804", "driver 580.65.06 or newer"],
        ),
        (
            "pytorch/pytorch#31285: no kernel image is available, K40m",
            make_image("10.1.243", capabilities="3.7 5.0 6.0 6.1 7.0 7.5"),
            *("Tesla K40m", "418.87.00"),
            ["Tesla K40 (compute capability 3.5) is older than all GPUs", "error 209"],
        ),
        (
            "pytorch/pytorch#46647: K80 believed to be served",
            make_image("11.0.3", capabilities="5.2 6.0 6.1 7.0 7.5 8.0+PTX"),
            *("K80", "450.80.02"),
            ["Tesla K80 (compute capability 3.7) is older than all GPUs"],
        ),
        (
            "pytorch/pytorch#52736: sm_86 on a build of CUDA 10.2",
            make_image("10.2.89", capabilities="sm_37 sm_50 sm_60 sm_70"),
            *("RTX 3090", "460.32.03"),
            ["GeForce RTX 3090 (compute capability 8.6) is newer than all GPUs", "CUDA 11.1 or newer"],
        ),
        (
            "Kaggle/kaggle-cli#1151: P100 allocated, no sm_60 in the image",
            make_image("12.6.3", capabilities="7.0 7.5 8.0 8.6 9.0+PTX"),
            *("P100", "580.95.05"),
            ["Tesla P100 (compute capability 6.0) is older than all GPUs", "compute capability 7.0 or newer"],
        ),
        (
            "Comfy-Org/ComfyUI#16438: builds of CUDA 13 start at 7.5",
            make_image("13.0.2"),
            *("V100", "580.95.05"),
            ["CUDA 13.0.2 makes no code for Tesla V100 (compute capability 7.0): 12.9 was the last"],
        ),
    ],
)
def test_threads_that_ended_in_failure_are_predicted(
    thread: str, image: ImageTraits, gpu: str, driver: str, words: list[str]
) -> None:
    verdict = ask(image, gpu, driver)
    assert verdict.outcome == NO, thread
    for each in words:
        assert each in tell(verdict), thread


@pytest.mark.parametrize(
    ("thread", "gpu", "driver"),
    [
        ("SyneRBI/PETRIC2#27: `cuda>=12.8` on 551.78; is that too old?", "RTX 3090", "551.78"),
        ("MauriceNino/dashdot#1226: a GeForce laptop, `cuda>=12.8`", "RTX 4060", "550.54.14"),
    ],
)
def test_threads_where_the_gate_refuses_what_would_run(thread: str, gpu: str, driver: str) -> None:
    image = make_image("12.8.1", framework="CUDA", requires=R_12_8)
    verdict = ask(image, gpu, driver)
    assert verdict.outcome == MINOR, thread
    assert "docker, podman and enroot refuse the image" in tell(verdict)
    assert "kedge and 'apptainer --nv' do not ask for that, and start it" in tell(verdict)
    assert "NVIDIA_DISABLE_REQUIRE=1" in tell(verdict)


def test_threads_image_rebuilt_with_a_narrower_list_breaks_old_hosts_only_at_the_gate() -> None:
    # NVIDIA/nvidia-container-toolkit#152 and NVIDIA/nvidia-docker#1796
    wide = make_image("11.6.2", framework="CUDA", requires="cuda>=11.6 brand=tesla,driver>=460,driver<461")
    narrow = make_image("11.6.2", framework="CUDA", requires="cuda>=11.6 brand=tesla,driver>=470,driver<471")
    assert "refuse" not in tell(ask(wide, "V100", "460.32.03"))
    assert "docker, podman and enroot refuse the image" in tell(ask(narrow, "V100", "460.32.03"))
    assert ask(wide, "V100", "460.32.03").outcome == ask(narrow, "V100", "460.32.03").outcome == MINOR


def test_threads_older_libcuda_of_the_image_does_not_win() -> None:
    # NVIDIA/nvidia-docker#1515, DeepVAC/TorchPod#43, NVIDIA/TensorRT-LLM#1806: nvidia-smi is fine, and CUDA is not
    image = make_image("11.6.1", driver="510.47.03", compat="yes", capabilities="7.0 8.0 8.6+PTX")
    verdict = ask(image, "RTX 3090", "525.60.13")
    assert verdict.outcome == NATIVE
    assert "kedge leaves out the image's older libcuda 510.47.03, which can fail here (error 803)" in tell(verdict)


def test_threads_same_image_on_another_kind_of_node() -> None:
    # pytorch/pytorch#59219
    gpus = (find_gpu("V100", TABLES), find_gpu("A100", TABLES))
    image = make_image("11.1.1", capabilities="3.7 5.0 6.0 7.0 7.5")
    verdict = judge(image, Target("queue gpu", "queue", gpus, driver="470.57.02"), TABLES)
    assert verdict.outcome == NO
    assert "it runs on Tesla V100" in verdict.headline
    assert "Ask for one kind of GPU in the job." in tell(verdict)


@pytest.mark.parametrize(
    "thread",
    [
        *("apptainer/apptainer#598", "apptainer/apptainer#945", "apptainer/apptainer#2421"),
        *("apptainer/apptainer#3041", "apptainer/apptainer#1080"),
    ],
)
def test_threads_graphics_libraries_of_a_newer_host(thread: str) -> None:
    image = make_image("11.6.1", glibc="2.31", capabilities="8.0 8.6+PTX")
    verdict = ask(image, "RTX 3090", "525.60.13", glibc="2.35")
    assert verdict.outcome == NATIVE, thread
    assert "With 'apptainer --nv'" in tell(verdict)
    assert "'GLIBC_2.34 not found'" in tell(verdict)


def test_threads_users_pick_tags_by_driver_by_hand() -> None:
    # iot-salzburg/gpu-jupyter#24 expected the tool to choose; ServiceNow/Fast-LLM#521 chose by the cluster's driver
    target = Target("H100 nodes", "queue", (find_gpu("H100", TABLES),), driver="550.54.14", architecture="amd64")
    found = recommend("pytorch", target, TABLES)
    assert found.best is not None
    assert found.best.outcome == NATIVE
    older = Target("GTX nodes", "queue", (find_gpu("GTX 1080 Ti", TABLES),), driver="470.57.02", architecture="amd64")
    assert "is the newest that runs natively on GeForce GTX 1080 Ti" in recommend("cuda", older, TABLES).sentence


def test_threads_gtx_with_a_newer_driver_of_a_branch_below_the_images_cuda() -> None:
    # oobabooga/textgen#4407: the update alone did not help until the branch reached the image's CUDA
    image = make_image("12.1.1", driver="530.30.02", compat="yes", compat_branches="470 525")
    assert ask(image, "GTX 1080 Ti", "470.57.02").outcome == NO
    assert "error 804" in tell(ask(image, "GTX 1080 Ti", "470.57.02"))
    assert ask(image, "GTX 1080 Ti", "535.104.05").outcome == UNKNOWN  # kernels are not listed; the driver is fine
    assert "Driver 535.104.05 is new enough" in tell(ask(image, "GTX 1080 Ti", "535.104.05"))
