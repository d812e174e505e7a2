# SPDX-License-Identifier: BSD-3-Clause
"""--nv and --rocm where there is no GPU to be had: the sentence names the cause and the remedy, and nothing fails."""

from __future__ import annotations

from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from tests.builders.gpu_hosts import (
    ALL,
    UTILITY,
    X86,
    make_cache,
    make_driver_tree,
    make_host,
    make_image,
    make_libraries,
)
from tests.builders.rows import each_row

Tree = dict[str, bytes | str | None]


def warnings_of(tree: Tree, refused: tuple[str, ...] = (), **environ: str) -> list[str]:
    host = make_host(tree, refused=refused, **environ)
    return plan_devices(RunOptions(nv=True), host, make_image()).warnings


def bare(**more: str) -> Tree:
    return {"/dev/null": "", "/proc/sys/kernel/hostname": "login1\n", **more}


def test_missing_no_gpu_at_all() -> None:
    (said,) = warnings_of(bare())
    assert "login1 has no NVIDIA GPU" in said
    assert "without --nv" in said


def test_missing_driver_is_not_mistaken_for_the_cuda_toolkit() -> None:
    place = "/usr/local/cuda-13.0/lib/libnvperf_host.so"
    tree = bare(**{place: "", "/etc/ld.so.cache": make_cache([(X86, "libnvperf_host.so", place)])})  # type: ignore[arg-type]
    plan = plan_devices(RunOptions(nv=True), make_host(tree), make_image())
    assert "login1 has no NVIDIA GPU" in plan.warnings[0]
    assert plan.libraries == []


def test_missing_login_node_is_recognised() -> None:
    (said,) = warnings_of(bare(**{"/usr/bin/sbatch": "#!"}))
    assert "login node" in said
    assert "--gres=gpu:1" in said


@each_row(
    ("variables", "remedy"),
    [
        ({"SLURM_JOB_ID": "5"}, "--gres=gpu:1"),
        ({"PBS_JOBID": "5.server"}, "ngpus=1"),
        ({"SGE_ROOT": "/opt/sge", "JOB_ID": "5"}, "-l gpu=1"),
        ({"LSB_JOBID": "5"}, "-gpu num=1"),
    ],
)
def test_missing_job_without_gpus_is_told_how_to_ask(variables: dict[str, str], remedy: str) -> None:
    (said,) = warnings_of(bare(), **variables)
    assert remedy in said


def test_missing_job_that_asked_blames_the_node() -> None:
    said = warnings_of(bare(), SLURM_JOB_ID="5", SLURM_JOB_GPUS="0")
    assert "may be broken" in said[0]


def test_missing_module_with_a_card_on_the_bus() -> None:
    device = "/sys/bus/pci/devices/0000:19:00.0"
    (said,) = warnings_of(bare(**{f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030200\n"}))
    assert "has an NVIDIA GPU, but the kernel module" in said


def test_missing_nodes_are_named() -> None:
    tree = {path: x for path, x in make_driver_tree().items() if not path.startswith("/dev/nvidia")}
    (said,) = warnings_of(tree)
    assert "/dev/nvidia0 is missing" in said
    assert "nvidia-modprobe" in said


def test_missing_uvm_is_named() -> None:
    tree = make_driver_tree()
    del tree["/dev/nvidia-uvm"]
    (said,) = warnings_of(tree)
    assert "/dev/nvidia-uvm" in said


def test_missing_permission_in_a_job() -> None:
    (said,) = warnings_of(make_driver_tree(), refused=("/dev/nvidia0",), SLURM_JOB_ID="7")
    assert "this Slurm job was given none" in said
    assert "--gres=gpu:1" in said


def test_missing_permission_outside_a_job() -> None:
    (said,) = warnings_of(make_driver_tree(), refused=("/dev/nvidia0",))
    assert "you may not use them" in said


def test_missing_libraries_of_another_version() -> None:
    tree = make_driver_tree(library_version="575.57.08")
    (said,) = warnings_of(tree)
    assert "580.95.05" in said
    assert "575.57.08" in said
    assert "rebooted" in said


def test_missing_stale_libraries_beside_the_right_ones_do_not_matter() -> None:
    tree = make_driver_tree() | make_libraries("470.57.02", "/usr/lib64", ALL)
    names = [name for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    folders = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")
    tree["/etc/ld.so.cache"] = make_cache([(0x0303, name, f"{folder}/{name}") for folder in folders for name in names])
    host = make_host(tree)
    additions = plan_devices(RunOptions(nv=True), host, make_image())
    assert additions.warnings == []
    assert all("580.95.05" in path for path, _ in additions.libraries)


def test_missing_libraries_altogether() -> None:
    tree = make_driver_tree(libraries={})
    (said,) = warnings_of(tree)
    assert "no libraries of NVIDIA driver 580.95.05" in said
    assert "LD_LIBRARY_PATH" in said


def test_missing_compute_part() -> None:
    (said,) = warnings_of(make_driver_tree(libraries=UTILITY))
    assert "libcuda.so.580.95.05" in said


def test_missing_gpu_still_gives_what_there_is() -> None:
    refused, whole = (make_host(make_driver_tree(), refused=refused) for refused in (("/dev/nvidia0",), ()))
    libraries = [plan_devices(RunOptions(nv=True), host, make_image()).libraries for host in (refused, whole)]
    assert len(libraries[0]) > 20
    assert libraries[0] == libraries[1]


def test_rocm_takes_devices_libraries_and_programs() -> None:
    names = ("libhsa-runtime64.so.1", "libamdhip64.so.6", "librocm_smi64.so.7", "libdrm_amdgpu.so.1", "libc.so.6")
    tree: Tree = {f"/opt/rocm/lib/{name}": b"" for name in names}
    tree["/etc/ld.so.cache"] = make_cache([(0x0303, name, f"/opt/rocm/lib/{name}") for name in names])
    tree |= {"/dev/kfd": "", "/dev/dri/renderD128": "", "/opt/rocm/bin/rocm-smi": "#!"}
    host = make_host(tree, ROCR_VISIBLE_DEVICES="1")
    additions = plan_devices(RunOptions(rocm=True), host, make_image())
    assert additions.devices == ["/dev/kfd", "/dev/dri"]
    assert {name for _, name in additions.libraries} == set(names) - {"libc.so.6"}
    assert [bind.destination for bind in additions.binds] == ["/usr/bin/rocm-smi"]
    assert additions.variables == {"ROCR_VISIBLE_DEVICES": "1"}
    assert additions.warnings == []


@each_row(
    ("tree", "refused", "part"),
    [
        ({}, (), "no /dev/kfd"),
        ({"/sys/module/amdgpu/version": "6"}, (), "without compute"),
        ({"/dev/kfd": ""}, ("/dev/kfd",), "'render' or 'video'"),
        ({"/dev/kfd": "", "/dev/dri/card0": ""}, (), "no renderD node"),
    ],
)
def test_rocm_missing_is_explained(tree: Tree, refused: tuple[str, ...], part: str) -> None:
    host = make_host(tree, refused=refused)
    (said,) = plan_devices(RunOptions(rocm=True), host, make_image()).warnings
    assert part in said
    assert plan_devices(RunOptions(rocm=True, no_rocm=True), host, make_image()).warnings == []
