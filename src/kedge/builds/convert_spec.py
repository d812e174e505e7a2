# SPDX-License-Identifier: BSD-3-Clause
"""`kedge build OUT IMAGE`: an image instead of a recipe is pulled or converted, as `kedge pull` and `convert` do it."""

from __future__ import annotations

import time
from pathlib import Path

from kedge.base.image_argument import is_reference
from kedge.base.image_format import ImageFormat
from kedge.base.reference import Reference
from kedge.builds.recipe_input import STANDARD_INPUT
from kedge.builds.request import BuildRequest, BuildResult
from kedge.errors import FileProblem, UsageError
from kedge.image.sources.classify import SourceKind, classify_path
from kedge.image.workplace import Workplace


def names_image(request: BuildRequest) -> bool:
    """Whether the request names an image, and not a recipe."""
    if request.spec == STANDARD_INPUT or request.text is not None:
        return False
    path = Path(request.spec)
    if path.exists():
        return classify_path(path) is not SourceKind.OTHER_PATH
    if not is_reference(request.spec):
        raise FileProblem(
            f"{request.spec} does not exist",
            context={"path": request.spec},
            hint="name a definition file, a Dockerfile, or an image such as docker://ubuntu:24.04",
        )
    return True


def convert_spec(request: BuildRequest, workplace: Workplace) -> BuildResult:
    """Write the image in the format that is asked for."""
    began = time.monotonic()
    if request.updates:
        raise UsageError(f"--update needs a definition file, and {request.spec} is an image", hint="leave out --update")
    target = request.output.path
    if target is None:
        raise UsageError(
            f"{request.spec} is an image, and there is no output to write it to",
            hint=f"name the output: kedge build OUTPUT.sif {request.spec}",
        )
    reference = Reference.parse(request.spec)
    digest = _convert(reference, request, workplace) if reference.is_local else _pull(reference, request, workplace)
    size = 0 if target.is_dir() else target.stat().st_size
    return BuildResult(
        reference=str(target), digest=digest, path=target, size=size, seconds=time.monotonic() - began, steps=()
    )


def _convert(reference: Reference, request: BuildRequest, workplace: Workplace) -> str:
    from kedge.image.convert import ConvertRequest, convert
    from kedge.image.output_name import ImageOutput

    output = request.output
    assert output.path is not None
    target = ImageOutput(output.path, output.form, output.tag or None)
    convert(ConvertRequest(reference, target, output.force), workplace)
    return ""


def _pull(reference: Reference, request: BuildRequest, workplace: Workplace) -> str:
    from kedge.image.pull import PullRequest, pull

    output = request.output
    form: ImageFormat = output.form
    wish = PullRequest(
        reference, output.path, form, output.force, offline=request.pull == "never", tag=output.tag or None
    )
    done = pull(wish, workplace)
    return str(done.digest or "")
