# SPDX-License-Identifier: BSD-3-Clause
"""What ADD brings along: files behind addresses, archives that are unpacked, Git repositories.

A file that was fetched is kept in the cache. It is not fetched again if its checksum is given, or if the server says
that it is still the same.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import posixpath
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from kedge.base.digest import Digest
from kedge.base.tree import ContentSource, Node, NodeKind, copy_node, walk
from kedge.builds.addresses import read_git_address
from kedge.builds.copies.git_repositories import GitAccess, clone_repository
from kedge.builds.request import NotMadeError
from kedge.builds.step_values import CopyStep, RecipePlace, refuse_recipe
from kedge.errors import DigestMismatch, InvalidReference, KedgeError
from kedge.image.formats.compression.streams import inflate
from kedge.image.layers.directory_tree import FolderOptions, FolderSource, read_file, read_folder
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.tar_layout import BLOCK, ZERO_BLOCK, is_header
from kedge.image.layers.tar_writer import LayerResult
from kedge.image.make_layers import FileSpool
from kedge.image.registry.download import download_url, open_url
from kedge.image.registry.secret import redact_url
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained

_FORMAT = "kedge added file 1"
_FILE_MODE = 0o600  # of what comes from an address
_UNNAMED = "__unnamed__"
_FILE_TYPE = "application/octet-stream"


@dataclass(slots=True)
class AddedFiles:
    """Fetches and unpacks for one build; a context manager that removes what was cloned and unpacked for it."""

    workplace: Workplace
    store: Store
    git_access: GitAccess = field(default_factory=GitAccess)
    fetches: bool = True  # False in a dry run: what is not in the cache raises NotMadeError
    _downloads: dict[tuple[str, str], tuple[Digest, int]] = field(default_factory=dict)
    _clones: dict[tuple[str, bool], Path] = field(default_factory=dict)
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> AddedFiles:
        return self

    def __exit__(self, *_details: object) -> None:
        self._closing.close()

    # -- addresses

    def download(self, address: str, step: CopyStep) -> tuple[str, Node]:
        """The file behind an address: its name, and the file as a node."""
        known = self._downloads.get((address, step.checksum))
        if known is None:
            known = self._downloads[address, step.checksum] = self._fetch(address, step)
        digest, modified = known
        path = self.store.blob_path(digest)
        node = read_file(path)
        node.mode, node.mtime, node.nanoseconds, node.xattrs = _FILE_MODE, modified, 0, ()
        return _choose_name(address, step), node

    def _fetch(self, address: str, step: CopyStep) -> tuple[Digest, int]:
        wanted = self._read_checksum(step)
        transport = self.workplace.open_access().transport
        proof = str(wanted)
        if wanted is None:
            self._require_fetching()
            with open_url(transport, address, takes_pages=True) as stream:
                proof = stream.validator
        key = hashlib.sha256(f"{_FORMAT} {address} {proof}".encode("utf-8", "surrogateescape")).hexdigest()
        record = self.store.steps.find(key) if proof else None
        if record is None:
            self._require_fetching()
            record = self._keep(key, address, wanted)
        assert record.layer is not None
        return record.layer.digest, int(record.extra.get("modified", 0))

    def _require_fetching(self) -> None:
        if not self.fetches:
            raise NotMadeError

    def _keep(self, key: str, address: str, wanted: Digest | None) -> StepRecord:
        """Fetch the file into the cache; a checksum that differs leaves nothing."""
        transport, task = self.workplace.open_access().transport, None
        modified = 0

        def write(file: BinaryIO) -> LayerResult:
            nonlocal task, modified
            task = self.workplace.progress.task(_name_address(address), None)
            done = download_url(transport, address, file, announce=lambda _: task.advance, takes_pages=True)
            task.finish()
            if wanted is not None:
                _compare(file, done.digest, wanted, address)
            modified = _parse_date(done.modified)
            return LayerResult(done.digest, done.digest, done.size)

        layer, _ = self.store.add_layer(write, _FILE_TYPE)
        record = StepRecord(key, layer, layer.digest, f"ADD {redact_url(address)}", {"modified": modified})
        self.store.steps.write(record)
        return record

    def _read_checksum(self, step: CopyStep) -> Digest | None:
        if not step.checksum:
            return None
        try:
            return Digest.parse(step.checksum)
        except InvalidReference as problem:
            raise refuse_recipe(step.place, f"--checksum: {problem.message}") from problem

    # -- Git

    def clone(self, address: str, step: CopyStep) -> Node:
        """The files of a Git repository, or of a directory in it."""
        place = (address, step.keeps_git)
        folder = self._clones.get(place)
        if folder is None:
            named = read_git_address(address, step.place)
            self._require_fetching()
            folder = self._clones[place] = clone_repository(named, self._make_directory(), step, self.git_access)
        return read_folder(folder, FolderOptions(all_root=True))[0]

    def _make_directory(self) -> Path:
        place = self.workplace.settings.temporary_directory
        with explained(place):
            folder = Path(tempfile.mkdtemp(prefix="kedge-git-", dir=place))
        self._closing.callback(remove_tree, folder)
        return folder

    # -- archives

    def unpack(self, node: Node, name: str, place: RecipePlace) -> Node | None:
        """The contents of an archive; None for what is none."""
        if not _is_archive(node, name):
            return None
        temporary = self.workplace.settings.temporary_directory
        with explained(temporary):
            file = self._closing.enter_context(tempfile.TemporaryFile(prefix="kedge-archive-", dir=temporary))
        spool = FileSpool(file)
        try:
            root = flatten([LayerSource(name, None, None, lambda: _read(node))], spool, FlattenOptions(threaded=False))
        except KedgeError as problem:
            problem.context.setdefault("recipe", str(place))
            raise
        lend_tree(root, spool)
        return root


def _read(node: Node) -> Iterator[bytes]:
    if isinstance(node.content, LentContent):
        return node.content.chunks()
    return FolderSource().chunks(node)


def _is_archive(node: Node, name: str) -> bool:
    """Whether a file is a tar, compressed or not: its first block must be a tar header."""
    if node.kind is not NodeKind.FILE or node.size < 20:
        return False
    start = b""
    chunks = _read(node)
    try:
        for piece in inflate(chunks, where=name, piece=BLOCK):
            start += piece
            if len(start) >= BLOCK:
                break
    except KedgeError:
        return False  # it begins like a compressed file, and is none
    finally:
        chunks.close()  # type: ignore[attr-defined]
    return len(start) >= BLOCK and start[:BLOCK] != ZERO_BLOCK and is_header(start[:BLOCK])


def _choose_name(address: str, step: CopyStep) -> str:
    name = _name_address(address)
    if name == _UNNAMED and step.destination.endswith("/"):
        raise refuse_recipe(
            step.place,
            f"{redact_url(address)} does not say what the file is called",
            f"name the file in the destination: {step.destination}NAME",
        )
    return name


def _name_address(address: str) -> str:
    name = posixpath.basename(posixpath.normpath(unquote(urlsplit(address).path)))
    return name if name not in ("", ".", "..", "/") else _UNNAMED


def _parse_date(text: str) -> int:
    """Unix seconds of a Last-Modified header; 0 where there is none."""
    try:
        return max(0, int(email.utils.parsedate_to_datetime(text).timestamp()))
    except (ValueError, TypeError, OverflowError):
        return 0


def _compare(file: BinaryIO, digest: Digest, wanted: Digest, address: str) -> None:
    """Raise unless the file has the checksum that the recipe wants."""
    if wanted.algorithm != digest.algorithm:
        file.flush()
        hashed = hashlib.new(wanted.algorithm)
        with Path(f"/proc/self/fd/{file.fileno()}").open("rb") as again:
            for piece in iter(lambda: again.read(1 << 20), b""):
                hashed.update(piece)
        digest = Digest(wanted.algorithm, hashed.hexdigest())
    if digest != wanted:
        raise DigestMismatch(
            f"{redact_url(address)} has the checksum {digest}, and the recipe wants {wanted}",
            hint="if the file was changed on purpose, put its new checksum into the recipe",
        )


# The content of a file that another tree's source gives, so that files of several trees can stand in one.


@dataclass(frozen=True, slots=True, eq=False)
class LentContent:
    """A node of another tree and what gives its bytes."""

    source: ContentSource
    node: Node

    def chunks(self) -> Iterator[bytes]:
        """The bytes."""
        return self.source.chunks(self.node)


def lend_tree(root: Node, source: ContentSource) -> None:
    """Let the files of a tree, changed in place, carry where their contents come from."""
    for node in (root, *(node for _, node in walk(root))):
        if node.kind is NodeKind.FILE and node.content is not None and not isinstance(node.content, LentContent):
            original = copy_node(node)
            original.content = node.content
            node.content = LentContent(source, original)
