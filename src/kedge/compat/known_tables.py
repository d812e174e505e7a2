# SPDX-License-Identifier: BSD-3-Clause
"""The tables that commands work with, and the images that people mean by a short name."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.base.progress import Progress
from kedge.base.reference import Reference, Transport
from kedge.compat.data import learned_path
from kedge.compat.tables.load import Tables, load_tables, normalize_image
from kedge.compat.tag_candidates import resolve_image
from kedge.errors import InvalidReference


@frozen
class Repository:
    """A repository on a registry, as somebody named it."""

    registry: str  # nvcr.io
    path: str  # nvidia/pytorch
    tag: str = ""  # where the reference had one
    note: str = ""  # what was made of a short name

    @property
    def name(self) -> str:
        """To pull with: nvcr.io/nvidia/pytorch."""
        return f"{self.registry}/{self.path}"

    @property
    def image(self) -> str:
        """The name under which the tables have it."""
        return normalize_image(self.name)


def load_known_tables(environ: Mapping[str, str], progress: Progress) -> Tables:
    """The shipped tables with what this user's kedge learned; damage in the latter is a warning."""
    tables = load_tables(learned_path(environ))
    for problem in tables.problems:
        progress.warn(problem.message)
    return tables


def find_repository(text: str, tables: Tables) -> Repository:
    """The repository of any reference; a single word that only one image of the tables has as its name is that one."""
    word, _, tag = text.strip().partition(":")
    if word and "/" not in text:
        image = resolve_image(word, tables)
        same = [each for each in tables.images if each.rpartition("/")[2] == image.rpartition("/")[2]]
        if same == [image]:
            registry, _, path = image.partition("/")
            return Repository(registry, path, tag, f"'{word}' is taken as {image}")
    reference = Reference.parse(text, exists=lambda _path: False)
    if reference.transport not in (Transport.DOCKER, Transport.ORAS) or not reference.repository:
        raise InvalidReference(f"'{text}' is not on a registry", hint="such as nvcr.io/nvidia/pytorch")
    return Repository(reference.registry, reference.repository, reference.tag or "")


def propose_reference(reference: Reference, tables: Tables) -> str:
    """What somebody may have meant by a reference that nobody has; empty: nothing is near."""
    folder, _, word = reference.repository.rpartition("/")
    if folder == "library":
        image = resolve_image(word, tables)
        command = f"kedge tags {word}"
        return f"NVIDIA's is {image}:TAG, and '{command}' lists its tags" if image in tables.images else ""
    tag = reference.tag or ""
    known = [row.tag for row in tables.list_releases(f"{reference.registry}/{reference.repository}")]
    near = next((each for each in known if tag and each.startswith(f"{tag}-")), "")
    return f"did you mean {reference.registry}/{reference.repository}:{near}?" if near else ""


def propose_image(word: str, tables: Tables) -> str:
    """`did you mean 'pytorch'?`, or the images that the tables have; where single tags are known, how to see them."""
    from kedge.compat.tables.known_images import load_known_images  # late: only for hints

    if any(row.image.endswith(f"/{word}") for row in load_known_images()):
        return f"single tags are known: kedge search {word.rpartition('/')[2]} --offline"
    names = [image.rpartition("/")[2] for image in tables.images]
    return propose(word.rpartition("/")[2], names) or f"the tables have: {', '.join(names)}"
