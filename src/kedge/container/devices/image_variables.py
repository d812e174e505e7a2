# SPDX-License-Identifier: BSD-3-Clause
"""What an image's own environment says, as far as devices need it: read, not evaluated, before anything is started."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.container.facts import ImageFacts
    from kedge.container.options import RunOptions

_SCRIPTS = "/.singularity.d/env"
_MAXIMUM_VALUE = 16384


def read_image_variable(image: ImageFacts, name: str) -> str:
    """The value an image gives to a variable, by its OCI configuration or its environment scripts; empty if none."""
    marker = f'"{name}='.encode()
    start = image.oci_config.find(marker)
    if start >= 0:
        start += len(marker)
        end = image.oci_config.find(b'"', start, start + _MAXIMUM_VALUE)
        return image.oci_config[start:end].decode(errors="replace") if end >= 0 else ""
    value = ""
    for script in image.view.names(_SCRIPTS):
        if script.startswith("10-") or script == "90-environment.sh":
            text = (image.view.read(f"{_SCRIPTS}/{script}", 1 << 18) or b"").decode(errors="replace")
            value = _find_export(text, name) or value
    return value


def _find_export(text: str, name: str) -> str:
    """`export A="${A:-"x"}"` and `export A=x`, as converters write them."""
    value = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("export "):
            line = line[7:].lstrip()
        if not line.startswith(name + "="):
            continue
        raw = line[len(name) + 1 :]
        for default in (f"${{{name}:-", f"${{{name}-"):
            if default in raw:
                raw = raw.partition(default)[2].rpartition("}")[0]
        value = raw.replace('"', "").replace("'", "").replace("\\", "")
    return value


def read_user_variable(options: RunOptions, environ: Mapping[str, str], name: str) -> str | None:
    """The value the user gives to a variable of the container, with --env or APPTAINERENV_NAME; None if none."""
    for words in reversed(options.env):
        for word in words.split(","):
            if word.startswith(name + "="):
                return word[len(name) + 1 :]
    return environ.get(f"APPTAINERENV_{name}", environ.get(f"SINGULARITYENV_{name}"))
