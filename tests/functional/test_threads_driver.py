# SPDX-License-Identifier: BSD-3-Clause
"""Users whose driver was too old, or refused by NVIDIA's requirement check: predicted, with the driver's number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.doctor.finding import NOTE
from kedge.answers.doctor.gpu.driver import check_driver
from kedge.answers.doctor.surroundings import Surroundings
from kedge.cli.main import main
from kedge.compat.verdict import MINOR, NO
from kedge.errors import ImageNotFound, WillNotRun
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import ALL, make_driver_tree, make_host, make_libraries
from tests.builders.images import make_config
from tests.builders.nvml import write_machine
from tests.builders.oci_images import make_tar
from tests.builders.user_threads import about, ask, case, read_image, start, tell
from tests.fakes.ngc import NgcSite, open_ngc
from tests.fakes.registry import FakeRegistry

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
    assert (note.level, note.what) == (
        NOTE,
        "CUDA toolkit 9.0.176 is installed (/usr/local/cuda-9.0), but driver 375.26 runs CUDA up to 8.0",
    )
    assert "not the host's toolkit or nvcc" in note.why


@about(3)
def test_threads_image_without_a_tag_is_a_question(ngc: NgcSite, capfd: pytest.CaptureFixture[str]) -> None:
    for verb in ("explain", "pull"):
        status, told = ask_kedge(capfd, verb, CUDA)
        assert status == ImageNotFound.exit_code
        assert "has no 'latest'" in told
        assert f"hint: list the tags: kedge tags {CUDA}" in told


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
    assert "CUDA 10.0.130 needs driver 410.48 or newer" in tell(verdict)
    assert "Take an image for CUDA 9.1 or older, ask the administrators for driver 410.48 or newer" in tell(verdict)


@pytest.mark.parametrize(
    ("gpu", "driver"), [case(9, "RTX 3090", "551.78"), case(10, "GeForce RTX 4060 Laptop GPU", "550.54.14")]
)
def test_threads_gate_that_refuses_what_would_run(ngc, capfd, gpu, driver):
    image = f"{CUDA}:12.8.1-base-ubuntu24.04"
    status, told = ask_kedge(capfd, "--json", "explain", image, "--gpu", gpu, "--driver", driver, "--check")
    verdict = json.loads(told)["verdict"]
    assert (status, verdict["outcome"]) == (0, MINOR)
    sentences = " ".join(f"{each['sentence']} {each['remedy']}" for each in verdict["judgements"])
    assert f"Driver {driver} is older than the 570.124.06 that CUDA 12.8.1 needs, but 525.60.13" in sentences
    assert f"refuse the image on {verdict['headline'].split(' on ')[1].split(' with ')[0]}" in sentences
    assert "requires cuda>=12.8 or one of the drivers it lists" in sentences
    assert "With docker, podman or enroot, set NVIDIA_DISABLE_REQUIRE=1." in sentences
    assert "take an image for CUDA 12.4 or older" in sentences


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
