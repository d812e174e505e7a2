# SPDX-License-Identifier: BSD-3-Clause
"""Looks at several tags of a repository at once: the config of each, and the architectures there are."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kedge.compat.read_traits import read_config_traits
from kedge.compat.tables import Tables
from kedge.compat.traits import ImageTraits
from kedge.errors import KedgeError, RegistryProtocolError, UsageError
from kedge.frozen import frozen
from kedge.model.manifest import MAXIMUM_CONFIG, Descriptor, Index, Manifest, parse_config
from kedge.model.platform import Platform
from kedge.ops.known_tables import Repository
from kedge.ops.workplace import Workplace

if TYPE_CHECKING:
    from kedge.registry.client import RegistryClient

MOST_LOOKS = 100  # two or three requests each
_DEEPEST = 3  # indexes one in the other


@frozen
class Look:
    """What one tag's config tells; `problem` where it could not be read."""

    tag: str
    traits: ImageTraits | None = None
    architectures: tuple[str, ...] = ()
    problem: str = ""


def look_at_tags(
    tags: Sequence[str], repository: Repository, workplace: Workplace, tables: Tables, *, architecture: str = ""
) -> list[Look]:
    """The config of each tag, read a few at a time; a tag that cannot be read says why, and stops nobody."""
    from kedge.registry.client import RegistryClient

    if len(tags) > MOST_LOOKS:
        raise UsageError(
            f"--look reads up to {MOST_LOOKS} images, and these are {len(tags)}",
            hint="narrow it: --limit, --since, --match",
        )
    platform = Platform.parse(architecture) if architecture else workplace.platform
    task = workplace.progress.task(f"configs of {repository.name}", len(tags), "images")
    with workplace.open_access() as access:
        client = RegistryClient(repository.registry, access)

        def look(tag: str) -> Look:
            try:
                return _look(client, repository, tag, platform, tables)
            except KedgeError as problem:
                return Look(tag, problem=problem.message)
            finally:
                task.advance(1)

        try:
            with ThreadPoolExecutor(workplace.settings.download_connections) as pool:
                return list(pool.map(look, tags))
        finally:
            task.finish()


def _look(client: RegistryClient, repository: Repository, tag: str, platform: Platform, tables: Tables) -> Look:
    name = f"{repository.name}:{tag}"
    document = client.get_manifest(repository.path, tag)
    listed: tuple[str, ...] = ()
    for _ in range(_DEEPEST):
        if isinstance(document, Manifest):
            break
        listed = listed or _list_architectures(document)
        document = client.get_manifest(repository.path, str(_choose(document, platform, name).digest))
    if isinstance(document, Index):
        raise RegistryProtocolError(f"{name}: more than {_DEEPEST} indexes stand one in the other")
    raw = client.read_blob(repository.path, document.config, MAXIMUM_CONFIG)
    traits = read_config_traits(name, parse_config(raw, f"the config of {name}"), tables)
    return Look(tag, traits, listed or ((traits.architecture,) if traits.architecture else ()))


def _choose(index: Index, platform: Platform, name: str) -> Descriptor:
    """The version for a platform; where there is none, any, which tells of the others, too."""
    for entry in index.manifests:
        if entry.platform is not None and platform.accepts(entry.platform):
            return entry
    usable = [entry for entry in index.manifests if entry.platform is None or entry.platform.architecture != "unknown"]
    if not usable:
        raise RegistryProtocolError(f"the index of {name} names no image")
    return usable[0]


def _list_architectures(index: Index) -> tuple[str, ...]:
    platforms = [entry.platform for entry in index.manifests if entry.platform is not None]
    return tuple(dict.fromkeys(each.architecture for each in platforms if each.architecture != "unknown"))
