# SPDX-License-Identifier: BSD-3-Clause
"""`--mpi-mode bind`: the launch as it is when the host's MPI stands in for the image's."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import replace
from kedge.cluster.mpi import MpiHost, MpiImage
from kedge.launch.bind_host_mpi import bind_host_mpi, read_image_libraries
from kedge.launch.request import LaunchRequest


def use_host_mpi(
    request: LaunchRequest, image: MpiImage, host: MpiHost, environ: Mapping[str, str]
) -> tuple[LaunchRequest, MpiImage, tuple[str, ...]]:
    """Request and image with the host's MPI in the container, and why."""
    binding = bind_host_mpi(image, host, environ, read_image_libraries(request.image, environ))
    reason = (
        f"{binding.mpi.title} of the host is in the container ({len(binding.libraries)} libraries): --mpi-mode bind"
    )
    changed = replace(request, options=(*request.options, *binding.options))
    return changed, replace(image, mpis=(binding.mpi,), is_searched=True), (reason,)
