# SPDX-License-Identifier: BSD-3-Clause
"""Looks at several tags of a repository at once: the config of each, and the architectures there are."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kedge.base.frozen import frozen, replace
from kedge.base.frozen import replace as put
from kedge.base.reference import Reference
from kedge.compat.known_tables import Repository
from kedge.compat.registry_traits import read_registry_traits
from kedge.compat.tables.load import Tables
from kedge.compat.traits import ImageTraits
from kedge.errors import KedgeError, UsageError
from kedge.image.sources.resolve import resolve
from kedge.image.workplace import Workplace

_MOST_LOOKS = 100  # two or three requests each


@frozen
class _TagFacts:
    """What one tag's config tells; `problem` where it could not be read."""

    tag: str
    traits: ImageTraits | None = None
    problem: str = ""


def read_tag_configs(
    tags: Sequence[str], repository: Repository, workplace: Workplace, tables: Tables, *, architecture: str = ""
) -> list[_TagFacts]:
    """The config of each tag, read a few at a time; a tag that cannot be read says why, and stops nobody."""
    from kedge.image.registry.client import RegistryClient

    if len(tags) > _MOST_LOOKS:
        raise UsageError(
            f"--look reads up to {_MOST_LOOKS} images, and these are {len(tags)}",
            hint="narrow it: --limit, --since, --match",
        )
    if architecture:
        workplace = replace(workplace, settings=put(workplace.settings, architecture=architecture))
    task = workplace.progress.task(f"configs of {repository.name}", len(tags), "images")
    with workplace.hurry().open_access() as access, workplace.open_store() as store:
        client = RegistryClient(repository.registry, access)

        def look(tag: str) -> _TagFacts:
            reference = Reference.parse(f"docker://{repository.name}:{tag}")
            try:
                resolved = resolve(reference, workplace, store, any_platform=True, client=client)
                return _TagFacts(tag, read_registry_traits(resolved, store, tables))
            except KedgeError as problem:
                return _TagFacts(tag, problem=problem.message)
            finally:
                task.advance(1)

        try:
            with ThreadPoolExecutor(workplace.settings.download_connections) as pool:
                return list(pool.map(look, tags))
        finally:
            task.finish()
