# SPDX-License-Identifier: BSD-3-Clause
"""--nv on Jetson boards: the system lists the driver's files itself, and their names carry no version.

The lists are lines of `lib|sym|dev|dir, PATH` below /etc/nvidia-container-runtime/host-files-for-container.d.
"""

from __future__ import annotations

from kedge.container.devices.nvidia.libraries import follow_links
from kedge.container.facts import Additions, Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts
    from kedge.system.views import View

_LISTS = "/etc/nvidia-container-runtime/host-files-for-container.d"
_FOLDERS = ("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra")
_NEUTRAL = ("libGL.", "libEGL.", "libGLX.", "libGLdispatch.", "libOpenGL.", "libOpenCL.", "libGLESv1_CM.", "libGLESv2.")
_NEUTRAL_TOO = ("libdrm.", "libvulkan.", "libgbm.", "libc.", "libstdc++.")
_NODES = ("nvhost", "nvmap", "nvgpu", "nvidia", "nvsciipc", "tegra", "v4l2-nv")
_MAXIMUM_LINES = 5000


def plan_jetson(host: HostFacts) -> Additions:
    """The driver's files by the board's own lists, or by the directories they lie in."""
    additions = Additions()
    view = host.view
    listed = list_files(view)
    for kind, path in listed:
        if kind in ("lib", "sym"):
            _add_library(additions, view, path)
        elif kind == "dir" and view.kind(path) == "d":
            additions.binds.append(Bind(path, path, readonly=True, is_optional=True, origin="--nv"))
    if not additions.libraries:
        for folder in _FOLDERS:
            for name in view.names(folder):
                _add_library(additions, view, f"{folder}/{name}")
    additions.devices = [f"/dev/{name}" for name in view.names("/dev") if name.startswith(_NODES)]
    additions.devices += [path for kind, path in listed if kind == "dev" and view.kind(path)]
    if view.is_executable("/usr/sbin/nvidia-smi"):
        source = "/usr/sbin/nvidia-smi"
        additions.binds.append(Bind(source, "/usr/bin/nvidia-smi", readonly=True, is_optional=True, origin="--nv"))
    if "CUDA_VISIBLE_DEVICES" in host.environ:
        additions.variables["CUDA_VISIBLE_DEVICES"] = host.environ["CUDA_VISIBLE_DEVICES"]
    additions.notes.append(f"Jetson board: {len(additions.libraries)} driver libraries from its own lists")
    if not any(name.startswith("libcuda.so") for _, name in additions.libraries):
        additions.warnings.append(
            f"--nv: no libcuda in {_LISTS} or {_FOLDERS[0]} of this Jetson board: install nvidia-l4t-cuda."
        )
    return additions


def list_files(view: View) -> list[tuple[str, str]]:
    """(kind, path) of all lines of all lists."""
    entries = []
    for name in view.names(_LISTS):
        if name.endswith(".csv"):
            text = (view.read(f"{_LISTS}/{name}") or b"").decode(errors="replace")
            for line in text.splitlines()[:_MAXIMUM_LINES]:
                kind, _, path = line.partition(",")
                if path.strip().startswith("/"):
                    entries.append((kind.strip(), path.strip()))
    return entries


def _add_library(additions: Additions, view: View, path: str) -> None:
    name = path.rpartition("/")[2]
    if ".so" not in name or name.startswith((*_NEUTRAL, *_NEUTRAL_TOO)):
        return
    source = follow_links(view, path)
    if view.kind(source) == "f":
        additions.libraries.append((source, name))
