# SPDX-License-Identifier: BSD-3-Clause
"""The most frequent mistake with GPUs: a job has one, the image is made for it, and --nv was forgotten."""

from __future__ import annotations

from kedge.runtime.devices.image_variables import read_image_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import HostFacts, ImageFacts
    from kedge.runtime.options import RunOptions

_SIGNS = ("CUDA_VERSION", "NVIDIA_VISIBLE_DEVICES")


def explain_unasked(options: RunOptions, host: HostFacts, image: ImageFacts) -> list[str]:
    """A hint where a GPU was given to this process and the image is made for CUDA; empty elsewhere."""
    given = host.environ.get("CUDA_VISIBLE_DEVICES", "").strip().lower()
    if given in ("", "-1", "nodevfiles") or any("nvidia.com/" in name for name in options.device):
        return []
    if not any(read_image_variable(image, name) for name in _SIGNS):
        return []
    return [
        "This image is made for NVIDIA GPUs and you have one, but without --nv it is not to be seen inside: add --nv."
    ]
