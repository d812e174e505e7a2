# SPDX-License-Identifier: BSD-3-Clause
"""Convert: an image on this host into another format, or the same format with another compression."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import UsageError
from kedge.frozen import JsonValue
from kedge.model.image_format import ImageFormat
from kedge.model.reference import Reference
from kedge.ops.images.output_name import ImageOutput, choose_tag, read_output
from kedge.ops.images.recompress_sif import repack_sif
from kedge.ops.images.write_image import choose_options, write_image
from kedge.ops.setup.workplace import Workplace
from kedge.ops.sources.classify import SourceKind, classify
from kedge.ops.sources.fetch_sif import check_architecture
from kedge.ops.sources.open_local import open_local_image


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """What to convert, where to, and as what."""

    source: Reference
    target: ImageOutput
    force: bool = False


@dataclass(frozen=True, slots=True)
class Converted(JsonValue):
    """What a conversion did."""

    json_names = (("form", "format"),)

    source: str
    output: Path
    form: ImageFormat
    size: int | None  # of a file; None for a directory


def read_target(text: str, form: ImageFormat | None = None, tag: str | None = None) -> ImageOutput:
    """The target of a conversion: as `read_output`, and a name without any ending is a directory."""
    output = read_output(text, form)
    named = output.form or (ImageFormat.SANDBOX if "." not in Path(text).name else None)
    return ImageOutput(output.path, ImageOutput(output.path, named).require_form(), tag or output.tag)


def convert(request: ConvertRequest, workplace: Workplace, *, dry_run: bool = False) -> Converted:
    """Convert the image; the target appears whole or not at all."""
    source, target, form = request.source, request.target, request.target.require_form()
    origin = classify(source)
    if not origin.is_local:
        raise UsageError(f"{source.redacted} is not on this host", hint=f"kedge pull --format {form} {source.redacted}")
    if not Path(source.path).exists() and target.path.exists():
        words = " ".join(shlex.quote(str(path)) for path in (target.path, source.path))
        raise UsageError(
            f"{source.path} does not exist, and the output {target.path} does",
            hint=f"the image to read comes first: kedge convert {words}",
        )
    target.refuse_existing(force=request.force)
    if dry_run:
        open_local_image(source, workplace).close()
        return Converted(str(source), target.path, form, None)
    tag = choose_tag(source, form, target.tag)
    options = choose_options(workplace, force=request.force, tag=tag)
    if form is ImageFormat.SIF and origin.kind is SourceKind.SIF_FILE:
        check_architecture(Path(source.path), source, workplace)
        repack_sif(Path(source.path), target.path, options)
    else:
        image = open_local_image(source, workplace)
        try:
            write_image(target.path, form, image, options)
        finally:
            image.close()
    size = None if form.is_directory else target.path.stat().st_size
    return Converted(str(source), target.path, form, size)
