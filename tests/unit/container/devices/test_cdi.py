# SPDX-License-Identifier: BSD-3-Clause
"""--device: specifications of the Container Device Interface in JSON and YAML; what is done of them, what refused."""

from __future__ import annotations

import json

import pytest

from kedge.container.devices import plan_devices
from kedge.container.options import RunOptions
from kedge.errors import DeviceProblem
from tests.builders.gpu_hosts import make_compat_image, make_driver_tree, make_host, make_image
from tests.builders.rows import each_row
from tests.wording import assert_says

Tree = dict[str, bytes | str | None]

NVIDIA = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-modeset
  - path: /dev/nvidia-uvm
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    - --link
    - ../libnvidia-allocator.so.1::/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  - args:
    - nvidia-cdi-hook
    - enable-cuda-compat
    - --host-driver-version=580.95.05
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  - args:
    - nvidia-cdi-hook
    - update-ldcache
    - --folder
    - /usr/lib/x86_64-linux-gnu
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  - args: [nvidia-cdi-hook, chmod, --mode, "755", --path, /dev/dri]
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/bin/nvidia-smi
    hostPath: /usr/bin/nvidia-smi
    options:
    - ro
    - nosuid
    - nodev
    - bind
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    options: [ro, nosuid, nodev, bind]
  - containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-allocator.so.580.95.05
    hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-allocator.so.580.95.05
    options: ["ro", 'bind']
  - containerPath: /run/nvidia-persistenced/socket
    hostPath: /tmp/socket
    options:
    - bind
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "1"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
  name: all  # both
