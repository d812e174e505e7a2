# SPDX-License-Identifier: BSD-3-Clause
"""Binds out of image files: `-B data.sqsh:/data:image-src=/` mounts the file and binds what is in it."""

from __future__ import annotations

from kedge.runtime.images.image_file import identify
from kedge.runtime.mounts.layering import plan_squashfs
from kedge.runtime.operations import MUST, OLD, SESSION
from kedge.runtime.views import FolderView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import Bind
    from kedge.runtime.images.image_file import ImageFile
    from kedge.runtime.operations import Operation


class ImageBinds:
    """The binds of one container that come out of image files."""

    def __init__(self, binds: list[Bind]) -> None:
        self.binds = [bind for bind in binds if bind.image_source or bind.partition]
        self.images = [_identify(bind) for bind in self.binds]

    def plan(self) -> list[Operation]:
        """What mounts the files, each once."""
        operations: list[Operation] = []
        for number, image in enumerate(self.images):
            place = self._place(number)
            if place != _name_place(number):
                continue
            operations.append(("folder", place, 0o755, MUST))
            where = (OLD + image.path, image.offset, image.size, place)
            if image.file_system == "squashfs":
                operations.append(plan_squashfs(image.path, where))
            else:
                same = [bind for other, bind in enumerate(self.binds) if self._place(other) == place]
                operations.append(("fuse2fs", *where, "ro" if all(bind.readonly for bind in same) else "rw"))
        return operations

    def _place(self, number: int) -> str:
        """Where the file of a bind is mounted: with the first that has the same."""
        image = self.images[number]
        first = next(
            other for other, each in enumerate(self.images) if (each.path, each.offset) == (image.path, image.offset)
        )
        return _name_place(first)

    def settle(self, base: str) -> None:
        """Once they are mounted: let each bind begin where its contents are now."""
        for number, bind in enumerate(self.binds):
            inside = FolderView(base + self._place(number))
            wanted = bind.image_source or "/"
            if not inside.kind(wanted):
                from kedge.errors import FileProblem  # late: only for an error

                raise FileProblem(
                    f"{bind.source} has no {wanted} in it", context={"option": f"{bind.origin} {bind.source}"}
                )
            bind.source = inside.locate(wanted)


def _identify(bind: Bind) -> ImageFile:
    image = identify(bind.source)
    if image.kind == "folder" or (bind.partition and image.kind != "sif"):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"{bind.source} is not an image file, so 'image-src' and 'id' mean nothing there",
            hint="leave the option out to bind the folder itself",
        )
    if bind.partition:
        _choose_partition(image, int(bind.partition))
    return image


def _choose_partition(image: ImageFile, number: int) -> None:
    """Turn to another file system in the SIF."""
    from kedge.formats.sif.reader import SifReader  # late: `id=` is rare

    with open(image.path, "rb") as file:
        descriptor = SifReader(file, image.path).find(number)
    names = {1: "squashfs", 2: "ext3"}
    if descriptor.file_system not in names:
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"object {number} of {image.path} is not a file system that can be mounted",
            hint=f"'kedge sif list {image.path}' shows them all",
        )
    image.offset, image.size = descriptor.offset, descriptor.size
    image.file_system = names[descriptor.file_system]


def _name_place(number: int) -> str:
    return f"{SESSION}/image{number}"
