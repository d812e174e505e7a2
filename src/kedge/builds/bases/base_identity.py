# SPDX-License-Identifier: BSD-3-Clause
"""What an image without a manifest holds, as a text that is equal for equal contents."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from kedge.base.tree import Node, NodeKind, walk
from kedge.errors import KedgeError, UnsupportedFormat
from kedge.image.make_layers import as_tree
from kedge.image.node.node_cache_writer import NodeCache
from kedge.image.sources.content_digest import hash_content, identify_settled
from kedge.image.sources.image_source import ImageSource
from kedge.image.workplace import Workplace


def identify_image_file(path: Path, workplace: Workplace) -> str:
    """The identity of a SIF or SquashFS file; one that did not change since it was last hashed is not read again."""
    image = identify_settled(str(path))
    if image.file_system != "squashfs":
        raise UnsupportedFormat(
            f"{path} holds an {image.file_system} file system, which cannot be built on",
            hint="convert it first, on a host that can mount it: kedge build --sandbox DIR " + str(path),
        )
    node: NodeCache | None = None
    with contextlib.suppress(KedgeError):  # no place on this node: then the file is hashed each time
        node = NodeCache(workplace.settings, workplace.progress)
    identity = node.find_content(image) if node is not None else ""
    if not identity:
        identity = hash_content(image, workplace.threads)
        if node is not None:
            with contextlib.suppress(KedgeError):
                node.remember_content(image, identity)
    return identity


def identify_tree(image: ImageSource, workplace: Workplace) -> str:
    """The identity of a directory or of packed programs: all names, metadata and contents, but no times."""
    hashed = hashlib.sha256()
    section = image.config.section if image.config is not None else {}
    hashed.update(json.dumps(section, sort_keys=True).encode())
    with as_tree(image, workplace.settings.temporary_directory) as (root, source):
        for path, node in [(b"", root), *walk(root)]:
            hashed.update(_describe(path, node))
            if node.kind is NodeKind.FILE and node.size:
                for piece in source.chunks(node):
                    hashed.update(piece)
    return f"tree-{hashed.hexdigest()}"


def _describe(path: bytes, node: Node) -> bytes:
    line = (path, node.kind.name, node.mode, node.uid, node.gid, node.target, node.rdev, node.size, node.xattrs)
    return repr(line).encode()
