# SPDX-License-Identifier: BSD-3-Clause
"""Where an image goes, as users write it: a name whose ending says the form, `FORM:PATH[:TAG]`, or with `--format`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import OutputExists, UsageError
from kedge.model.image_argument import is_address
from kedge.model.image_format import ImageFormat
from kedge.model.reference import Reference, Transport
from kedge.posix.files import refuse_existing, require_writable

# What an output name says about the form, longest endings first. Apptainer's users call SIF files .simg, too.
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
_TAGGED = (ImageFormat.OCI, ImageFormat.OCI_ARCHIVE, ImageFormat.DOCKER_ARCHIVE)


@dataclass(frozen=True, slots=True)
class ImageOutput:
    """A target: its path, its form where the text says it, and what OCI forms call the image."""

    path: Path
    form: ImageFormat | None = None
    tag: str | None = None

    def require_form(self) -> ImageFormat:
        """The form, or an error that lists the ways to say it."""
        if self.form is not None:
            return self.form
        raise UsageError(
            f"'{self.path}' does not say which image format to write",
            hint=f"give --format ({', '.join(ImageFormat)}), or an ending such as .sif, .sqsh, .oci.tar",
        )

    def refuse_existing(self, *, force: bool) -> None:
        """Raise at once where writing would fail in the end."""
        path, form = self.path, self.require_form()
        if path.is_dir() and not path.is_symlink() and not form.is_directory:
            raise OutputExists(f"{path} is a directory", hint="name a file, or another directory with --dir")
        refuse_existing(path, force=force)
        require_writable(path.parent)


def read_output(text: str, form: ImageFormat | None = None) -> ImageOutput:
    """Read a target; `form` is what `--format` says. `./oci:x` is a plain file name, and so is `pytorch:21.08.sif`."""
    if text == "-":
        raise UsageError("an image cannot be written to standard output", hint="name a file; ./- is one, too")
    if is_address(text):
        raise UsageError(
            f"'{text}' is not a file to write", hint="to put an image into a registry: kedge push IMAGE REFERENCE"
        )
    prefix, colon, rest = text.partition(":")
    if not colon or prefix not in set(ImageFormat):
        return ImageOutput(Path(text), form or _guess_form(text))
    named = ImageFormat(prefix)
    if form not in (None, named):
        raise UsageError(f"'{text}' is an {named} image, but --format says {form}", hint="leave one of the two out")
    if named in _TAGGED:
        reference = Reference.parse(text)
        return ImageOutput(Path(reference.path), named, reference.tag)
    if not rest:
        raise UsageError(f"'{text}' names no path", hint=f"write it as {prefix}:PATH")
    return ImageOutput(Path(rest), named)


def _guess_form(text: str) -> ImageFormat | None:
    found = next((form for ending, form in _ENDINGS if text.lower().endswith(ending)), None)
    return ImageFormat.SANDBOX if found is None and text.endswith("/") else found


def choose_tag(source: Reference, form: ImageFormat, tag: str | None = None) -> str | None:
    """What a layout or archive calls the image: what was asked for, else what the source is called."""
    if tag or form not in _TAGGED:
        return tag
    if form is not ImageFormat.DOCKER_ARCHIVE:
        return source.tag or "latest"
    if source.transport is Transport.DOCKER:
        from kedge.ops.sources.fetch_layers import source_name  # late: a pull of what is stored needs none of it

        name = source_name(source).partition("@")[0]
    elif source.tag and ":" in source.tag:
        return source.tag  # of another archive, a whole name
    else:
        stem = source.default_name("").partition("_latest")[0]
        name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "image"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
