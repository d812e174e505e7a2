# SPDX-License-Identifier: BSD-3-Clause
"""The most frequent mistake with GPUs: the job has one, the image is built for it, and the flag is missing."""

from __future__ import annotations

from kedge.container.devices.image_variables import read_image_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts, ImageFacts
    from kedge.container.options import RunOptions, Vendor


def warn_of_forgotten_flag(vendor: Vendor, options: RunOptions, host: HostFacts, image: ImageFacts) -> list[str]:
    """A hint where a GPU was given to this process and the image is built for it; empty elsewhere."""
    granted = host.environ.get(vendor.grant, "").strip().lower()
    if granted in ("", "-1", "nodevfiles"):
        return []
    if vendor.cdi_kind and any(vendor.cdi_kind.partition("/")[0] + "/" in name for name in options.device):
        return []
    if not any(read_image_variable(image, name) for name in vendor.image_variables):
        return []
    return [
        f"This image is built for {vendor.name} GPUs and this process has one: add {vendor.flag} to see it inside the "
        "container."
    ]
