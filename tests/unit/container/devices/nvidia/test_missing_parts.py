# SPDX-License-Identifier: BSD-3-Clause
"""--nv and --rocm where there is no GPU to be had: the sentence names the cause and the remedy, and nothing fails."""

from __future__ import annotations

from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from tests.builders import gpu_hosts as hosts
from tests.builders.rows import with_rows
from tests.wording import assert_says

Tree = dict[str, bytes | str | None]


def warnings_of(tree: Tree, refused: tuple[str, ...] = (), **environ: str) -> list[str]:
    host = hosts.make_host(tree, refused=refused, **environ)
    return plan_devices(RunOptions(nv=True), host, hosts.make_image()).warnings


def bare(**more: str) -> Tree:
    return {"/dev/null": "", "/proc/sys/kernel/hostname": "login1\n", **more}


BUS, CLOSED = "/sys/bus/pci/devices/0000:19:00.0", {"refused": ("/dev/nvidia0",)}
WHOLE = hosts.make_driver_tree()


@with_rows(
    (bare(), {}, ["login1 has no NVIDIA GPU", "without --nv"]),
    (bare(**{"/usr/bin/sbatch": "#!"}), {}, ["login node", "--gres=gpu:1"]),
    (bare(), {"SLURM_JOB_ID": "5"}, ["--gres=gpu:1"]),
    (bare(), {"PBS_JOBID": "5.server"}, ["ngpus=1"]),
    (bare(), {"SGE_ROOT": "/opt/sge", "JOB_ID": "5"}, ["-l gpu=1"]),
    (bare(), {"LSB_JOBID": "5"}, ["-gpu num=1"]),
    (bare(), {"SLURM_JOB_ID": "5", "SLURM_JOB_GPUS": "0"}, ["may be broken"]),
    (
        bare(**{f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x030200\n"}),
        {},
        ["has an NVIDIA GPU, but the kernel module"],
    ),
    (
        {path: x for path, x in WHOLE.items() if not path.startswith("/dev/nvidia")},
        {},
        ["/dev/nvidia0 is missing", "nvidia-modprobe"],
    ),
    ({path: x for path, x in WHOLE.items() if path != "/dev/nvidia-uvm"}, {}, ["/dev/nvidia-uvm"]),
    (WHOLE, {**CLOSED, "SLURM_JOB_ID": "7"}, ["this Slurm job was given none", "--gres=gpu:1"]),
    (WHOLE, CLOSED, ["you may not use them"]),
    (hosts.make_driver_tree(library_version="575.57.08"), {}, ["580.95.05", "575.57.08", "rebooted"]),
    (hosts.make_driver_tree(libraries={}), {}, ["no libraries of NVIDIA driver 580.95.05", "LD_LIBRARY_PATH"]),
    (hosts.make_driver_tree(libraries=hosts.UTILITY), {}, ["libcuda.so.580.95.05"]),
)
def test_missing_part_is_named_with_the_remedy(tree, around, parts) -> None:
    (said,) = warnings_of(tree, **around)
    assert [part for part in parts if part not in said] == []


def test_missing_driver_is_not_mistaken_for_other_libraries() -> None:
    place = "/usr/local/cuda-13.0/lib/libnvperf_host.so"
    tree = bare(**{place: "", "/etc/ld.so.cache": hosts.make_cache([(hosts.X86, "libnvperf_host.so", place)])})  # type: ignore[arg-type]
    plan = plan_devices(RunOptions(nv=True), hosts.make_host(tree), hosts.make_image())
    assert_says(plan.warnings[0], "compat/no-nvidia-gpu", "login1")
    assert plan.libraries == []
    tree = hosts.make_driver_tree() | hosts.make_libraries("470.57.02", "/usr/lib64", hosts.ALL)
    folders, names = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu"), ("libcuda.so.1", "libnvidia-ml.so.1")
    tree["/etc/ld.so.cache"] = hosts.make_cache(
        [(0x0303, name, f"{folder}/{name}") for folder in folders for name in names]
    )
    additions = plan_devices(RunOptions(nv=True), hosts.make_host(tree), hosts.make_image())
    assert additions.warnings == []
    assert all("580.95.05" in path for path, _ in additions.libraries)
    refused, whole = (hosts.make_host(hosts.make_driver_tree(), refused=refused) for refused in (("/dev/nvidia0",), ()))
    libraries = [plan_devices(RunOptions(nv=True), host, hosts.make_image()).libraries for host in (refused, whole)]
    assert len(libraries[0]) > 20
    assert libraries[0] == libraries[1]


def test_rocm_takes_devices_libraries_and_programs() -> None:
    names = ("libhsa-runtime64.so.1", "libamdhip64.so.6", "librocm_smi64.so.7", "libdrm_amdgpu.so.1", "libc.so.6")
    tree: Tree = {f"/opt/rocm/lib/{name}": b"" for name in names}
    tree["/etc/ld.so.cache"] = hosts.make_cache([(0x0303, name, f"/opt/rocm/lib/{name}") for name in names])
    tree |= {"/dev/kfd": "", "/dev/dri/renderD128": "", "/opt/rocm/bin/rocm-smi": "#!"}
    host = hosts.make_host(tree, ROCR_VISIBLE_DEVICES="1")
    additions = plan_devices(RunOptions(rocm=True), host, hosts.make_image())
    assert additions.devices == ["/dev/kfd", "/dev/dri"]
    assert {name for _, name in additions.libraries} == set(names) - {"libc.so.6"}
    assert [bind.destination for bind in additions.binds] == ["/usr/bin/rocm-smi"]
    assert (additions.variables, additions.warnings) == ({"ROCR_VISIBLE_DEVICES": "1"}, [])


@with_rows(
    ({}, (), "no /dev/kfd"),
    ({"/sys/module/amdgpu/version": "6"}, (), "without compute"),
    ({"/dev/kfd": ""}, ("/dev/kfd",), "'render' or 'video'"),
    ({"/dev/kfd": "", "/dev/dri/card0": ""}, (), "no renderD node"),
)
def test_rocm_missing_is_explained(tree: Tree, refused: tuple[str, ...], part: str) -> None:
    host = hosts.make_host(tree, refused=refused)
    (said,) = plan_devices(RunOptions(rocm=True), host, hosts.make_image()).warnings
    assert part in said
    assert plan_devices(RunOptions(rocm=True, no_rocm=True), host, hosts.make_image()).warnings == []
