# SPDX-License-Identifier: BSD-3-Clause
"""Users whose --nv brought in the wrong libraries, or none, or the wrong GPUs, or no part of one.

It cannot happen here, or it is said; what the scheduler chose holds inside, once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.answers.doctor.gpu import check_selection
from kedge.answers.doctor.image_check import judge_image
from kedge.answers.doctor.surroundings import WARNING, Surroundings
from kedge.answers.explain import explain
from kedge.base.reference import Reference
from kedge.compat.failures.find_clues import find_clues
from kedge.compat.verdict import NATIVE
from kedge.container.devices import plan_devices
from kedge.container.facts import LIBRARIES, Additions
from kedge.container.options import RunOptions
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders import payloads
from tests.builders.gpu_hosts import ALL, CUDA_IMAGE, NEUTRAL, make_driver_tree, make_elf, make_host, make_image
from tests.builders.nvml import make_gpu_tree, write_machine
from tests.builders.user_threads import TABLES, about, ask, case, make_node, read_image, start, tell
from tests.wording import assert_begins, assert_ends, assert_reads, assert_says

GNU = "/usr/lib/x86_64-linux-gnu"
ARM = "/usr/lib/aarch64-linux-gnu"
A100 = "NVIDIA A100-SXM4-40GB"


def name_libraries(additions: Additions) -> set[str]:
    return {name for _, name in additions.libraries}


@pytest.mark.parametrize(
    ("image_glibc", "host_glibc", "message"),
    [
        case(29, "2.28", "2.34", "version `GLIBC_2.34' not found (required by /.singularity.d/libs/libGLX.so.0)"),
        case(
            30, "2.31", "2.35", "version `GLIBC_2.34' not found (required by /.singularity.d/libs/libGLdispatch.so.0)"
        ),
        case(31, "2.31", "2.35", "version `GLIBC_2.34' not found (required by /.singularity.d/libs/libGL.so.1)"),
        case(
            32, "2.31", "2.41", "version `GLIBC_ABI_DT_RELR' not found (required by /.singularity.d/libs/libGLX.so.0)"
        ),
    ],
)
def test_threads_graphics_libraries_of_a_newer_host(image_glibc: str, host_glibc: str, message: str) -> None:
    system = {"2.28": "rockylinux8", "2.31": "ubuntu20.04"}[image_glibc]
    image = read_image(f"nvcr.io/nvidia/cuda:11.8.0-runtime-{system}", CUDA_VERSION="11.8.0")
    assert image.glibc.value == image_glibc
    verdict = ask(image, "NVIDIA GeForce RTX 3090", "525.60.13", glibc=host_glibc)
    assert verdict.outcome == NATIVE
    assert "With 'apptainer --nv'" in tell(verdict)
    assert_says(tell(verdict), "compat/glibc-not-found-mounts-drivers")
    drawing = make_image({f"{GNU}/libGLdispatch.so.0": make_elf()})  # an image that asks for graphics gets no more
    assert not name_libraries(start(make_node("525.60.13", A100), drawing)) & set(NEUTRAL)
    [clue] = find_clues(message)
    assert_says(clue.cause, "diagnose/library-host-brought-image", message.split("by ")[1][:-1])


@about(33)
def test_threads_same_image_gets_the_same_libraries_on_every_node() -> None:
    plain, other = make_driver_tree(models=(A100,)), make_driver_tree(models=(A100,))
    for name in NEUTRAL:
        del other[f"{GNU}/{name}"]
    assert name_libraries(start(make_host(plain))) == name_libraries(start(make_host(other)))


@about(34, 36)
def test_threads_no_list_grows_old() -> None:
    newer = {**ALL, "libnvidia-invented": "libnvidia-invented.so.1"}
    names = name_libraries(start(make_node("610.43.02", A100, libraries=newer)))
    assert {"libcudadebugger.so.1", "libnvidia-allocator.so.1", "libnvidia-invented.so.1"} <= names


@about(35)
def test_threads_libraries_of_the_host_come_after_the_images_own() -> None:
    # only where a libcuda of the image would win do the host's go first; test_environment.py has more
    image = payloads.make_image("LD_LIBRARY_PATH=/opt/app/lib")
    assert payloads.plan(image).environ["LD_LIBRARY_PATH"] == f"/opt/app/lib:{LIBRARIES}"
    env = f'{CUDA_IMAGE}export LD_LIBRARY_PATH="/opt/stubs"\n'
    stubs = make_image({"/opt/stubs/libcuda.so.1": make_elf()}, env)
    assert start(make_node("535.104.05", A100), stubs).prepend_library_path == [LIBRARIES]


@about(37)
def test_threads_library_path_that_is_set_anew() -> None:
    host = {"APPTAINERENV_LD_LIBRARY_PATH": "/opt/app/lib"}
    found = payloads.plan(payloads.make_image(), host).environ["LD_LIBRARY_PATH"]
    assert found == f"/opt/app/lib:{LIBRARIES}"
    [clue] = find_clues("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory")
    assert_says(clue.cause, "diagnose/ld-library-path-set-anew")
    assert "LD_LIBRARY_PATH=NEW:$LD_LIBRARY_PATH" in clue.remedy


@about(38)
def test_threads_ldconfig_is_not_asked() -> None:
    tree = make_driver_tree(models=(A100,))
    tree |= {"/nix/bin/ldconfig": "#!/bin/sh\nexit 1\n", "/etc/ld.so.cache": b"of another system"}
    additions = start(make_host(tree, PATH="/nix/bin:/usr/bin"))
    assert (f"{GNU}/libcuda.so.580.95.05", "libcuda.so.1") in additions.libraries
    assert additions.warnings == []


@about(39)
def test_threads_empty_libcuda_in_an_image(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / f"usr/lib/{GNU.rpartition('/')[2]}").mkdir(parents=True)
    (box / f"{GNU[1:]}/libcuda.so.1").write_bytes(b"")
    workplace = Workplace(Settings.load({"cache_directory": tmp_path / "cache"}, {"HOME": str(tmp_path)}))
    traits = explain(Reference.parse(str(box)), workplace, tables=TABLES).traits
    assert_says("\n".join(traits.notes), "compat/empty-image-made-container", "libcuda.so.1")
    [finding] = [each for each in judge_image(traits, None, None, {"HOME": str(tmp_path)}) if each.level == WARNING]
    assert_says(finding.fix, "doctor/delete-files-rebuild-image")
    image = make_image({f"{GNU}/libcuda.so.1": b"", "/etc/ld.so.conf": f"{GNU}\n"})
    assert start(make_node("535.104.05", A100), image).prepend_library_path == [LIBRARIES]
    [clue] = find_clues(f"ImportError: {GNU}/libcuda.so.1: file too short")
    assert "empty libcuda" in clue.cause


@about(40)
def test_threads_forgotten_nv_is_said() -> None:
    host = make_node("535.104.05", A100, environ={"CUDA_VISIBLE_DEVICES": "0"})
    [said] = plan_devices(RunOptions(), host, make_image()).warnings
    assert_ends(said, "run/add-nv-see-inside-container")


@about(41)
def test_threads_jetson_lends_its_files() -> None:
    # where its own lists are missing the directory is enough; the lists:
    # tests/unit/container/devices/nvidia/test_plan.py
    tree: dict[str, bytes | str | None] = {
        "/etc/nv_tegra_release": "# R32",
        f"{ARM}/tegra/libcuda.so.1.1": make_elf(),
        f"{ARM}/tegra/libcuda.so.1": "-> libcuda.so.1.1",
        "/dev/nvhost-gpu": "",
    }
    additions = start(make_host(tree, machine="aarch64"))
    assert "libcuda.so.1" in name_libraries(additions)
    assert additions.devices == ["/dev/nvhost-gpu"]
    assert additions.warnings == []


@about(42)
def test_threads_libraries_are_there_and_no_gpu_is() -> None:
    tree = make_driver_tree("535.104.05", (A100,))
    assert "libcuda.so.1" in name_libraries(start(make_host(tree)))
    refused = start(make_host(tree, refused=("/dev/nvidia0",)))
    assert_says(refused.warnings[0], "run/you-not-use-no-permission", "/dev/nvidia0")
    del tree["/dev/nvidia-uvm"]
    assert_says(start(make_host(tree)).warnings[0], "run/dev-nvidia-uvm-missing-cuda-does")


A100S = ("NVIDIA A100-SXM4-40GB",) * 4
PART = "MIG-5c1ba6c1-2f44-5b0e-b3a4-1f0d8b9d1c11"


def make_parts() -> dict[str, bytes | str | None]:
    """A node whose first card, /dev/nvidia3, is divided."""
    tree = make_driver_tree(models=A100S)
    for path, minor in (("gi1/access", 12), ("gi1/ci0/access", 13)):
        tree[f"/proc/driver/nvidia/capabilities/gpu3/mig/{path}"] = f"DeviceFileMinor: {minor}\n"
        tree[f"/dev/nvidia-caps/nvidia-cap{minor}"] = ""
    return tree


def prepare(tree: dict[str, bytes | str | None] | None = None, **given: object) -> Additions:
    environ = {name: str(value) for name, value in given.items() if name.isupper()}
    options = {name: value for name, value in given.items() if not name.isupper()}
    return start(make_host(tree or make_driver_tree(models=A100S), **environ), **options)


def list_cards(additions: Additions) -> list[str]:
    return [path for path in additions.devices if path.removeprefix("/dev/nvidia").isdigit()]


@about(43, 49, 50)
def test_threads_parts_of_mig_are_there_with_nvccli_and_without_its_program() -> None:
    for options in ({"nvccli": True}, {"nvccli": True, "contain": True}, {"nv": True, "contain": True}):
        additions = prepare(make_parts(), CUDA_VISIBLE_DEVICES=PART, **{"nv": False, **options})
        assert "/dev/nvidia-caps" in additions.devices
        assert additions.variables["CUDA_VISIBLE_DEVICES"] == PART
        assert additions.warnings == []
    for said in (
        "FATAL: nvidia-container-cli not allowed in setuid mode",
        'FATAL: path to "nvidia-container-cli" not set in singularity.conf',
    ):
        [clue] = find_clues(said)
        assert_begins(clue.remedy, "diagnose/leave-nvccli-out-nv-does")


@about(44)
def test_threads_nodes_that_a_part_needs() -> None:
    wanted = "MIG-GPU-01111111-2222-3333-4444-555555555555/1/0"
    devices = prepare(make_parts(), contain=True, CUDA_VISIBLE_DEVICES=wanted).devices
    caps = {"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"}
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3", *caps} <= set(devices)
    assert not {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"} & set(devices)


@about(45)
def test_threads_nvidia_smi_shows_all_and_it_is_said_why() -> None:
    [said] = prepare(arguments=["nvidia-smi"], CUDA_VISIBLE_DEVICES="1").warnings
    assert_reads(said, "run/nvidia-smi-ignores-shows-all-gpus", "CUDA_VISIBLE_DEVICES", 1, 4, 1)
    assert prepare(CUDA_VISIBLE_DEVICES="1").warnings == []
    assert prepare(arguments=["nvidia-smi"], CUDA_VISIBLE_DEVICES="0,1,2,3").warnings == []
    assert list_cards(prepare(arguments=["nvidia-smi"], contain=True, CUDA_VISIBLE_DEVICES="1")) == ["/dev/nvidia2"]


@about(46)
def test_threads_containall_keeps_the_schedulers_choice() -> None:
    additions = prepare(containall=True, cleanenv=True, contain=True, CUDA_VISIBLE_DEVICES="2")
    assert (list_cards(additions), additions.variables["CUDA_VISIBLE_DEVICES"]) == (["/dev/nvidia1"], "0")
    assert prepare(cleanenv=True, CUDA_VISIBLE_DEVICES="2").variables["CUDA_VISIBLE_DEVICES"] == "2"


@about(47)
def test_threads_variable_is_of_the_task_and_its_loss_is_said(tmp_path: Path) -> None:
    tasks = [prepare(contain=True, CUDA_VISIBLE_DEVICES=number, SLURM_PROCID=number) for number in ("0", "1")]
    assert [list_cards(each) for each in tasks] == [["/dev/nvidia3"], ["/dev/nvidia2"]]
    root = write_machine(tmp_path, make_gpu_tree(models=A100S))
    lost = {"SLURM_JOB_ID": "7", "SLURM_STEP_GPUS": "2"}
    [finding] = check_selection(Surroundings(lost, Settings.load(None, {"HOME": str(tmp_path)}), str(root)))
    assert finding.level == WARNING
    assert_reads(finding.what, "doctor/slurm-job-given-gpu-but", "CUDA_VISIBLE_DEVICES")
    assert "--export=NIL" in finding.why


@about(48)
def test_threads_two_variables_do_not_hide_a_gpu_twice() -> None:
    additions = prepare(contain=True, CUDA_VISIBLE_DEVICES="1", NVIDIA_VISIBLE_DEVICES="1")
    assert (list_cards(additions), additions.variables["CUDA_VISIBLE_DEVICES"]) == (["/dev/nvidia2"], "0")
    [clue] = find_clues("CUDA error: no CUDA-capable device is detected")
    assert_says(clue.cause, "diagnose/hidden-twice-nvidia-visible-devices")
