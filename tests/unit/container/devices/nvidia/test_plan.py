# SPDX-License-Identifier: BSD-3-Clause
"""--nv: which libraries, programs, files and devices of a host a container gets."""

from __future__ import annotations

import os
import subprocess
import sys

from kedge.container.devices import plan_devices
from kedge.container.devices.nvidia.plan import list_programs
from kedge.container.facts import Additions, HostFacts, ImageFacts
from kedge.container.options import RunOptions
from kedge.system.views import DirectoryView, TableView
from tests.builders import gpu_hosts as hosts
from tests.builders.nvml import make_gpu_tree, write_machine
from tests.builders.rows import each_row, with_rows
from tests.requirements import REPOSITORY

GNU = "/usr/lib/x86_64-linux-gnu"


def plan(host: HostFacts, image: ImageFacts | None = None, **options: object) -> Additions:
    return plan_devices(RunOptions(**{"nv": True, **options}), host, image or hosts.make_image())


def names_of(additions: Additions) -> dict[str, str]:
    return {name: path for path, name in additions.libraries}


def stems_of(additions: Additions) -> set[str]:
    return {name.partition(".so")[0] for _, name in additions.libraries}


def test_nvidia_data_center_host_gives_the_drivers_files() -> None:
    additions = plan(hosts.make_host(hosts.make_driver_tree()))
    names = names_of(additions)
    assert stems_of(additions) == set(hosts.COMPUTE) | set(hosts.UTILITY)
    for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.580.95.05"):
        assert names[name] == f"{GNU}/libcuda.so.580.95.05"
    assert names["libnvidia-nvvm.so.4"] == f"{GNU}/libnvidia-nvvm.so.580.95.05"
    assert "libnvidia-nvvm.so.1" not in names
    assert not set(names) & set(hosts.NEUTRAL)
    binds = {bind.destination: bind for bind in additions.binds}
    assert set(binds) == {
        *("/usr/bin/nvidia-smi", "/usr/bin/nvidia-cuda-mps-control", "/etc/OpenCL/vendors/nvidia.icd"),
        "/lib/firmware/nvidia/580.95.05",
    }
    assert all(bind.readonly and bind.is_optional for bind in binds.values())
    assert additions.devices[:4] == [
        f"/dev/{x}" for x in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    ]
    assert "/dev/nvidia0" in additions.devices
    assert "/dev/null" not in additions.devices
    assert additions.warnings == []
    assert any("580.95.05" in note for note in additions.notes)
    seen: set[str] = set()
    for path, name in plan(hosts.make_host(hosts.make_driver_tree())).libraries:
        assert path in seen or name == path.rpartition("/")[2]
        seen.add(path)


def test_nvidia_flags_that_ask_and_forbid() -> None:
    additions = plan_devices(RunOptions(), hosts.make_host(hosts.make_driver_tree()), hosts.make_image())
    assert (additions.libraries, additions.binds, additions.devices, additions.warnings) == ([], [], [], [])
    assert plan(hosts.make_host(hosts.make_driver_tree()), no_nv=True).libraries == []
    host = hosts.make_host(hosts.make_driver_tree())
    assert plan_devices(RunOptions(nvccli=True), host, hosts.make_image()).libraries == plan(host).libraries


@with_rows(
    ("all", {"libcuda", "libnvcuvid", "libGLX_nvidia", "libnvidia-ngx"}, {"libnvidia-gtk3"}),
    ("utility", set(hosts.UTILITY), {"libcuda", "libGLX_nvidia"}),
    ("compute,video", {"libcuda", *hosts.VIDEO}, {"libnvidia-ml", "libGLX_nvidia"}),
    ("graphics", {"libGLX_nvidia", "libnvidia-glcore", "libnvidia-gpucomp"}, {"libcuda", "libnvcuvid"}),
)
def test_nvidia_capabilities_choose_groups(told: str, present: set[str], absent: set[str]) -> None:
    stems = stems_of(plan(hosts.make_host(hosts.make_driver_tree(), NVIDIA_DRIVER_CAPABILITIES=told)))
    assert present <= stems
    assert not absent & stems


