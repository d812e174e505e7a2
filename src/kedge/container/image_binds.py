# SPDX-License-Identifier: BSD-3-Clause
"""Binds out of image files: `-B data.sqsh:/data:image-src=/` mounts the file and binds what is in it."""

from __future__ import annotations

import os

from kedge.container.mount_operations import OLD, SESSION, BindMount, FilePart, Fuse2fs, MakeDirectory
from kedge.container.mounting import plan_squashfs
from kedge.image.image_file import ImageFile, identify, make_absolute
from kedge.system.libc import MS_NODEV, MS_NOSUID, MS_RDONLY
from kedge.system.views import DirectoryView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import Bind
    from kedge.container.mount_operations import Operation
    from kedge.image.formats.sif.layout import SifDescriptor

_FILE_SYSTEMS = {1: "squashfs", 2: "ext3"}  # by SIF's number: those that can be mounted


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
            operations.append(MakeDirectory(place))
            if image.kind == "folder":  # unpacked on this node, for others too
                operations.append(BindMount(OLD + image.path, place, MS_NOSUID | MS_NODEV | MS_RDONLY))
                continue
            part = FilePart(OLD + image.path, image.offset, image.size, place)
            if image.file_system == "squashfs":
                operations.append(plan_squashfs(image.path, part))
            else:
                same = [bind for other, bind in enumerate(self.binds) if self._place(other) == place]
                operations.append(Fuse2fs(part, "ro" if all(bind.readonly for bind in same) else "rw"))
        return operations

    def _place(self, number: int) -> str:
        """Return where the file of a bind is mounted: with the first that has the same."""
        image = self.images[number]
        first = next(
            other for other, known in enumerate(self.images) if (known.path, known.offset) == (image.path, image.offset)
        )
        return _name_place(first)

    def settle(self, base: str) -> None:
        """Once they are mounted: let each bind begin where its contents are now."""
        for number, bind in enumerate(self.binds):
            inside = DirectoryView(base + self._place(number))
            wanted = bind.image_source or "/"
            if not inside.kind(wanted):
                from kedge.errors import FileProblem  # late: only for an error

                raise FileProblem(
                    f"{bind.source} contains no {wanted}", context={"option": f"{bind.origin} {bind.source}"}
                )
            bind.source = inside.locate(wanted)


def _identify(bind: Bind) -> ImageFile:
    image = _find_partition(bind) or identify(bind.source)
    if image.kind == "folder" or (bind.partition and image.kind != "sif"):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"{bind.source} is not an image file, so 'image-src' and 'id' do not apply to it",
            hint="leave the option out to bind the directory itself",
        )
    return image


def _find_partition(bind: Bind) -> ImageFile | None:
    """The partition of a SIF that `id=` names, else its first with data; None where its root file system is meant."""
    from kedge.image.formats.identify import FileKind, identify_file  # late, both: few binds come out of image files
    from kedge.image.formats.sif.reader import SifReader

    if not os.path.isfile(bind.source):
        return None
    with open(bind.source, "rb") as file:
        if identify_file(file) is not FileKind.SIF:
            return None
        reader = SifReader(file, bind.source)
        if bind.partition:
            return _take(bind.source, reader.find(int(bind.partition)))
        data = [descriptor for descriptor in reader.descriptors if descriptor.is_data]
    mountable = [descriptor for descriptor in data if descriptor.file_system in _FILE_SYSTEMS]
    return _take(bind.source, mountable[0]) if mountable else None


def _take(path: str, descriptor: SifDescriptor) -> ImageFile:
    """A file system in a SIF."""
    if descriptor.file_system not in _FILE_SYSTEMS:
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"object {descriptor.id} of {path} is not a file system that kedge can mount",
            hint=f"list the objects: kedge sif list {path}",
        )
    image = ImageFile(make_absolute(path), "sif")
    image.offset, image.size = descriptor.offset, descriptor.size
    image.file_system = _FILE_SYSTEMS[descriptor.file_system]
    return image


def _name_place(number: int) -> str:
    return f"{SESSION}/image{number}"
