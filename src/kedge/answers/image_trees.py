# SPDX-License-Identifier: BSD-3-Clause
"""Images opened to be looked at whole: their trees with fingerprints of contents, and their packages.

Layers stream through and nothing is unpacked; those that several of the images share are read once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kedge.base.manifest import ImageConfig
from kedge.base.reference import Reference
from kedge.base.tree import ContentSource, Node, NodeKind, find, walk
from kedge.compat.packages.package import InstalledPackage
from kedge.compat.packages.python_packages import list_python_packages
from kedge.compat.packages.rpm_database import list_rpm_packages
from kedge.compat.packages.system_packages import list_apk_packages, list_conda_packages, list_dpkg_packages
from kedge.errors import UsageError
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layer_survey import Fingerprint, FingerprintSink, assemble_records, copy_record, survey_layer
from kedge.image.layers.limits import Ledger
from kedge.image.layers.whiteouts import LayerRecord
from kedge.image.sources.classify import classify
from kedge.image.sources.fetch_layers import open_remote_image
from kedge.image.sources.image_source import ImageSource, LayeredImage, TreeImage
from kedge.image.sources.open_local import open_any_image
from kedge.image.sources.resolve import resolve
from kedge.image.tree_view import TreeView
from kedge.image.workplace import Workplace

if TYPE_CHECKING:
    from kedge.system.views import View


@dataclass(slots=True)
class ImageTree:
    """One image with all its files; `records` are its layers, where it has any, lowest first."""

    name: str
    image: ImageSource
    root: Node
    source: ContentSource
    records: tuple[LayerRecord, ...] = ()
    stored_size: int | None = None  # bytes of the file, or of the layers as they are stored
    _digests: dict[int, bytes] = field(default_factory=dict)

    @property
    def config(self) -> ImageConfig | None:
        """The OCI config, where the image has one."""
        return self.image.config

    @property
    def has_owners(self) -> bool:
        """Whether owners mean something: those of a directory are the user's own."""
        return bool(self.records) or (isinstance(self.image, TreeImage) and self.image.packed is not None)

    @property
    def view(self) -> TreeView:
        """The files by path; of layers only what `is_database` names can be read."""
        return TreeView(lambda path: find(self.root, path), self.source)

    def list_packages(self) -> list[InstalledPackage]:
        """The packages of all managers."""
        return list_packages(self.view)

    def digest(self, node: Node) -> bytes:
        """A digest of a file's contents, which are read now if they have to be."""
        if isinstance(node.content, Fingerprint):
            return node.content.digest
        if id(node) not in self._digests:
            hasher = hashlib.blake2b(digest_size=16)
            for piece in self.source.chunks(node) if node.size else ():
                hasher.update(piece)
            self._digests[id(node)] = hasher.digest()
        return self._digests[id(node)]


@contextlib.contextmanager
def open_images(references: Sequence[Reference], workplace: Workplace) -> Iterator[list[ImageSource]]:
    """Open images wherever they are; nothing of them is read yet."""
    with contextlib.ExitStack() as closing:
        images = []
        for reference in references:
            image = _open_image(reference, workplace, closing)
            closing.callback(image.close)
            images.append(image)
        yield images


def _open_image(reference: Reference, workplace: Workplace, closing: contextlib.ExitStack) -> ImageSource:
    source = classify(reference)
    if source.is_local:
        return open_any_image(reference, workplace)
    store = closing.enter_context(workplace.open_store())
    source = source.look_up(lambda: resolve(reference, workplace, store))
    if source.layers is None:
        raise UsageError(
            f"{reference.redacted} is a SIF file in a registry: kedge reads such files on this host only",
            hint=f"pull it, then name the file: kedge pull {reference.redacted}",
        )
    return open_remote_image(source.layers, workplace, store)


def read_trees(images: Sequence[tuple[str, ImageSource]], workplace: Workplace) -> list[ImageTree]:
    """Read images whole, layers they share once."""
    known: dict[str, LayerRecord] = {}
    return [_read_tree(name, image, known, workplace) for name, image in images]


def _read_tree(name: str, image: ImageSource, known: dict[str, LayerRecord], workplace: Workplace) -> ImageTree:
    if isinstance(image, TreeImage):
        size = image.packed.size if image.packed else None
        return ImageTree(name, image, image.root, image.source, stored_size=size)
    sink = FingerprintSink()
    if not isinstance(image, LayeredImage):
        return ImageTree(name, image, image.fill(sink), sink)
    ledger = Ledger(image.options)
    task = workplace.progress.task(f"reading {name}", None, "files")
    records: list[LayerRecord | None] = [None] * len(image.layers)
    for index in range(len(image.layers) - 1, -1, -1):  # the order in which they arrive
        layer = image.layers[index]
        key = _shared_key(layer)
        if key not in known:
            known[key] = survey_layer(layer, index, ledger, is_database, task)
        records[index] = copy_record(known[key], index)  # a tree changes the nodes that it is made of
    task.finish()
    whole = tuple(record for record in records if record is not None)
    size = sum(layer.size for layer in image.manifest.layers)
    return ImageTree(
        name=name,
        image=image,
        root=assemble_records(whole, Ledger(image.options)),
        source=sink,
        records=whole,
        stored_size=size,
    )


def _shared_key(layer: LayerSource) -> str:
    """What makes two layers the same: the digest of the plain tar, which no compression changes."""
    return str(layer.diff_id or layer.digest or id(layer))


@dataclass(slots=True)
class ImageFiles:
    """The files of an image, each once, with all names that it has."""

    paths: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    nodes: dict[int, Node] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[Node, list[bytes]]]:
        return ((node, self.paths[key]) for key, node in self.nodes.items())

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(node.size for node in self.nodes.values())


def list_files(root: Node) -> ImageFiles:
    """The regular files of a tree."""
    files = ImageFiles()
    for path, node in walk(root):
        if node.kind is NodeKind.FILE:
            files.nodes[id(node)] = node
            files.paths[id(node)].append(path)
    return files


def show_path(path: bytes) -> str:
    """A path of an image as people read it."""
    return "/" + os.fsdecode(path)


# All packages of an image, whoever installed them, and which of its files hold what is known of them.

_DATABASES = re.compile(
    rb"""(?:.*/)?(?:
        [^/]+\.(?:dist|egg)-info(?:/(?:METADATA|RECORD|PKG-INFO|direct_url\.json|installed-files\.txt))?
      | [^/]+\.egg-link
      | conda-meta/[^/]+\.json
      | pyvenv\.cfg
      | var/lib/dpkg/(?:status|status\.d/[^/]+|info/[^/]+\.list)
      | (?:usr/)?lib/apk/db/installed
      | (?:usr/lib/sysimage|var/lib)/rpm/(?:rpmdb\.sqlite|Packages|Packages\.db)
      | etc/pip/constraint\.txt | etc/pip\.conf
    )\Z""",
    re.VERBOSE | re.DOTALL,
)


def is_database(path: bytes) -> bool:
    """Whether a file, by its path without a leading slash, is one that `list_packages` may read."""
    return _DATABASES.match(path) is not None


def list_packages(view: View) -> list[InstalledPackage]:
    """The packages of all managers, those of Python first. What conda installed for Python is in both lists."""
    return [
        *list_python_packages(view),
        *list_conda_packages(view),
        *list_dpkg_packages(view),
        *list_rpm_packages(view),
        *list_apk_packages(view),
    ]