def test_nvidia_capabilities_of_the_image_add_and_unknown_ones_are_said() -> None:
    line = 'export NVIDIA_DRIVER_CAPABILITIES="${NVIDIA_DRIVER_CAPABILITIES:-"compute,utility,video"}"\n'
    stems = stems_of(plan(hosts.make_host(hosts.make_driver_tree()), hosts.make_image(env=line)))
    assert set(hosts.VIDEO) <= stems
    image = hosts.make_image(env="")
    image.oci_config = b'{"config":{"Env":["PATH=/bin","NVIDIA_DRIVER_CAPABILITIES=video"]}}'
    assert set(hosts.VIDEO) | set(hosts.COMPUTE) <= stems_of(plan(hosts.make_host(hosts.make_driver_tree()), image))
    additions = plan(hosts.make_host(hosts.make_driver_tree(), NVIDIA_DRIVER_CAPABILITIES="compute,graphic"))
    assert any("'graphic'" in text for text in additions.warnings)


def test_nvidia_image_gets_what_it_can_use() -> None:
    additions = plan(hosts.make_host(hosts.make_driver_tree()), hosts.make_image({f"{GNU}/libEGL.so.1": b""}))
    assert "libEGL_nvidia" in stems_of(additions)
    assert "libGLX_indirect.so.0" in names_of(additions)
    places = {bind.destination for bind in additions.binds}
    assert "/usr/share/glvnd/egl_vendor.d/10_nvidia.json" in places
    assert "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json" in places
    additions = plan(hosts.make_host(hosts.make_driver_tree()), hosts.make_image({"/lib/ld-musl-x86_64.so.1": b""}))
    assert any("musl" in text for text in additions.warnings)


def test_nvidia_libraries_with_versions_of_their_own_are_taken() -> None:
    tree = hosts.make_driver_tree()
    tree[f"{GNU}/libnvidia-egl-gbm.so.1.1.2"] = hosts.make_elf()
    tree[f"{GNU}/libnvidia-egl-gbm.so.1"] = "-> libnvidia-egl-gbm.so.1.1.2"
    entries = [
        (hosts.X86, name, f"{GNU}/{name}") for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-egl-gbm.so.1")
    ]
    tree["/etc/ld.so.cache"] = hosts.make_cache(entries)
    assert "libnvidia-egl-gbm.so.1" not in names_of(plan(hosts.make_host(tree)))
    assert "libnvidia-egl-gbm.so.1" in names_of(plan(hosts.make_host(tree, NVIDIA_DRIVER_CAPABILITIES="all")))
    tree = hosts.make_driver_tree(
        libraries=hosts.COMPUTE | hosts.UTILITY | {"libnvidia-novelty": "libnvidia-novelty.so.1"}
    )
    assert "libnvidia-novelty.so.1" in names_of(plan(hosts.make_host(tree)))


