# SPDX-License-Identifier: BSD-3-Clause
"""Users whose driver was too old or refused by NVIDIA's requirement check, or who met errors 802 to 804.

The driver is predicted with its number; whose libcuda runs is decided before a program starts, and said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.doctor.gpu import check_driver, check_fabric, check_libraries
from kedge.answers.doctor.surroundings import NOTE, WARNING, Surroundings
from kedge.answers.explain import Explanation
from kedge.cli.explain import list_lines
from kedge.cli.main import main
from kedge.compat.failures.find_clues import find_clues
from kedge.compat.verdict import MINOR, NATIVE, NO
from kedge.container.facts import LIBRARIES
from kedge.errors import ImageNotFound, WillNotRun
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import ALL, make_compat_image, make_driver_tree, make_elf, make_host, make_libraries
from tests.builders.images import make_config
from tests.builders.nvml import FOLDER, make_gpu_tree, write_machine
from tests.builders.oci_images import make_tar
from tests.builders.user_threads import TABLES, about, ask, case, make_node, read_image, start, tell
from tests.fakes.ngc import NgcSite, open_ngc
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_reads, assert_says

CUDA = "nvcr.io/nvidia/cuda"
WIDE = "cuda>=11.6 brand=tesla,driver>=450,driver<451 brand=tesla,driver>=460,driver<461"
NARROW = "cuda>=11.6 brand=tesla,driver>=470,driver<471"


@pytest.fixture(scope="module", name="site")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    with open_ngc(tmp_path_factory.mktemp("ngc")) as site:
        yield site


@pytest.fixture
def ngc(site: NgcSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NgcSite:
    for name, value in {**site.environment, "HOME": str(tmp_path), "KEDGE_ARCH": "amd64"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return site


def ask_kedge(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(list(words))
    printed = capfd.readouterr()
    return status, printed.out + printed.err


@pytest.mark.parametrize(
    ("tag", "node", "words"),
    [
        case(
            1,
            *("9.0-base-ubuntu16.04", ("GTX 1080 Ti", "375.26")),
            ["CUDA 9.0.176 needs driver 384.81 or newer", "Take an image for CUDA 8.0 or older"],
        ),
        case(
            4,
            *("11.4.3-base-ubuntu20.04", ("GTX 1080 Ti", "440.100")),
            ["ask the administrators for driver 450.80.02 or newer", "docker, podman and enroot refuse the image"],
        ),
        case(
            7,
            *("10.2-devel-ubuntu18.04", ("GTX 1080 Ti", "418.87.00")),
            ["CUDA 10.2.89 needs driver 440.33 or newer", "Take an image for CUDA 10.1 or older"],
        ),
    ],
)
def test_threads_driver_that_is_too_old_is_told_by_number(ngc, capfd, tag, node, words):
    gpu, driver = node
    status, told = ask_kedge(capfd, "explain", f"{CUDA}:{tag}", "--gpu", gpu, "--driver", driver, "--check")
    assert status == WillNotRun.exit_code
    for each in (*words, f"driver {driver} is too old", "error 35"):
        assert each in told
    assert f"-> Take {CUDA}:" in told, "a tag that does run"


@about(2)
def test_threads_toolkit_of_the_host_makes_no_difference(tmp_path: Path) -> None:
    tree = make_driver_tree("375.26", ("GeForce GTX 1080 Ti",))
    tree["/usr/local/cuda-9.0/version.txt"] = "CUDA Version 9.0.176\n"
    root = write_machine(tmp_path, tree, has_nvml=False)
    here = Surroundings({}, Settings.load(None, {"HOME": str(tmp_path)}), str(root))
    note = check_driver(here)[-1]
    assert note.level == NOTE
    assert_reads(
        note.what, "doctor/cuda-toolkit-installed-but-driver", "9.0.176", "/usr/local/cuda-9.0", "375.26", "8.0"
    )
    assert_says(note.why, "doctor/not-hosts-toolkit-nvcc")


@about(3)
def test_threads_image_without_a_tag_is_a_question(ngc: NgcSite, capfd: pytest.CaptureFixture[str]) -> None:
    for verb in ("explain", "pull"):
        status, told = ask_kedge(capfd, verb, CUDA)
        assert status == ImageNotFound.exit_code
        assert "has no 'latest'" in told
        assert_says(told, "pull/list-tags-tags", CUDA)


def add_build(registry: FakeRegistry, requires: str) -> str:
    layer = make_tar({"bin/true": b"x"})
    variables = ["CUDA_VERSION=11.6.2", f"NVIDIA_REQUIRE_CUDA={requires}"]
    return str(registry.add_image("team/cuda", "11.6", [layer], make_config([layer], {"Env": variables}, "amd64")))


@about(5, 6)
def test_threads_tag_that_was_built_anew_is_told_from_the_digest(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    node = ("--gpu", "V100", "--driver", "460.32.03", "--arch", "amd64")
    refused = "docker, podman and enroot refuse the image on Tesla V100 with driver 460.32.03"
    with FakeRegistry() as registry:
        digest, name = add_build(registry, WIDE), f"{registry.host}/team/cuda"
        _, told = ask_kedge(capfd, "explain", f"docker://{name}:11.6", *node)
        assert f"Pinned name         {name}@{digest}" in told
        assert refused not in told
        add_build(registry, NARROW)
        _, told = ask_kedge(capfd, "explain", f"docker://{name}:11.6", *node)
        assert refused in told
        assert "kedge and 'apptainer --nv' do not check that, and start it." in told
        assert "set NVIDIA_DISABLE_REQUIRE=1" in told
        _, told = ask_kedge(capfd, "explain", f"docker://{name}@{digest}", *node)
        assert refused not in told


@about(8)
def test_threads_message_without_advice_is_put_in_words() -> None:
    image = read_image("xilinx/vitis-ai:gpu", CUDA_VERSION="10.0.130", NVIDIA_REQUIRE_CUDA="cuda>=10.0")
    verdict = ask(image, "GeForce GTX 1080 Ti", "390.46")
    assert verdict.outcome == NO
    assert_says(tell(verdict), "compat/needs-driver-newer", "CUDA 10.0.130", "410.48")
    assert_says(tell(verdict), "compat/take-image-cuda-older-ask")


@pytest.mark.parametrize(
    ("gpu", "driver"), [case(9, "RTX 3090", "551.78"), case(10, "GeForce RTX 4060 Laptop GPU", "550.54.14")]
)
def test_threads_gate_that_refuses_what_would_run(ngc, capfd, gpu, driver):
    image = f"{CUDA}:12.8.1-base-ubuntu24.04"
    status, told = ask_kedge(capfd, "--json", "explain", image, "--gpu", gpu, "--driver", driver, "--check")
    verdict = json.loads(told)["verdict"]
    assert (status, verdict["outcome"]) == (0, MINOR)
    sentences = " ".join(f"{each['sentence']} {each['remedy']}" for each in verdict["judgements"])
    assert_says(sentences, "compat/driver-older-cuda-needs-but", driver, "570.124.06")
    assert_says(sentences, "compat/refuse-image", verdict["headline"].split(" on ")[1].split(" with ")[0])
    assert_says(sentences, "doctor/requires-cuda-one-drivers-lists")
    assert_says(sentences, "compat/docker-podman-enroot-set-nvidia")
    assert_says(sentences, "compat/take-image-older", "CUDA 12.4")


@about(11)
def test_threads_tag_is_chosen_for_the_driver(ngc: NgcSite, capfd: pytest.CaptureFixture[str]) -> None:
    status, told = ask_kedge(capfd, "recommend", "cuda", "--gpu", "GTX 1080 Ti", "--driver", "551.78")
    assert status == 0
    assert f"\n{CUDA}:12.4.1-devel-ubuntu22.04\n" in f"\n{told}"


@about(12)
def test_threads_libraries_are_those_of_the_running_module() -> None:
    # leftovers of an older driver, which the loader's cache lists first
    folder = "/usr/lib/x86_64-linux-gnu"
    tree = {**make_driver_tree("535.104.05", ("Tesla V100-SXM2-32GB",)), **make_libraries("525.60.13", folder, ALL)}
    for soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
        tree[f"{folder}/{soname}"] = f"-> {soname.removesuffix('.1')}.535.104.05"
    taken = {path for path, name in start(make_host(tree)).libraries if name.startswith("libcuda.so")}
    assert taken == {f"{folder}/libcuda.so.535.104.05"}


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
    assert_says(tell(verdict), "compat/runs-data-center-gpus-only-fails", gpu)
    assert "ask the administrators for driver" in tell(verdict) or "or driver 545.23.08 or newer" in tell(verdict)


@about(14)
def test_threads_libcuda_of_the_image_does_not_win_on_geforce() -> None:
    # the image's own path names its compat folder first; test_libcuda.py has the other cards
    image = make_compat_image("575.57.08", None, COMPAT, f"{COMPAT}:/usr/local/nvidia/lib64")
    additions = start(make_node("535.104.05", AMPERE), image)
    assert additions.prepend_library_path == [LIBRARIES]
    assert_says("\n".join(additions.notes), "run/run-data-center-gpus-only-not", AMPERE)


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
    assert_says(finding.what, "doctor/another-libcuda-drivers", "580.95.05", COMPAT, "590.44.01")
    assert "803 or 804" in finding.why
    assert f"remove {COMPAT} from LD_LIBRARY_PATH" in finding.fix
    assert FOLDER not in finding.what


@about(19)
def test_threads_error_802_is_another_thing_than_804(tmp_path: Path) -> None:
    said = "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before? Error {}"
    [first] = find_clues(said.format("802: system not yet initialized"))
    [second] = find_clues(said.format("804: forward compatibility was attempted on non supported HW"))
    assert_says(first.cause, "diagnose/fabric-manager-does-not-run")
    assert_says(second.cause, "compat/runs-data-center-gpus-only")
    assert_says(second.remedy, "diagnose/recommend-image-gpu-gpu-driver")
    root = write_machine(tmp_path, {**make_gpu_tree(), "/dev/nvidia-nvswitchctl": ""})
    [finding] = check_fabric(Surroundings({}, Settings.load(None, {"HOME": str(tmp_path)}), str(root)))
    assert "802" in finding.why


@about(20)
def test_threads_least_driver_of_an_image_is_told() -> None:
    told = "\n".join(list_lines(Explanation(read_image("nvcr.io/nvidia/pytorch:24.01-py3")), TABLES))
    needs = told.partition("Driver required")[2].partition("GPU required")[0]
    assert needs.split()[0] == "545.23.08"
    assert_says(needs, "compat/newer-minor-version-compatibility", "525.60.13")
    assert_says(needs, "compat/data-center-gpus")


@about(21)
def test_threads_error_804_in_the_words_of_another_library() -> None:
    [clue] = find_clues(
        "[E:onnxruntime] CUDA failure 804: forward compatibility was attempted on non supported HW ; GPU=0 ; expr="
    )
    assert_says(clue.cause, "diagnose/libcuda-image-usr-local-cuda")
    assert_says(clue.remedy, "diagnose/start-run-nv-leaves-out")


@about(14, 15)
def test_threads_older_libcuda_of_the_image_does_not_win() -> None:
    image = read_image(
        "own/image:1", CUDA_VERSION="11.6.1", CUDA_DRIVER_VERSION="510.47.03", TORCH_CUDA_ARCH_LIST="7.0 8.0 8.6+PTX"
    )  # fmt: skip
    verdict = ask(image, AMPERE, "525.60.13")
    assert verdict.outcome == NATIVE
    assert "kedge does not use the image's older libcuda 510.47.03, which can fail (error 803)" in tell(verdict)
