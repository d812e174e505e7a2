# SPDX-License-Identifier: BSD-3-Clause
"""The plan for a script of a recipe that runs with the programs of this host: %pre and %setup.

It sees the host's programs and its /etc, read-only, the directory of the recipe, and the image's root file system,
which is all that it can change. In its place Apptainer gives it the whole host.
"""

from __future__ import annotations

from kedge.posix.constants import MS_NODEV, MS_NOSUID, MS_RDONLY
from kedge.runtime.mounts.operations import MAY, MUST, NEW, OLD, SESSION, WARN
from kedge.runtime.mounts.plan import DEVICES, MountPlan, Points

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.mounts.plan import PlanRequest
    from kedge.runtime.step_options import StepOptions

IMAGE_ROOT = "/rootfs"  # where the script finds the image
_TREE = f"{SESSION}/script"  # the script's root
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc")
_GUARDED = MS_NOSUID | MS_NODEV


def plan_host_script(request: PlanRequest, step: StepOptions) -> MountPlan:
    """What is done once the image's root is in its place."""
    operations: list[Operation] = [("folder", _TREE, 0o755, MUST), ("tmpfs", _TREE, "mode=755", MUST)]
    for path in _PROGRAMS:
        operations += _show_programs(request, path)
    operations += [("folder", f"{_TREE}/proc", 0o755, MUST), ("proc", f"{_TREE}/proc", MUST)]
    operations.append(("folder", f"{_TREE}/dev", 0o755, MUST))
    for name in DEVICES:
        place = f"{_TREE}/dev/{name}"
        operations += [("file", place, MAY), ("bind", f"{OLD}/dev/{name}", place, MS_NOSUID, MAY)]
    for path in ("/tmp", "/var/tmp", "/root"):
        size = f"mode=1777,size={request.private_size}"
        operations += [("folder", _TREE + path, 0o755, MUST), ("tmpfs", _TREE + path, size, MUST)]
    operations += _bind(NEW, IMAGE_ROOT, 0)
    if step.context != "/":
        operations += _bind(OLD + step.context, step.context, MS_RDONLY)
    for bind in request.binds:
        operations += _bind(OLD + bind.source, bind.destination, MS_RDONLY if bind.readonly else 0)
    operations += [("readonly", _TREE), ("umask", 0o022), ("enter", _TREE)]
    operations.append(("chdir", step.context, 1))
    return MountPlan(Points(request.image.view), [], operations)


def _show_programs(request: PlanRequest, path: str) -> list[Operation]:
    link = request.host.view.read_link(path)
    if link:
        return [("link", link, _TREE + path)]
    if request.host.view.kind(path) != "d":
        return []
    flags = _GUARDED | MS_RDONLY
    return [("folder", _TREE + path, 0o755, MUST), ("bind", OLD + path, _TREE + path, flags, WARN)]


def _bind(source: str, destination: str, flags: int) -> list[Operation]:
    place = _TREE + destination
    return [("folder", place, 0o755, MUST), ("bind", source, place, _GUARDED | flags, MUST)]
