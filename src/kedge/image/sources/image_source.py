# SPDX-License-Identifier: BSD-3-Clause
"""An opened image, wherever it came from: what a target needs to write it in another form.

`fill(sink)` produces the file tree, giving every file's bytes to the sink; it is called once. Layered images (registry,
OCI layout, archives) can also be passed on layer by layer, which is what OCI targets do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from kedge.base.frozen import frozen
from kedge.base.manifest import ImageConfig, Manifest
from kedge.base.tree import ContentSink, ContentSource, Node, copy_tree
from kedge.image.formats.singularityd.documents import ConversionRecord, SourceRecord
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.limits import FlattenOptions
from kedge.image.workplace import Workplace


def choose_reading(workplace: Workplace) -> FlattenOptions:
    """How layers are read by a command with these settings."""
    return FlattenOptions(threads=workplace.threads, ahead=workplace.ahead, progress=workplace.progress)


class ImageSource(Protocol):
    """What every kind of opened image offers."""

    @property
    def config(self) -> ImageConfig | None:
        """The OCI config, where the image has one."""
        ...

    @property
    def record(self) -> SourceRecord:
        """Return where the image came from, for the labels and the definition file."""
        ...

    @property
    def is_decorated(self) -> bool:
        """Whether `.singularity.d` is there already and must be kept."""
        ...

    def fill(self, sink: ContentSink) -> Node:
        """The file tree, its contents given to `sink`."""
        ...

    def close(self) -> None:
        """Release files; calling it twice does no harm."""
        ...


@dataclass(slots=True)
class LayeredImage:
    """An image made of tar layers."""

    manifest: Manifest
    config_bytes: bytes
    config: ImageConfig
    layers: tuple[LayerSource, ...]
    record: SourceRecord
    options: FlattenOptions
    on_close: Callable[[], None] | None = None
    is_decorated: bool = False
    has_documents: bool = False  # a definition file wrote what `inspect` shows into the layers

    def fill(self, sink: ContentSink) -> Node:
        """Flatten the layers, top first."""
        return flatten(self.layers, sink, self.options)

    def close(self) -> None:
        """Stop downloads that nobody reads any more."""
        if self.on_close is not None:
            self.on_close()
            self.on_close = None


@frozen
class PackedTree:
    """The tree as the SquashFS bytes it was read from: a stretch of a file."""

    file: BinaryIO
    offset: int
    size: int


@dataclass(slots=True)
class TreeImage:
    """An image that is a file tree already: a SIF, a bare SquashFS, a directory."""

    root: Node
    source: ContentSource
    record: SourceRecord
    config: ImageConfig | None = None
    objects: ConversionRecord | None = None  # what a SIF carries beside its file system
    packed: PackedTree | None = None
    on_close: Callable[[], None] | None = None
    is_decorated: bool = True

    def fill(self, sink: ContentSink) -> Node:
        """Copy the tree."""
        return copy_tree(self.root, self.source, sink)

    def close(self) -> None:
        """Close the image file."""
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
