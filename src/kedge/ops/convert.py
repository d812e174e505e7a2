# SPDX-License-Identifier: BSD-3-Clause
"""Convert: an image on this machine into another form, or the same form with another compression."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kedge.errors import OutputExists, UsageError
from kedge.model.form import Form
from kedge.model.reference import Reference
from kedge.ops.image_target import write_image
from kedge.ops.open_local import open_local_image
from kedge.ops.workplace import Workplace

# What an output name says about the form, longest endings first.
_ENDINGS = (
    (".oci.tar", Form.OCI_ARCHIVE),
    (".docker.tar", Form.DOCKER_ARCHIVE),
    (".squashfs", Form.SQUASHFS),
    (".sqfs", Form.SQUASHFS),
    (".sqsh", Form.SQUASHFS),
    (".simg", Form.SQUASHFS),
    (".sif", Form.SIF),
    (".oci", Form.OCI),
)


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """What to convert, where to, and as what."""

    source: Reference
    target: Path
    form: Form
    force: bool = False
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion did."""

    source: str
    target: Path
    form: Form
    size: int | None  # of a file; None for a folder

    def as_dict(self) -> dict[str, object]:
        """The result as `--json` prints it."""
        return {"source": self.source, "output": str(self.target), "format": str(self.form), "size": self.size}


def read_target(text: str, form: Form | None) -> tuple[Path, Form, str | None]:
    """The target's path, form and tag: from `--format`, from a prefix (`oci:PATH:TAG`), or from how the name ends."""
    prefix, colon, rest = text.partition(":")
    if form is None and colon and prefix in (Form.OCI, Form.OCI_ARCHIVE, Form.DOCKER_ARCHIVE, Form.SANDBOX):
        path, _, tag = rest.partition(":")
        if not path:
            raise UsageError(f"'{text}' names no path", hint=f"write it as {prefix}:PATH or {prefix}:PATH:TAG")
        return Path(path), Form(prefix), tag or None
    if form is None:
        form = next((form for ending, form in _ENDINGS if text.endswith(ending)), None)
    if form is None and (text.endswith("/") or "." not in Path(text).name):
        form = Form.SANDBOX
    if form is None:
        raise UsageError(
            f"'{text}' does not say which form it should have",
            hint=f"give --format ({', '.join(Form)}), or an ending such as .sif, .sqsh, .oci.tar",
        )
    return Path(text), form, None


def convert(request: ConvertRequest, workplace: Workplace) -> Converted:
    """Do it; the target appears whole or not at all."""
    if not request.source.is_local:
        raise UsageError(
            f"{request.source} is not on this machine", hint=f"kedge pull --format {request.form} {request.source}"
        )
    if not request.force and (request.target.exists() or request.target.is_symlink()):
        raise OutputExists(f"{request.target} exists already", hint="give --force to replace it, or another name")
    image = open_local_image(request.source, workplace)
    try:
        options = workplace.write_options(force=request.force, tag=request.tag or "latest")
        write_image(request.target, request.form, image, options)
    finally:
        image.close()
    size = None if request.form.is_folder else request.target.stat().st_size
    return Converted(str(request.source), request.target, request.form, size)
