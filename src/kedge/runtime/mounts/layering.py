# SPDX-License-Identifier: BSD-3-Clause
"""How the root is put together above the image: which overlays, what takes the changes, and what happens without.

A read-only container has a layer too, in memory: the mount points that the image lacks are made there.
"""

from __future__ import annotations

import os

from kedge.runtime.host_facts import is_privileged
from kedge.runtime.mounts.operations import LOWER, MAY, MUST, NEW, OLD, SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.posix.views import View
    from kedge.runtime.facts import HostFacts
    from kedge.runtime.images.image_file import ImageFile
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.mounts.overlay_options import OverlayLayer
    from kedge.runtime.options import RunOptions


class Layering:
    """The layers of one container."""

    def __init__(self, layers: list[OverlayLayer], options: RunOptions, size: int) -> None:
        self.layers = layers
        self.private_size = size
        self.has_users = False  # a step of a build that knows the image's users
        self.owned: tuple[str, ...] = ()  # its base and layers as far as their owners are to be seen, "" for the others
        self.is_direct = options.writable and not any(layer.writable for layer in layers)  # the image itself
        self.has_tmpfs = options.writable_tmpfs and not options.writable
        self.is_writable = self.is_direct or self.has_tmpfs or any(layer.writable for layer in layers)
        self.must_overlay = bool(layers) or self.has_tmpfs
        self.is_layered = not self.is_direct and (self.must_overlay or not options.underlay)

    @property
    def keeps_changes(self) -> bool:
        """Whether what is written stays in a layer of the user's, where mount points have no business."""
        return any(layer.writable for layer in self.layers)

    def use_binds(self) -> None:
        """Go on without an overlay."""
        self.is_layered = False


def choose_layering(options: RunOptions, host: HostFacts, image: ImageFile) -> Layering:
    """What the options ask for; refuses what cannot be."""
    if options.step is not None:
        from kedge.runtime.mounts.overlay_options import plan_step_layers  # late: only builds have steps

        return Layering(plan_step_layers(options.step), options, host.memory // 2)
    asked = options.overlay or options.writable or options.writable_tmpfs or options.contain or options.scratch
    if not asked and not image.overlays:
        return Layering([], options, 0)
    # late: most containers have no layer that anybody asked for
    from kedge.runtime.mounts.overlay_options import check_writable, choose_tmpfs_size, plan_overlays

    check_writable(options)
    layers = (
        plan_overlays(options, host, "" if image.kind == "folder" else image.path)
        if _has_layers(options, image)
        else []
    )
    if options.writable and not _can_change(image) and not any(layer.writable for layer in layers):
        from kedge.runtime.mounts.overlay_options import explain_readonly_image  # late: only for an error

        raise explain_readonly_image(image.path, image.kind)
    size = choose_tmpfs_size(options, host) if options.writable_tmpfs or options.contain or options.scratch else 0
    return Layering(layers, options, size)


def _can_change(image: ImageFile) -> bool:
    """Whether the image itself can be written to."""
    return image.kind == "folder" or (image.kind == "ext3" and os.access(image.path, os.W_OK))


def _has_layers(options: RunOptions, image: ImageFile) -> bool:
    return bool(options.overlay or image.overlays)


def plan_layers(layering: Layering) -> list[Operation]:
    """What puts the layers over the image; at the end the container's root is at NEW."""
    if layering.is_direct:
        return [("bind", LOWER, NEW, 0, MUST)]
    if not layering.is_layered:
        return [("bind", LOWER, NEW, 1, MUST)]
    operations: list[Operation] = []
    lowers = [LOWER]
    _plan_owners(layering, 0, operations, lowers)
    upper, work = f"{SESSION}/upper", f"{SESSION}/work"
    for number, layer in enumerate(layering.layers):
        place = _plan_layer(layer, number, operations)
        if layer.writable:
            upper, work = f"{place}/upper", f"{place}/work"
        else:
            lowers.insert(0, f"{place}/{layer.folder}" if layer.folder else place)
            _plan_owners(layering, number + 1, operations, lowers)
    if layering.has_tmpfs:
        memory = f"{SESSION}/memory"
        operations.append(("folder", memory, 0o755, MUST))
        operations.append(("tmpfs", memory, f"mode=755,size={layering.private_size}", MUST))
        upper, work = f"{memory}/upper", f"{memory}/work"
    operations += [("folder", upper, 0o755, MUST), ("folder", work, 0o755, MUST)]
    operations.append(("overlay", "\n".join(lowers), upper, work, NEW, int(layering.is_writable)))
    return operations


def _plan_owners(layering: Layering, number: int, operations: list[Operation], lowers: list[str]) -> None:
    """Put files of a layer whose owners and modes are others in the image into one more layer above it."""
    level = layering.owned[number] if number < len(layering.owned) else ""
    if level:
        place = f"{SESSION}/owners{number}"
        operations += [("folder", place, 0o755, MUST), ("owners", OLD + level, place)]
        lowers.insert(0, place)


def plan_points(
    overlay: Operation, points: list[tuple[str, str]], view: View, files: tuple[tuple[str, str], ...] = ()
) -> list[Operation]:
    """Put the overlay on again with one more layer, the lowest, which has the mount points and `files`, if any.

    For layers that do not take them, and for those that should not: a user's, where they would stay.
    """
    operations: list[Operation] = []
    for path, shape in points:
        where = f"{SESSION}/points{view.resolve(path)}"
        operations.append(("folder", where, 0o755, MAY) if shape == "d" else ("file", where, MAY))
    for path, text in files:
        where = f"{SESSION}/points{view.resolve(path)}"
        operations += [("folder", where.rpartition("/")[0], 0o755, MUST), ("write", where, text, 0o644)]
    lowers = f"{overlay[1]}\n{SESSION}/points"
    return [*operations, ("relay", lowers, *overlay[2:])]


def plan_squashfs(path: str, where: tuple[str, int, int, str]) -> Operation:
    """Mount a SquashFS file other than the image: `where` is its place in the plan, offset, size and target."""
    from kedge.runtime.images.mount_or_unpack import (  # late: other SquashFS files are rare
        check_kernel_mount,
        find_usable_squashfuse,
    )

    program, refusal = find_usable_squashfuse()
    if program:
        return ("squashfuse", *where, program)
    if is_privileged() and not check_kernel_mount():
        return ("loop", *where, "squashfs")
    from kedge.errors import MountFailed  # late: only for an error

    raise MountFailed(
        f"cannot mount the SquashFS file {path}: {refusal}",
        hint="it needs squashfuse and /dev/fuse; or unpack it ('kedge convert --data FILE DIRECTORY') and use the "
        "directory; kedge itself unpacks up to 4 GiB, or KEDGE_UNPACK_LIMIT MiB",
    )


def _plan_layer(layer: OverlayLayer, number: int, operations: list[Operation]) -> str:
    """Mount one layer; where it then is."""
    if layer.kind == "folder":
        return OLD + layer.path
    place = f"{SESSION}/layer{number}"
    operations.append(("folder", place, 0o755, MUST))
    where = (OLD + layer.path, layer.offset, layer.size, place)
    if layer.kind == "squashfs":
        operations.append(plan_squashfs(layer.path, where))
    else:
        operations.append(("fuse2fs", *where, "rw" if layer.writable else "ro"))
    return place
