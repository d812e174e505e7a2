# SPDX-License-Identifier: BSD-3-Clause
"""What a stage begins with: an image of any kind, opened so that its layers, config and files can be built on.

A base is identified before anything of it is fetched: a build whose steps are all in the cache needs its manifest only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedge.model.manifest import ImageConfig
from kedge.model.platform import Platform
from kedge.ops.setup.workplace import Workplace
from kedge.ops.sources.image_source import LayeredImage
from kedge.recipe.steps import Base, refuse_recipe
from kedge.store.store import Store


@dataclass(slots=True)
class OpenedBase:
    """A base that is known; nothing of it need be on this host yet."""

    reference: str  # as locks and records name it; empty for scratch
    key: str  # what is in it: the same text for the same files and config
    config: ImageConfig
    digest: str = ""  # of the manifest, where there is one
    _open: Callable[[], LayeredImage | None] = field(default=lambda: None)
    _unpack: Callable[[], Path | None] = field(default=lambda: None)
    _image: LayeredImage | None = None

    @property
    def section(self) -> Mapping[str, Any]:
        """The `config` object of the image config."""
        return self.config.section

    def open_image(self) -> LayeredImage | None:
        """The layers, lowest first, with manifest and config; None for an empty base. Downloads begin here."""
        if self._image is None:
            self._image = self._open()
        return self._image

    def unpack(self) -> Path | None:
        """The directory on this node that holds the base's files; None for an empty base."""
        return self._unpack()

    def close(self) -> None:
        """Release what `open_image` opened."""
        if self._image is not None:
            self._image.close()
            self._image = None


def open_base(
    base: Base, workplace: Workplace, store: Store, *, policy: str = "auto", lock: Mapping[str, str] | None = None
) -> OpenedBase:
    """Open what a stage begins with; `lock` says which digest a reference means. Stages are the caller's."""
    del store, policy, lock
    if base.agent == "scratch":
        return OpenedBase("", "scratch", ImageConfig(_choose_platform(base, workplace)))
    raise refuse_recipe(base.place, f"Bootstrap: {base.agent} is not known")


def _choose_platform(base: Base, workplace: Workplace) -> Platform:
    return Platform.parse(base.platform) if base.platform else workplace.platform
