# SPDX-License-Identifier: BSD-3-Clause
"""Which libcuda runs: the host's or the image's, over drivers, cards, notes in the library, and damaged libraries."""

from __future__ import annotations

from kedge.compat.rules.libcuda_choice import cuda_major, is_data_center
from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from tests.builders.gpu_hosts import make_compat_image, make_compat_library, make_driver_tree, make_host, make_image
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_says

NOTE_575 = {"format": 1, "CUDA version": "12.9", "driver": [535, 550, 560, 565, 570, 575], "device": [1, 2, 7]}
NOTE_590 = {"Format": 1, "CUDA Version": "13.1", "Driver": [535, 550, 570, 575, 580, 590]}
COMPAT = "/usr/local/cuda/compat"
LIBS = "/.singularity.d/libs"


def plan(image, version: str, *models: str):
    host = make_host(make_driver_tree(version, models or ("NVIDIA A100-SXM4-80GB",)))
    return plan_devices(RunOptions(nv=True, force=True), host, image)  # what is refused without it: test_preflight


def test_compat_newer_of_both_is_used_and_the_reason_said() -> None:
    additions = plan(make_compat_image("575.57.08", NOTE_575), "580.95.05")
    assert additions.prepend_library_path == []
    reason = "host libcuda 580.95.05 is used: it is newer than the image's compat libraries (575.57.08)"
    assert reason in additions.notes
    additions = plan(make_compat_image("575.57.08", NOTE_575), "535.216.01")
    assert additions.prepend_library_path == [COMPAT]
    assert_says("\n".join(additions.notes), "run/libcuda-image-used", "575.57.08")
    assert additions.warnings == []
    additions = plan(make_compat_image("590.44.01", NOTE_590), "565.57.01")
    assert additions.prepend_library_path == []
    assert any("535, 550, 570, 575, 580, 590" in note for note in additions.notes)
    assert any("needs CUDA 13" in text and "supports CUDA 12" in text for text in additions.warnings)
    additions = plan(make_image(), "580.95.05")
    assert additions.prepend_library_path == []
    assert not any("compat" in note for note in additions.notes)


def newer(note: object = NOTE_575, *place: str):
    return make_compat_image("575.57.08", note, *place)


NESTED = make_compat_library(None).replace(b"null\0", b"[[[[\0")
NONSENSE = (
    *([], "text", 5, {"driver": "535"}, {"driver": [None]}, {"driver": [], "CUDA version": 12}, {"driver": [[535]]}),
)


@with_rows(
    (newer(NOTE_575, f"{COMPAT}/lib", f"{COMPAT}/lib:/usr/local/nvidia/lib64"), "580.95.05", [], [LIBS]),
    (newer(), "575.51.03", [], [COMPAT]),  # the same branch, but newer, and listed
    (newer(), "535.54.03", ["NVIDIA A100-SXM4-80GB", "NVIDIA TITAN RTX"], []),
    *((newer(None), version, [], [COMPAT][:used]) for version, used in (("535.54.03", 1), ("575.51.03", 0))),
    (newer(None), "580.95.05", [], []),  # without a note majors decide
    (newer(NOTE_575, f"{COMPAT}/lib.real"), "535.54.03", [], [f"{COMPAT}/lib.real"]),
    (newer(NOTE_575, "/usr/local/cuda-12.9/compat"), "535.54.03", [], ["/usr/local/cuda-12.9/compat"]),
    # one of another's on the image's path, and a link out of the image
    (
        make_image({"/opt/old/libcuda.so.1": b""}, 'export LD_LIBRARY_PATH="/opt/old:/usr/lib"\n'),
        "580.95.05",
        [],
        [LIBS],
    ),
    (make_image({"/usr/local/cuda/compat": "-> /../../../../etc"}), "535.54.03", [], []),
    # a note that is nonsense counts as none
    *(
        (newer(told), "535.54.03", [], [COMPAT])
        for told in (*NONSENSE, {"CUDA version": "x.y"}, {"CUDA version": "9" * 9})
    ),
    (make_image({f"{COMPAT}/libcuda.so.575.57.08": NESTED}), "535.54.03", [], [COMPAT]),
)
def test_compat_library_path_leads_to_the_chosen_libcuda(image, version, models, expected) -> None:
    assert plan(image, version, *models).prepend_library_path == expected


def test_compat_cards_that_newer_libraries_do_not_drive_take_the_host() -> None:
    image = make_compat_image("575.57.08", NOTE_575, library_path=COMPAT)
    additions = plan(image, "550.54.14", "NVIDIA GeForce RTX 4090")
    assert additions.prepend_library_path == [LIBS]
    assert any("GeForce RTX 4090" in note for note in additions.notes)
    assert additions.warnings == []  # CUDA 12 runs on CUDA 12
    additions = plan(make_compat_image("590.44.01", NOTE_590), "550.54.14", "NVIDIA GeForce RTX 4090")
    assert_says("\n".join(additions.warnings), "run/gpu-programs-image-fail-node")
    note = {"format": 1, "CUDA version": "11.8", "driver": [450, 470, 510, 515, 520]}
    additions = plan(make_compat_image("520.61.05", note), "470.82.01", "Tesla K80")
    assert additions.prepend_library_path == []
    assert_says("\n".join(additions.notes), "run/no-longer-support-gpu-node")
    assert plan(make_compat_image("520.61.05", note), "470.82.01", "Tesla V100-SXM2-16GB").prepend_library_path == [
        COMPAT
    ]
    tree = {path: x for path, x in make_driver_tree("535.54.03").items() if "/gpus/" not in path}
    options = RunOptions(nv=True)
    same = plan_devices(options, make_host(tree), make_compat_image("575.57.08", NOTE_575))
    assert same.prepend_library_path == []
    newer = plan_devices(options, make_host(tree), make_compat_image("590.44.01", NOTE_590))
    assert newer.prepend_library_path == [COMPAT]


def test_compat_libcuda_in_the_images_system_folders_is_overruled() -> None:
    tree: dict[str, bytes | str | None] = {"/usr/lib64/libcuda.so.1": b"", "/etc/ld.so.cache": b"cache"}
    additions = plan(make_image(tree), "580.95.05")
    assert additions.prepend_library_path == [LIBS]
    assert any("/usr/lib64" in note for note in additions.notes)


@with_rows(
    *("Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA A10G", "NVIDIA L40S", "NVIDIA H200"),
    *("NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA B200", "NVIDIA A2", "GRID A100-40C"),
    *("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA L4", "Tesla P100-PCIE-16GB", "NVIDIA A40"),
)
def test_compat_data_center_cards(model: str) -> None:
    assert is_data_center(model)


@with_rows(
    *("NVIDIA GeForce RTX 4090", "GeForce GTX 1080 Ti", "NVIDIA TITAN RTX", "TITAN V", "Quadro RTX 6000"),
    *("NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation", "NVIDIA T1000", "NVIDIA GB10", "Quadro P6000"),
    *("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA T400", "", "Graphics Device", "Orin (nvgpu)"),
)
def test_compat_other_cards(model: str) -> None:
    assert not is_data_center(model)


@each_row(("branch", "cuda"), [(610, 13), (580, 13), (575, 12), (525, 12), (520, 11), (450, 11), (440, 10), (300, 0)])
def test_compat_driver_branches_run_cuda_majors(branch: int, cuda: int) -> None:
    assert cuda_major(branch) == cuda