def test_nvidia_32_bit_libraries_are_left() -> None:
    tree = hosts.make_driver_tree()
    folder = "/usr/lib/i386-linux-gnu"
    tree |= hosts.make_libraries("580.95.05", folder, hosts.COMPUTE | hosts.UTILITY)
    entries = [(hosts.X86_32, name, f"{folder}/{name}") for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    entries += [(hosts.X86, name, f"{GNU}/{name}") for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    tree["/etc/ld.so.cache"] = hosts.make_cache(entries)
    assert {path.rpartition("/")[0] for path, _ in plan(hosts.make_host(tree)).libraries} == {GNU}
    tree = hosts.make_driver_tree(folder="/opt/driver", libraries=hosts.UTILITY | hosts.COMPUTE)
    tree["/etc/ld.so.cache"] = b""
    tree |= {
        "/usr/lib/libcuda.so.580.95.05": hosts.make_elf(32, 3),
        "/usr/lib/libnvidia-ml.so.580.95.05": hosts.make_elf(32, 3),
    }
    additions = plan(hosts.make_host(tree, LD_LIBRARY_PATH="/opt/driver:/usr/lib"))
    assert {path.rpartition("/")[0] for path, _ in additions.libraries} == {"/opt/driver"}


def test_nvidia_driver_in_other_places_is_found() -> None:
    tree = hosts.make_driver_tree(folder="/usr/local/nvidia/lib64")
    tree["/etc/ld.so.cache"] = hosts.make_cache([(hosts.X86, "libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6")])
    del tree["/usr/bin/nvidia-smi"]
    tree["/usr/local/nvidia/bin/nvidia-smi"] = "#!"
    additions = plan(hosts.make_host(tree))
    assert names_of(additions)["libcuda.so.1"] == "/usr/local/nvidia/lib64/libcuda.so.580.95.05"
    sources = {bind.destination: bind.source for bind in additions.binds}
    assert sources["/usr/bin/nvidia-smi"] == "/usr/local/nvidia/bin/nvidia-smi"
    assert additions.warnings == []
    tree = hosts.make_driver_tree(version="580.159.03", folder="/usr/local/nvidia/lib64")
    tree = {path: content for path, content in tree.items() if not path.startswith("/proc/driver")}
    tree["/etc/ld.so.cache"] = b""
    additions = plan(hosts.make_host(tree), contain=True)
    assert names_of(additions)["libcuda.so.1"].endswith("580.159.03")
    assert "/dev/nvidia0" in additions.devices
    assert additions.warnings == []
    tree = hosts.make_driver_tree()
    tree["/etc/ld.so.cache"] = b""
    tree = {path: content for path, content in tree.items() if not str(content).startswith("->")}
    names = names_of(plan(hosts.make_host(tree)))
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4", "libcuda.so"} <= set(names)
    folder = "/usr/lib/aarch64-linux-gnu"
    tree = hosts.make_driver_tree(models=("NVIDIA GH200 480GB",), folder=folder, flags=hosts.ARM)
    additions = plan(hosts.make_host(tree, machine="aarch64"))
    assert names_of(additions)["libcuda.so.1"] == f"{folder}/libcuda.so.580.95.05"
    tree = hosts.make_driver_tree(libraries={})
    tree["/etc/ld.so.cache"] = b""
    tree |= {f"/.singularity.d/libs/{name}": hosts.make_elf() for name in ("libcuda.so.1", "libnvidia-ml.so.1")}
    additions = plan(hosts.make_host(tree))
    assert names_of(additions)["libcuda.so.1"] == "/.singularity.d/libs/libcuda.so.1"


@each_row("cache", [b"", b"glibc-ld.so.cache1.1" + b"\xff" * 400, b"ld.so-1.7.0\0\xff\xff\xff\x7f"])
def test_nvidia_hostile_cache_falls_back_to_folders(cache: bytes) -> None:
    tree = hosts.make_driver_tree()
    tree["/etc/ld.so.cache"] = cache
    additions = plan(hosts.make_host(tree))
    assert (names_of(additions)["libcuda.so.1"], additions.warnings) == (f"{GNU}/libcuda.so.580.95.05", [])


def test_nvidia_jetson_and_windows_lend_their_drivers() -> None:
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    lists = "/etc/nvidia-container-runtime/host-files-for-container.d"
    tree: dict[str, bytes | str | None] = {
        "/etc/nv_tegra_release": "# R36",
        f"{folder}/libcuda.so.1.1": b"",
        f"{folder}/libcuda.so.1": "-> libcuda.so.1.1",
        f"{folder}/libnvrm_gpu.so": b"",
        "/usr/lib/aarch64-linux-gnu/libEGL.so.1": b"",
        f"{lists}/drivers.csv": (
            f"lib, {folder}/libcuda.so.1.1\nsym, {folder}/libcuda.so.1\nlib, {folder}/libnvrm_gpu.so\n"
            "lib, /usr/lib/aarch64-linux-gnu/libEGL.so.1\nlib, /gone.so\ndev, /dev/nvhost-gpu\nnonsense\n"
        ),
        "/dev/nvmap": "",
        "/dev/nvhost-gpu": "",
    }
    additions = plan(hosts.make_host(tree, machine="aarch64"), contain=True)
    assert names_of(additions) == {
        "libcuda.so.1.1": f"{folder}/libcuda.so.1.1",
        "libcuda.so.1": f"{folder}/libcuda.so.1.1",
        "libnvrm_gpu.so": f"{folder}/libnvrm_gpu.so",
    }
    assert (additions.devices, additions.warnings) == (["/dev/nvhost-gpu", "/dev/nvmap"], [])
    tree: dict[str, bytes | str | None] = {
        **{"/dev/dxg": "", "/usr/lib/wsl/lib/libcuda.so.1": b"", "/usr/lib/wsl/lib/nvidia-smi": "#!"},
        "/usr/lib/wsl/drivers/nv/x.so": b"",
    }
    additions = plan(hosts.make_host(tree))
    assert names_of(additions) == {"libcuda.so.1": "/usr/lib/wsl/lib/libcuda.so.1"}
    assert {bind.destination for bind in additions.binds} == {"/usr/lib/wsl/drivers", "/usr/bin/nvidia-smi"}


def test_nvidia_works_on_real_folders(tmp_path) -> None:
    for path, content in hosts.make_driver_tree().items():
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            place.symlink_to(content[3:])
        else:
            place.write_bytes(content.encode() if isinstance(content, str) else content or b"")
            place.chmod(0o755)
    on_disk = plan(HostFacts(view=DirectoryView(str(tmp_path)), environ={}))
    in_table = plan(hosts.make_host(hosts.make_driver_tree()))
    assert (on_disk.libraries, on_disk.binds) == (in_table.libraries, in_table.binds)
    assert (on_disk.devices, on_disk.warnings) == (in_table.devices, in_table.warnings)


def test_nvidia_folders_with_sockets_or_circles_are_read(tmp_path) -> None:
    place = tmp_path / "var/run/nvidia-persistenced"
    place.mkdir(parents=True)
    os.mkfifo(place / "socket")
    additions = plan(HostFacts(view=DirectoryView(str(tmp_path)), environ={}))
    assert "/var/run/nvidia-persistenced/socket" in {bind.destination for bind in additions.binds}
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").symlink_to("libcuda.so")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    assert plan(HostFacts(view=DirectoryView(str(tmp_path)), environ={})).libraries == []


def test_gpus_import_little(tmp_path) -> None:
    root = write_machine(tmp_path / "machine", {**make_gpu_tree(), "/dev/kfd": "", "/dev/dri/renderD128": ""})
    code = (
        "from kedge.container.facts import HostFacts, ImageFacts; from kedge.system.views import DirectoryView\n"
        "from kedge.container.options import RunOptions; from kedge.container.devices import plan_devices\n"
        f"view = DirectoryView({str(root)!r})\n"
        f"host = HostFacts(view=view, environ={{}}, machine={os.uname().machine!r})\n"
        "plan_devices(RunOptions(nv=True, rocm=True, contain=True), host, ImageFacts(view=view, path='/i'))\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-SI", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\n{code}"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    heavy = {"typing", "re", "dataclasses", "json", "pathlib", "collections", "functools", "kedge.errors", "enum"}
    assert not heavy & set(loaded)


def test_nvidia_mps_and_fabric_are_reached() -> None:
    tree = hosts.make_driver_tree() | {"/tmp/nvidia-mps/control": "", "/scratch/mps/control": ""}
    assert "/tmp/nvidia-mps" in {bind.source for bind in plan(hosts.make_host(tree), contain=True).binds}
    assert "/tmp/nvidia-mps" not in {bind.source for bind in plan(hosts.make_host(tree)).binds}
    additions = plan(hosts.make_host(tree, CUDA_MPS_PIPE_DIRECTORY="/scratch/mps"))
    assert "/scratch/mps" in {bind.source for bind in additions.binds if not bind.readonly}
    assert additions.variables["CUDA_MPS_PIPE_DIRECTORY"] == "/scratch/mps"
    names = ("infiniband/uverbs0", "gdrdrv", "knem", "xpmem", "hfi1_0", "cxi0", "nvidia-caps-imex-channels/channel0")
    tree = hosts.make_driver_tree() | {f"/dev/{name}": "" for name in (*names, "sda", "fuse")}
    devices = plan_devices(RunOptions(contain=True), hosts.make_host(tree), hosts.make_image()).devices
    assert sorted(devices) == sorted(f"/dev/{name.partition('/')[0]}" for name in names)
    assert plan_devices(RunOptions(), hosts.make_host(tree), hosts.make_image()).devices == []


def test_nvidia_forgotten_flag_is_said_where_a_job_has_a_gpu() -> None:
    host = hosts.make_host(hosts.make_driver_tree(), CUDA_VISIBLE_DEVICES="0")
    said = plan_devices(RunOptions(), host, hosts.make_image()).warnings
    assert len(said) == 1
    assert "--nv" in said[0]
    assert plan_devices(RunOptions(), host, hosts.make_image(env="export A=1\n")).warnings == []
    assert plan_devices(RunOptions(no_nv=True), host, hosts.make_image()).warnings == []
    assert plan_devices(RunOptions(), hosts.make_host(hosts.make_driver_tree()), hosts.make_image()).warnings == []


def test_nvidia_program_is_taken_before_a_script_around_it() -> None:
    tree: dict[str, bytes | str | None] = {
        "/usr/bin/nvidia-smi": "#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi",
        "/usr/local/nvidia/bin/nvidia-smi": b"\x7fELF",
    }
    host = HostFacts(view=TableView(tree, ("/usr/local/nvidia/bin/nvidia-smi",)), environ={})
    assert [bind.source for bind in list_programs(host, {"utility"})] == ["/usr/local/nvidia/bin/nvidia-smi"]
