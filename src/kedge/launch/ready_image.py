# SPDX-License-Identifier: BSD-3-Clause
"""Before a launch: an image that is named by a reference is fetched once, here, and means the same on every node.

Without this the first ranks of all nodes would ask the registry, which many compute nodes cannot reach, and a tag
that moves meanwhile would give them different images. What is fetched here is in the cache that nodes share: another
node only unpacks it, by one of its ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from kedge.base.frozen import replace
from kedge.base.image_argument import find_path
from kedge.launch.request import LaunchRequest
from kedge.launch.surroundings import read_allocation_here
from kedge.system.settings import Settings


def make_image_ready(
    request: LaunchRequest, settings: Settings, environ: Mapping[str, str], warn: Callable[[str], None]
) -> LaunchRequest:
    """The request for an image that is on this node; raises what the pull raises. Files are as they are."""
    if find_path(request.image) or request.image.startswith("instance:"):
        return request
    from kedge.container.flags import parse_words  # late, all of these: most images are files
    from kedge.container.start_container import unpack_in_child
    from kedge.image.node_cache import is_volatile

    options = parse_words("exec", [*request.options, request.image, "true"], environ)
    if is_volatile(request.image) or "--disable-cache" in options.pull_words:
        return request
    image = request.image
    if options.pull != "never" and read_allocation_here(environ).node_count > 1:
        image = _pin(image, settings, warn)
    if not _is_here(image, options.pull, options.pull_words, environ):
        unpack_in_child(options, image, may_mount=True)
    return replace(request, image=image, options=(*request.options, "--pull", "missing"))


def _pin(image: str, settings: Settings, warn: Callable[[str], None]) -> str:
    """The image by its digest of this moment; as it is where the registry does not answer."""
    from kedge.cluster.job import NOW, StagedImage
    from kedge.image.pin_digest import pin_image

    pin = pin_image(image, StagedImage(image, when=NOW), settings, "")
    for warning in pin.warnings:
        warn(warning)
    return pin.reference or image


def _is_here(image: str, pull: str, words: list[str], environ: Mapping[str, str]) -> bool:
    """Whether the start of a container would ask nobody."""
    from kedge.image.node.tag_lookups import find_current
    from kedge.image.node_cache import find_by_reference

    if pull in ("missing", "never"):
        return bool(find_by_reference(image, os.uname().machine, environ))
    return pull == "auto" and bool(find_current(image, os.uname().machine, environ, words))
