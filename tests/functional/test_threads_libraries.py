# SPDX-License-Identifier: BSD-3-Clause
"""Users whose --nv brought in the wrong libraries, or none: it cannot happen here, or it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.answers.doctor.image_check import judge_image
from kedge.answers.doctor.surroundings import WARNING
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
from tests.builders.user_threads import TABLES, about, ask, case, make_node, read_image, start, tell

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
    assert "'GLIBC_2.34 not found'. kedge mounts the driver's own libraries only" in tell(verdict)
    drawing = make_image({f"{GNU}/libGLdispatch.so.0": make_elf()})  # an image that asks for graphics gets no more
    assert not name_libraries(start(make_node("525.60.13", A100), drawing)) & set(NEUTRAL)
    [clue] = find_clues(message)
    assert f"a library of the host, {message.split('by ')[1][:-1]}, was brought into an image" in clue.cause


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
    assert "LD_LIBRARY_PATH was set anew and lost /.singularity.d/libs" in clue.cause
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
    assert any("libcuda.so.1 is empty: the image was made in a container" in note for note in traits.notes)
    [finding] = [each for each in judge_image(traits, None, None, {"HOME": str(tmp_path)}) if each.level == WARNING]
    assert "delete these files and rebuild the image" in finding.fix
    image = make_image({f"{GNU}/libcuda.so.1": b"", "/etc/ld.so.conf": f"{GNU}\n"})
    assert start(make_node("535.104.05", A100), image).prepend_library_path == [LIBRARIES]
    [clue] = find_clues(f"ImportError: {GNU}/libcuda.so.1: file too short")
    assert "empty libcuda" in clue.cause


@about(40)
def test_threads_forgotten_nv_is_said() -> None:
    host = make_node("535.104.05", A100, environ={"CUDA_VISIBLE_DEVICES": "0"})
    [said] = plan_devices(RunOptions(), host, make_image()).warnings
    assert said.endswith("add --nv to see it inside the container.")


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
    assert "you may not use them (no permission for /dev/nvidia0)" in refused.warnings[0]
    del tree["/dev/nvidia-uvm"]
    assert "/dev/nvidia-uvm is missing, and CUDA does not start without it." in start(make_host(tree)).warnings[0]
