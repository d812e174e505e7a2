# SPDX-License-Identifier: BSD-3-Clause
"""Words that stand where the image should be because another tool's option was meant: `-e A=1`, `-v /data:/data`.

Imported for a mistake only.
"""

from __future__ import annotations

import os

from kedge.base.image_argument import is_reference
from kedge.container.env_scripts import split_pairs
from kedge.errors import KedgeError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def explain_misread(image: str, variables: Sequence[str], short: Sequence[str]) -> KedgeError | None:
    """The mistake, where there is one. `variables` are the values of --env, `short` the one-letter options given."""
    for text in variables:
        split_pairs(text)  # its own error comes before one about an image
    if is_reference(image) or os.path.lexists(image):
        return None
    name, has_value, _ = image.partition("=")
    source, _, target = image.partition(":")
    place = f"'{image}' is in the place of the image"
    if has_value and name.isidentifier():
        if "-e" in short:
            return UsageError(f"-e is short for --cleanenv, so {place}", hint=f"to set a variable: --env {image}")
        return UsageError(place, hint=f"--env takes one variable; repeat it: --env A=1 --env {image}")
    if "-v" in short and source and target.startswith("/"):
        return UsageError(f"-v is short for --verbose, so {place}", hint=f"to bind a directory: -B {image}")
    if "-p" in short and source.isdecimal() and target.isdecimal():
        return UsageError(f"-p is short for --pid, so {place}", hint="leave it out: containers use the host's network")
    return None
