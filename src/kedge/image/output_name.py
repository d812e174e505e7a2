# SPDX-License-Identifier: BSD-3-Clause
"""The output of a verb as users write it: a name whose ending says the format, `FORMAT:PATH[:TAG]`, or --format."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.image_argument import is_address
from kedge.base.image_format import ImageFormat
from kedge.base.reference import Reference, Transport
from kedge.errors import OutputExists, UsageError
from kedge.image.formats.identify import ARCHIVES, FileKind, identify_file
from kedge.system.files import explained, refuse_existing, require_writable

# The format that an ending stands for, longest endings first. Apptainer's users call SIF files .simg, too.
_ENDINGS = (
    (".oci.tar", ImageFormat.OCI_ARCHIVE),
    (".docker.tar", ImageFormat.DOCKER_ARCHIVE),
    (".squashfs", ImageFormat.SQUASHFS),
    (".sqfs", ImageFormat.SQUASHFS),
    (".sqsh", ImageFormat.SQUASHFS),
    (".simg", ImageFormat.SIF),
    (".sif", ImageFormat.SIF),
    (".oci", ImageFormat.OCI),
)
# What may stand at a target of a format and be replaced there; an empty file holds nothing to lose.
_REPLACED = {
    ImageFormat.SIF: {FileKind.SIF},
    ImageFormat.SQUASHFS: {FileKind.SQUASHFS},
    ImageFormat.OCI_ARCHIVE: ARCHIVES,
    ImageFormat.DOCKER_ARCHIVE: ARCHIVES,
}
_TAGGED = (ImageFormat.OCI, ImageFormat.OCI_ARCHIVE, ImageFormat.DOCKER_ARCHIVE)


@frozen
class ImageOutput:
    """A target: its path, its format if the text says it, and the name inside OCI formats."""

    path: Path
    form: ImageFormat | None = None
    tag: str | None = None

    def require_form(self) -> ImageFormat:
        """The format, or an error that lists the ways to choose it."""
        if self.form is not None:
            return self.form
        raise UsageError(
            f"cannot tell the format of '{self.path}' from its name",
            hint=f"add --format ({', '.join(ImageFormat)}), or use an ending such as .sif, .sqsh or .oci.tar",
        )

    def refuse_existing(self, *, force: bool) -> None:
        """Raise at once if writing would fail in the end."""
        path, form = self.path, self.require_form()
        if path.is_dir() and not path.is_symlink() and not form.is_directory:
            raise OutputExists(f"{path} is a directory", hint="name a file, or another directory with --dir")
        _refuse_other_kind(path, form)
        refuse_existing(path, force=force)
        require_writable(path.parent)


def _refuse_other_kind(path: Path, form: ImageFormat) -> None:
    """Raise where something stands that is no image of this format: not even --force replaces anything else."""
    with explained(path):
        if path.is_dir():
            names = {each.name for each in path.iterdir()}
            marks = {"oci-layout"} if form is ImageFormat.OCI else {".singularity.d", "ch"}
            found = "a directory that is no such image" if names and not names & marks else ""
        elif path.is_file():
            with path.open("rb") as file:
                kind = identify_file(file)
            found = "" if kind in _REPLACED.get(form, ()) or kind is FileKind.EMPTY else str(kind)
        else:
            return
    if found:
        raise OutputExists(
            f"{path} is {found}, and kedge replaces images of the format {form} only",
            hint=f"choose another name, or remove it yourself: rm{' -r' * path.is_dir()} {shlex.quote(str(path))}",
        )


def read_output(text: str, form: ImageFormat | None = None) -> ImageOutput:
    """Read a target; `form` is what `--format` says. `./oci:x` is a plain file name, and so is `pytorch:21.08.sif`."""
    if text == "-":
        raise UsageError("cannot write an image to standard output", hint="name a file; ./- is a file called -")
    if is_address(text):
        raise UsageError(
            f"'{text}' is not a file to write", hint="put an image into a registry with: kedge push IMAGE REFERENCE"
        )
    prefix, colon, path = text.partition(":")
    if not colon or prefix not in set(ImageFormat):
        return ImageOutput(Path(text), form or _guess_form(text))
    named = ImageFormat(prefix)
    if form not in (None, named):
        raise UsageError(f"'{text}' is an {named} image, but --format says {form}", hint="leave out one of the two")
    if named in _TAGGED:
        reference = Reference.parse(text)
        return ImageOutput(Path(reference.path), named, reference.tag)
    if not path:
        raise UsageError(f"'{text}' names no path", hint=f"write it as {prefix}:PATH")
    return ImageOutput(Path(path), named)


def _guess_form(text: str) -> ImageFormat | None:
    form = next((form for ending, form in _ENDINGS if text.lower().endswith(ending)), None)
    return ImageFormat.SANDBOX if form is None and text.endswith("/") else form


def choose_tag(source: Reference, form: ImageFormat, tag: str | None = None) -> str | None:
    """The name of the image inside a layout or archive: the requested one, else that of the source."""
    if tag or form not in _TAGGED:
        return tag
    if form is not ImageFormat.DOCKER_ARCHIVE:
        return source.tag or "latest"
    if source.transport is Transport.DOCKER:
        from kedge.image.sources.fetch_layers import source_name  # late: a pull of what is stored needs none of it

        name = source_name(source).partition("@")[0]
    elif source.tag and ":" in source.tag:
        return source.tag  # of another archive, a whole name
    else:
        stem = source.default_name("").partition("_latest")[0]
        name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "image"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
