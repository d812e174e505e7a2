# SPDX-License-Identifier: BSD-3-Clause
"""Users who met errors 802 to 804: whose libcuda runs is decided before a program starts, and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.answers.doctor.finding import WARNING
from kedge.answers.doctor.gpu.fabric import check_fabric
from kedge.answers.doctor.gpu.nvidia.libraries import check_libraries
from kedge.answers.doctor.surroundings import Surroundings
from kedge.answers.explain import Explanation
from kedge.cli.explain import list_lines
from kedge.compat.failures.find_clues import find_clues
from kedge.compat.verdict import MINOR, NATIVE, NO
from kedge.container.facts import LIBRARIES
from kedge.errors import WillNotRun
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import make_compat_image, make_elf
from tests.builders.nvml import FOLDER, make_gpu_tree, write_machine
from tests.builders.user_threads import TABLES, about, ask, case, make_node, read_image, start, tell

COMPAT = "/usr/local/cuda/compat"
NOTE_580 = {"CUDA Version": "13.0", "Driver": [535, 550, 565, 570, 575]}
PASCAL = "NVIDIA GeForce GTX 1080 Ti"
AMPERE = "NVIDIA GeForce RTX 3090"
EVERY = "5.2 6.0 6.1 7.0 7.5 8.0 8.6 9.0+PTX"


@pytest.mark.parametrize(
    ("cuda", "built_for", "gpu", "driver", "outcome"),
    [
        case(13, "11.0.3.001", "450.51.06", PASCAL, "440.100", NO),
        case(17, "12.3.2.001", "545.23.08", AMPERE, "525.60.13", MINOR),
        case(22, "13.0.2.006", "580.95.05", AMPERE, "525.60.13", NO),
    ],
)
def test_threads_geforce_does_not_take_the_images_libcuda(*, cuda, built_for, gpu, driver, outcome):
    image = read_image(
        "own/image:1", CUDA_VERSION=cuda, CUDA_DRIVER_VERSION=built_for, TORCH_CUDA_ARCH_LIST=EVERY
    )  # fmt: skip
    verdict = ask(image, gpu, driver)
    assert verdict.outcome == outcome
    assert f"runs on data-center GPUs only and fails on {gpu} with error 804, so kedge does not use it." in tell(
        verdict
    )
    assert "ask the administrators for driver" in tell(verdict) or "or driver 545.23.08 or newer" in tell(verdict)


@about(14)
def test_threads_libcuda_of_the_image_does_not_win_on_geforce() -> None:
    # the image's own path names its compat folder first; test_libcuda.py has the other cards
    image = make_compat_image("575.57.08", None, COMPAT, f"{COMPAT}:/usr/local/nvidia/lib64")
    additions = start(make_node("535.104.05", AMPERE), image)
    assert additions.prepend_library_path == [LIBRARIES]
    assert any(f"run on data-center GPUs only, not on {AMPERE}" in note for note in additions.notes)


@about(15)
def test_threads_nvidia_smi_is_fine_and_cuda_is_not() -> None:
    image, host = make_compat_image("580.95.05", NOTE_580), make_node("550.54.14", AMPERE)
    with pytest.raises(WillNotRun, match=r"needs CUDA 13, driver 550\.54\.14 of this node supports CUDA 12"):
        start(host, image)
    looked = start(host, image, arguments=["nvidia-smi"])
    assert any(text.startswith("GPU programs of this image will fail on this node.") for text in looked.warnings)


@about(16)
def test_threads_update_helps_when_the_branch_reaches_the_images_cuda() -> None:
    image = read_image("own/image:1", CUDA_VERSION="12.1.1", CUDA_DRIVER_VERSION="530.30.02", CUDA_ARCH_LIST=EVERY)
    gpu = "NVIDIA GeForce GTX 1050 Ti"
    found = [ask(image, gpu, driver) for driver in ("470.57.02", "515.65.01", "525.60.13", "535.104.05")]
    modes = [next(each.outcome for each in verdict.judgements if each.subject == "driver") for verdict in found]
    assert modes == [NO, NO, MINOR, NATIVE]
    assert "driver 525.60.13 or newer" in tell(found[1])


@about(18)
def test_threads_mixed_compat_package_outside_of_containers(tmp_path: Path) -> None:
    tree = {
        **make_gpu_tree(models=(AMPERE,)),
        f"{COMPAT}/libcuda.so.590.44.01": make_elf(),
        f"{COMPAT}/libcuda.so.1": "-> libcuda.so.590.44.01",
    }
    root = write_machine(tmp_path, tree)
    here = Surroundings({"LD_LIBRARY_PATH": COMPAT}, Settings.load(None, {"HOME": str(tmp_path)}), str(root))
    finding = check_libraries(here)[-1]
    assert finding.level == WARNING
    assert f"has another libcuda than the driver's 580.95.05: {COMPAT}, 590.44.01" in finding.what
    assert "803 or 804" in finding.why
    assert f"remove {COMPAT} from LD_LIBRARY_PATH" in finding.fix
    assert FOLDER not in finding.what


@about(19)
def test_threads_error_802_is_another_thing_than_804(tmp_path: Path) -> None:
    said = "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before? Error {}"
    [first] = find_clues(said.format("802: system not yet initialized"))
    [second] = find_clues(said.format("804: forward compatibility was attempted on non supported HW"))
    assert "fabric manager does not run" in first.cause
    assert "runs on data-center GPUs only" in second.cause
    assert "'kedge recommend IMAGE --gpu GPU --driver VERSION' names a tag that fits" in second.remedy
    root = write_machine(tmp_path, {**make_gpu_tree(), "/dev/nvidia-nvswitchctl": ""})
    [finding] = check_fabric(Surroundings({}, Settings.load(None, {"HOME": str(tmp_path)}), str(root)))
    assert "802" in finding.why


@about(20)
def test_threads_least_driver_of_an_image_is_told() -> None:
    told = "\n".join(list_lines(Explanation(read_image("nvcr.io/nvidia/pytorch:24.01-py3")), TABLES))
    needs = told.partition("Driver required")[2].partition("GPU required")[0]
    assert needs.split()[0] == "545.23.08"
    assert "525.60.13 or newer by minor-version compatibility" in needs
    assert "470, 525, 535, 545 on data-center GPUs" in needs


@about(21)
def test_threads_error_804_in_the_words_of_another_library() -> None:
    [clue] = find_clues(
        "[E:onnxruntime] CUDA failure 804: forward compatibility was attempted on non supported HW ; GPU=0 ; expr="
    )
    assert "the libcuda of the image (/usr/local/cuda/compat) was loaded" in clue.cause
    assert "start it with 'kedge run --nv', which leaves it out there" in clue.remedy


@about(14, 15)
def test_threads_older_libcuda_of_the_image_does_not_win() -> None:
    image = read_image(
        "own/image:1", CUDA_VERSION="11.6.1", CUDA_DRIVER_VERSION="510.47.03", TORCH_CUDA_ARCH_LIST="7.0 8.0 8.6+PTX"
    )  # fmt: skip
    verdict = ask(image, AMPERE, "525.60.13")
    assert verdict.outcome == NATIVE
    assert "kedge does not use the image's older libcuda 510.47.03, which can fail (error 803)" in tell(verdict)