kind: nvidia.com/gpu
"""


MOUNTS = [
    {"hostPath": "/opt/vendor/lib", "containerPath": "/opt/vendor/lib", "options": ["rw"]},
    {"hostPath": "tmpfs", "containerPath": "/x", "type": "tmpfs"},
    {"hostPath": "/opt/gone", "containerPath": "/opt/gone"},
]
FOLDER_HOOK = ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/opt/vendor/lib"]
HOOKS = [
    {"hookName": "createContainer", "path": "/opt/vendor/hook", "args": ["hook", "start-daemon"]},
    {"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": FOLDER_HOOK},
]
NODES = [{"path": "/dev/port", "hostPath": "/dev/vendor/port0"}, {"path": "/dev/gone"}]
EDITS = {"env": ["PORT=0", "BAD"], "deviceNodes": NODES, "mounts": MOUNTS, "hooks": HOOKS, "additionalGids": [44]}
VENDOR = {"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [{"name": "port0", "containerEdits": EDITS}]}


def host_tree() -> Tree:
    tree = make_driver_tree(models=("NVIDIA H200",) * 2)
    tree |= {"/tmp/socket": "", "/etc/cdi/nvidia.yaml": NVIDIA, "/etc/cdi/README": "no specification"}
    return tree | {"/opt/vendor/lib/libx.so": b"", "/dev/vendor/port0": "", "/etc/cdi/vendor.json": json.dumps(VENDOR)}


def plan(*names: str, tree: Tree | None = None, image=None, folders: tuple[str, ...] = ()):
    options = RunOptions(device=list(names), cdi_dirs=list(folders))
    return plan_devices(options, make_host(host_tree() if tree is None else tree), image or make_image())


def test_cdi_nvidia_gpus_get_nodes_mounts_and_variables() -> None:
    additions = plan("nvidia.com/gpu=0")
    assert additions.devices == ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia1"]
    assert additions.variables == {"NVIDIA_VISIBLE_DEVICES": "void"}
    binds = {bind.destination: bind for bind in additions.binds}
    assert binds["/usr/bin/nvidia-smi"].readonly
    assert not binds["/run/nvidia-persistenced/socket"].readonly
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05" in binds
    assert additions.warnings == []
    additions = plan("nvidia.com/gpu=0,nvidia.com/gpu=1", "vendor.com/net=port0")
    assert additions.devices.count("/dev/nvidiactl") == 1
    assert {"/dev/nvidia0", "/dev/nvidia1"} <= set(additions.devices)
    assert len([bind for bind in additions.binds if bind.destination == "/usr/bin/nvidia-smi"]) == 1


def test_cdi_nvidia_hooks_are_done_here() -> None:
    additions = plan("nvidia.com/gpu=all")
    folder = "/usr/lib/x86_64-linux-gnu"
    names = {name: path for path, name in additions.libraries}
    for name in ("libcuda.so.580.95.05", "libcuda.so.1", "libcuda.so"):
        assert names[name] == f"{folder}/libcuda.so.580.95.05"
    assert names["libnvidia-allocator.so.1"] == f"{folder}/libnvidia-allocator.so.580.95.05"
    sources = {bind.destination: bind.source for bind in additions.binds}
    assert sources[f"{folder}/gbm/nvidia-drm_gbm.so"] == f"{folder}/libnvidia-allocator.so.580.95.05"
    note = {"driver": [570, 580], "CUDA version": "13.1"}
    additions = plan("nvidia.com/gpu=0", image=make_compat_image("590.44.01", note))
    assert additions.prepend_library_path == ["/usr/local/cuda/compat"]
    older = plan("nvidia.com/gpu=0", image=make_compat_image("575.57.08", note))
    assert older.prepend_library_path == []
    assert_says("\n".join(older.notes), "run/host-libcuda-used", "580.95.05")


def test_cdi_other_vendors_are_honoured_and_the_rest_is_said() -> None:
    additions = plan("vendor.com/net=port0")
    assert additions.variables == {"PORT": "0"}
    binds = {bind.destination: bind for bind in additions.binds}
    assert binds["/dev/port"].source == "/dev/vendor/port0"
    assert not binds["/opt/vendor/lib"].readonly
    assert additions.prepend_library_path == ["/opt/vendor/lib"]
    said = "\n".join(additions.warnings)
    for part in ("/dev/gone", "(tmpfs)", "/opt/gone", "'start-daemon'", "'additionalGids'"):
        assert part in said


def test_cdi_unknown_device_names_those_that_exist() -> None:
    with pytest.raises(DeviceProblem, match=r"nvidia\.com/gpu=7") as caught:
        plan("nvidia.com/gpu=7")
    assert "nvidia.com/gpu=0, nvidia.com/gpu=1, nvidia.com/gpu=all" in caught.value.context["known"]
    with pytest.raises(DeviceProblem, match="no CDI files in /etc/cdi and /var/run/cdi") as caught:
        plan("nvidia.com/gpu=0", tree={"/dev/null": ""})
    assert "nvidia-ctk cdi generate" in str(caught.value.hint)


@each_row("name", ["gpu", "nvidia.com/gpu", "gpu=0", "nvidia.com/gpu="])
def test_cdi_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(DeviceProblem, match="not a device name"):
        plan(name)


def test_cdi_folders_can_be_named_and_the_later_wins() -> None:
    other = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
    }
    tree = host_tree() | {"/var/run/cdi/nvidia.json": json.dumps(other)}
    assert plan("nvidia.com/gpu=0", tree=tree).variables == {"A": "1"}
    tree = host_tree() | {"/opt/cdi/x.yaml": NVIDIA.replace("nvidia.com/gpu", "site.org/gpu")}
    assert plan("site.org/gpu=0", tree=tree, folders=("/opt/cdi",)).devices
    with pytest.raises(DeviceProblem):
        plan("nvidia.com/gpu=0", tree=tree, folders=("/opt/cdi",))
    with pytest.raises(DeviceProblem, match="two CDI files describe"):
        plan("nvidia.com/gpu=0", tree=host_tree() | {"/etc/cdi/again.yaml": NVIDIA})


def test_cdi_broken_file_is_named_with_its_line() -> None:
    tree: Tree = {"/etc/cdi/broken.yaml": "cdiVersion: 0.5.0\nkind: &anchor x\n"}
    with pytest.raises(DeviceProblem) as caught:
        plan("nvidia.com/gpu=0", tree=tree)
    assert "/etc/cdi/broken.yaml" in str(caught.value.context)
    assert "line 2" in str(caught.value.context)
    additions = plan("nvidia.com/gpu=0", tree=host_tree() | {"/etc/cdi/broken.json": "{"})
    assert any("/etc/cdi/broken.json" in note for note in additions.notes)


@each_row("content", ["[]", "5", '{"kind": 5}', "\xff", "[" * 100000, '{"cdiVersion":"1","kind":"a/b","devices":{}}'])
def test_cdi_nonsense_is_an_error_not_a_crash(content: str) -> None:
    for name in ("x.json", "x.yaml"):
        with pytest.raises(DeviceProblem):
            plan("a/b=c", tree={f"/etc/cdi/{name}": content.encode("latin-1")})


def test_cdi_odd_shapes_inside_are_survived() -> None:
    odd = {"name": "c", "containerEdits": {"env": 5, "mounts": [5], "hooks": [{"args": 3}]}}
    spec = {"cdiVersion": "1", "kind": "a/b", "containerEdits": [], "devices": [5, {"name": None}, odd]}
    assert plan("a/b=c", tree={"/etc/cdi/x.json": json.dumps(spec)}).devices == []
