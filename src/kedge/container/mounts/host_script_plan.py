# SPDX-License-Identifier: BSD-3-Clause
"""The plan for a script of a recipe that runs with the programs of this host: %pre and %setup.

It sees the host's programs and its /etc, the directories that the build chose for it, read-only, and the image's root
file system, which is all that it can change. In its place Apptainer gives it the whole host.
"""

from __future__ import annotations

from kedge.container.mount_operations import (
    DEVICES,
    GUARDED,
    IMAGE_ROOT,
    MAY,
    NEW,
    OLD,
    SESSION,
    WARN,
    BindMount,
    ChangeDirectory,
    Enter,
    KernelTree,
    MakeDirectory,
    MakeFile,
    MakeLink,
    MakeReadonly,
    MountPlan,
    Points,
    RequireSame,
    SetUmask,
    Tmpfs,
)
from kedge.system.libc import MS_NOSUID, MS_RDONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import Bind
    from kedge.container.mount_operations import Operation
    from kedge.container.step_options import StepOptions
    from kedge.system.views import View

_TREE = f"{SESSION}/script"  # the script's root
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc")


class HostScriptRequest:
    """Everything such a plan is made from."""

    def __init__(self, step: StepOptions, host: View, image: View, binds: list[Bind], private_size: int) -> None:
        self.step = step
        self.host = host
        self.image = image
        self.binds = binds
        self.private_size = private_size  # bytes that a private tmp may hold


def plan_host_script(request: HostScriptRequest) -> MountPlan:
    """What is done once the image's root is in its place."""
    step = request.step
    operations: list[Operation] = [MakeDirectory(_TREE), Tmpfs(_TREE, "mode=755")]
    for path in _PROGRAMS:
        operations += _show_programs(request, path)
    operations += [MakeDirectory(f"{_TREE}/proc"), KernelTree("proc", f"{_TREE}/proc")]
    operations.append(MakeDirectory(f"{_TREE}/dev"))
    for name in DEVICES:
        place = f"{_TREE}/dev/{name}"
        operations += [MakeFile(place, MAY), BindMount(f"{OLD}/dev/{name}", place, MS_NOSUID, MAY)]
    for path in ("/tmp", "/var/tmp", "/root"):
        size = f"mode=1777,size={request.private_size}"
        operations += [MakeDirectory(_TREE + path), Tmpfs(_TREE + path, size)]
    operations += _bind(NEW, IMAGE_ROOT, 0)
    inside = [path for path in step.hidden if any(path.startswith(f"{shown[0]}/") for shown in step.shown)]
    operations += [_hide(request, path) for path in step.hidden if path not in inside]
    for folder, device, inode in step.shown:
        operations += _bind(f"{OLD}{folder}", str(folder), MS_RDONLY)
        operations.append(RequireSame(f"{_TREE}{folder}", int(device), int(inode)))
    operations += [_hide(request, path) for path in inside]
    for bind in request.binds:
        operations += _bind(OLD + bind.source, bind.destination, MS_RDONLY if bind.readonly else 0)
    operations += [MakeReadonly(_TREE), SetUmask(0o022), Enter(_TREE)]
    operations.append(ChangeDirectory((step.context,), is_strict=True))
    return MountPlan(Points(request.image), [], operations)


def _show_programs(request: HostScriptRequest, path: str) -> list[Operation]:
    link = request.host.read_link(path)
    if link:
        return [MakeLink(link, _TREE + path)]
    if request.host.kind(path) != "d":
        return []
    return [MakeDirectory(_TREE + path), BindMount(OLD + path, _TREE + path, GUARDED | MS_RDONLY, WARN)]


def _hide(request: HostScriptRequest, path: str) -> Operation:
    if request.host.kind(path) == "d":
        return Tmpfs(_TREE + path, "mode=755,size=64k")
    return BindMount(f"{OLD}/dev/null", _TREE + path, MS_NOSUID)


def _bind(source: str, destination: str, flags: int) -> list[Operation]:
    place = _TREE + destination
    return [MakeDirectory(place), BindMount(source, place, GUARDED | flags)]
