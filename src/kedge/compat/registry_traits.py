# SPDX-License-Identifier: BSD-3-Clause
"""What manifest and config of an image of layers tell: one reading for all who look at tags of a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.base.manifest import ImageConfig, Index, Manifest
from kedge.base.reference import Reference, Transport
from kedge.compat.contents.read_traits import read_config_traits
from kedge.compat.traits import ImageTraits, Layer
from kedge.image.clean_config import clean_text, list_commands, shorten_command
from kedge.image.sources.resolve import Resolved, read_config, refuse_artifacts

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.image.store.store import Store


def read_registry_traits(resolved: Resolved, store: Store, tables: Tables) -> ImageTraits:
    """Return what is in an image that a registry has, by its config alone. Raises for what is no image."""
    refuse_artifacts(resolved)
    _, config = read_config(resolved, store)
    traits = read_layered_traits(name_reference(resolved.reference), resolved.manifest, config, tables)
    if resolved.index is None:
        return traits
    return replace(traits, architectures=_list_index_architectures(resolved.index) or traits.architectures)


def read_layered_traits(name: str, manifest: Manifest, config: ImageConfig, tables: Tables) -> ImageTraits:
    """What its config tells, with the sizes of its layers."""
    traits = read_config_traits(name, config, tables)
    return replace(
        traits,
        architectures=(traits.architecture,) if traits.architecture else (),
        digest=str(manifest.digest),
        size=sum(layer.size for layer in manifest.layers),
        layers=_list_layers(manifest, config),
    )


def name_reference(reference: Reference) -> str:
    """The image as people are told of it: no scheme, no password."""
    if reference.registry and reference.repository:
        return f"{reference.registry}/{reference.name}"
    return reference.path if reference.transport is Transport.FILE else reference.redacted


def _list_index_architectures(index: Index) -> tuple[str, ...]:
    """The architectures that an index has images for, in its order."""
    platforms = [entry.platform for entry in index.manifests if entry.platform is not None]
    usable = [
        platform.architecture for platform in platforms if platform.os == "linux" and platform.architecture != "unknown"
    ]
    return tuple(dict.fromkeys(clean_text(name, 20) for name in usable))[:50]


def _list_layers(manifest: Manifest, config: ImageConfig) -> tuple[Layer, ...]:
    """The layers, lowest first, with the history's line of each where the history has as many as there are."""
    entries = [entry for entry in config.history if not entry.get("empty_layer")]
    lines = list_commands(entries) if len(entries) == len(manifest.layers) else ("",) * len(manifest.layers)
    if len(lines) != len(manifest.layers):
        lines = ("",) * len(manifest.layers)
    return tuple(
        Layer(layer.size, str(layer.digest), shorten_command(line))
        for layer, line in zip(manifest.layers, lines, strict=True)
    )
