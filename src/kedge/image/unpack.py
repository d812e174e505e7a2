# SPDX-License-Identifier: BSD-3-Clause
"""Unpacks images on this node: any reference becomes a directory that containers start from.

Layers stream into the directory without a SIF in between; remote SIF files are fetched through the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kedge.base.frozen import frozen, replace
from kedge.base.reference import Reference, Transport
from kedge.errors import (
    FileProblem,
    ImageNotFound,
    KedgeError,
    NetworkFailed,
    NoSpace,
    RateLimited,
    UnsupportedFormat,
)
from kedge.image.cached_image import CachedFormat, provide_cached
from kedge.image.image_file import ImageFile, identify
from kedge.image.node.node_cache_writer import Build, Built, NodeCache
from kedge.image.node.tag_lookups import describe_login, find_current
from kedge.image.node_cache import find_by_reference, is_volatile
from kedge.image.sources.classify import Source, classify
from kedge.image.store.store import Store
from kedge.image.workplace import LOOKUP_PATIENCE, Workplace
from kedge.image.write_image import write_sif
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.base.digest import Digest
    from kedge.base.manifest import ImageConfig
    from kedge.base.progress import Progress, Task
    from kedge.image.layers.sandbox import SandboxSink
    from kedge.image.sources.image_source import ImageSource, LayeredImage
    from kedge.image.sources.resolve import Resolved

# Imports inside the functions below are late for start-up cost: an unpacked image needs none of them.

_EXPANSION = 3  # compressed layers to files on a disk
_MAXIMUM_WORKERS = 16
_MAXIMUM_WRITERS = 4  # processes that make files while layers are read: that many keep up with one reader
_FORMAT = "v1"  # part of an identity: raise it when the unpacked files change


@frozen
class Unpacked:
    """An image that is unpacked on this node."""

    reference: str
    root: Path
    identity: str = ""
    is_new: bool = False
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """The result as `--json` prints it."""
        return {
            "reference": self.reference,
            "root": str(self.root),
            "identity": self.identity or None,
            "unpacked": self.is_new,
            "seconds": round(self.seconds, 3),
        }


def unpack(text: str, workplace: Workplace, *, policy: str = "auto", once: str = "") -> Unpacked:
    """Unpack the image that `text` names; `policy` says when to ask the registry.

    `once` is the name of an image for one container alone, which no other start finds.
    """
    began = time.monotonic()
    reference = Reference.parse(text)
    node = NodeCache(workplace.settings, workplace.progress)
    unpacker = _Unpacker(text=text, reference=reference, workplace=workplace, node=node, policy=policy, once=once)
    try:
        done = unpacker.run()
    except (FileProblem, NoSpace) as problem:
        if policy == "never":  # only what is here may be used
            raise
        done = replace(unpacker, workplace=workplace.go_around_cache(problem)).run()
    return Unpacked(reference.redacted, done.root, done.identity, done.is_new, time.monotonic() - began)


def unpack_plain(digest: Digest, name: str, open_image: Callable[[], LayeredImage], workplace: Workplace) -> Path:
    """The files of an image exactly as its layers have them, without what containers need: for builds.

    `digest` is that of its manifest, `name` what lists of this node's images show; it is opened if it is not here yet.
    """
    from kedge.cluster.host_memory import watch_memory

    def build(root: Path, require_room: Callable[[int], None]) -> Built:
        image = open_image()
        require_room(_EXPANSION * sum(layer.size for layer in image.manifest.layers))
        return _write_tree(root, image, workplace.threads, is_plain=True)

    with watch_memory("the unpacking"):
        return NodeCache(workplace.settings, workplace.progress).make(f"plain-{digest.hex}-{_FORMAT}", name, build)[0]


@frozen
class _Done:
    root: Path
    identity: str
    is_new: bool
    is_unanswered: bool = False  # the registry did not answer: this is the image from before


@frozen
class _Unpacker:
    """One image to unpack, and where to."""

    text: str
    reference: Reference
    workplace: Workplace
    node: NodeCache
    policy: str
    once: str

    def run(self) -> _Done:
        """Find the unpacked image, or unpack it."""
        if self.reference.transport is Transport.FILE:  # the runtime has read what it is, and refuses archives
            return self._unpack_file(Path(self.reference.path))
        source = classify(self.reference)
        machine = self.workplace.settings.architecture or ""
        is_new = is_volatile(self.text) or bool(self.once)
        unpacked = "" if is_new else find_by_reference(self.text, machine, self.node.environ)
        if unpacked and (self.policy in ("missing", "never") or (self.policy == "auto" and self._is_current(machine))):
            return _Done(Path(unpacked), Path(unpacked).parent.name, False)
        done = self._unpack_local() if source.is_local else self._ask(source, unpacked)
        if not self.once:
            self._remember(machine, done, is_there=bool(unpacked))
        return done

    def _is_current(self, machine: str) -> bool:
        return bool(find_current(self.text, machine, self.node.environ, self._login_words))

    @property
    def _login_words(self) -> tuple[str, ...]:
        """Options for the login, as `kedge exec` has them."""
        access = self.workplace.access
        login = ("--docker-login",) if access is not None and access.login is not None else ()
        return login + (("--authfile", str(access.authfile)) if access is not None and access.authfile else ())

    def _ask(self, source: Source, unpacked: str) -> _Done:
        """The image that the registry has; with the policy auto and no answer, the one on this node."""
        try:
            return self._unpack_remote(source, is_there=bool(unpacked) and self.policy == "auto")
        except (NetworkFailed, RateLimited) as problem:
            if not unpacked or self.policy != "auto":
                raise
            self.workplace.progress.warn(f"{problem.message}; using the copy of {self.reference.redacted} on this node")
            return _Done(Path(unpacked), Path(unpacked).parent.name, False, is_unanswered=True)

    def _remember(self, machine: str, done: _Done, *, is_there: bool) -> None:
        word = "unanswered" if done.is_unanswered else "asked"
        answer = f"{word} {describe_login(self.node.environ, self._login_words)}"
        try:
            self.node.remember(self.text, machine, done.identity, answer)
        except FileProblem:
            if not is_there:  # else the next start asks again, which is no reason to fail
                raise

    def _make(self, identity: str, source: str, build: Build) -> _Done:
        from kedge.cluster.host_memory import watch_memory

        if self.once:
            with watch_memory("the unpacking"):
                return _Done(self.node.make_temporary(self.once, source, build), self.once, True)
        force = self.policy == "always" or self.reference.transport is Transport.HOST
        with watch_memory("the unpacking"):
            root, is_new = self.node.make(identity, source, build, force=force)
        return _Done(root, identity, is_new)

    # -- files of this host

    def _unpack_file(self, path: Path) -> _Done:
        from kedge.image.sources.content_digest import hash_content, identify_settled

        image = identify_settled(str(path))
        if image.kind == "folder":
            return _Done(Path(image.path), "", False)
        _require_squashfs(image, image.path)
        if self.once:
            return self._unpack_squashfs(image, self.once, image.path)
        identity = self.node.find_content(image)
        unpacked = self.node.find(identity) if identity else None
        if unpacked is not None and self.policy != "always":
            return _Done(unpacked, identity, False)
        self.node.require_place(image.size, image.path)
        identity = identity or hash_content(image, min(self.workplace.threads, _MAXIMUM_WORKERS))
        _require_unchanged(image)
        try:
            done = self._unpack_squashfs(image, identity, image.path)
        except NoSpace:
            with contextlib.suppress(KedgeError):
                self.node.remember_content(image, identity)  # the next start fails without hashing the file again
            raise
        self.node.remember_content(image, identity)
        return done

    def _unpack_squashfs(self, image: ImageFile, identity: str, source: str) -> _Done:
        """Straight from the file system in a file to the directory."""
        from kedge.image.formats.squashfs.reader import SquashReader
        from kedge.image.layers.owners import collect_owners
        from kedge.image.layers.unpack_squashfs import TreeExtractor, measure_tree

        _require_squashfs(image, source)

        def build(root: Path, require_room: Callable[[int], None]) -> Built:
            with (
                explained(image.path),
                Path(image.path).open("rb") as file,
                SquashReader(file, image.offset, image.size) as reader,
            ):
                tree = reader.read_tree()
                size = measure_tree(tree)
                require_room(size)
                bar = _LateBar(self.workplace.progress, f"unpacking {Path(source).name}", size)
                workers = min(self.workplace.threads, _MAXIMUM_WORKERS)
                TreeExtractor(reader, self.workplace.progress, bar.advance, workers).extract(tree, root)
                bar.finish()
                _require_unchanged(image)
                return Built(size, image.read_config(), collect_owners(tree).encode())

        try:
            return self._make(identity, source, build)
        except KedgeError as problem:
            _require_unchanged(image)
            problem.context.setdefault("image", source)  # the problem names the damage, this names the image
            raise

    def _unpack_local(self) -> _Done:
        """An archive, a layout, an engine's image, or programs of this host."""
        from kedge.image.sources.image_source import LayeredImage
        from kedge.image.sources.open_local import open_local_image

        image = open_local_image(self.reference, self.workplace)
        try:
            if isinstance(image, LayeredImage):
                return self._unpack_layers(image)
            name = hashlib.sha256(str(self.reference).encode("utf-8", "surrogateescape")).hexdigest()
            # one thread: programs of a host are few files
            return self._make(f"host-{name}", str(self.reference), lambda root, _: _write_tree(root, image, 1))
        finally:
            image.close()

    def _unpack_layers(self, image: LayeredImage) -> _Done:
        def build(root: Path, require_room: Callable[[int], None]) -> Built:
            require_room(_EXPANSION * sum(layer.size for layer in image.manifest.layers))
            return replace(_write_tree(root, image, self.workplace.threads), config=_pack_section(image.config))

        return self._make(self._name_layers(image.manifest.digest.hex), self.reference.redacted, build)

    def _name_layers(self, digest: str) -> str:
        return f"oci-{digest}-{_FORMAT}"

    # -- remote images

    def _unpack_remote(self, source: Source, *, is_there: bool) -> _Done:
        from kedge.image.sources.resolve import resolve

        is_offline, patience = self.policy == "never", LOOKUP_PATIENCE if is_there else None
        with self.workplace.open_store() as store:
            source = source.look_up(
                lambda: resolve(
                    self.reference,
                    self.workplace,
                    store,
                    offline=is_offline,
                    patience=patience,
                    asks_local=self.policy in ("newer", "always"),
                )
            )
            if source.layers:
                return self._unpack_resolved(source.layers, store)
            return self._unpack_sif(source, store, self.workplace.hurry(patience) if patience else self.workplace)

    def _unpack_resolved(self, resolved: Resolved, store: Store) -> _Done:
        from kedge.image.sources.fetch_layers import open_remote_image

        identity = self.once or self._name_layers(resolved.digest.hex)
        unpacked = self.node.find(identity)
        if unpacked is not None and self.policy != "always":
            return _Done(unpacked, identity, False, resolved.is_unanswered)
        missing = sum(x.size for x in resolved.manifest.layers if not store.has_blob(x.digest, x.size))
        if missing and self.policy == "never":
            raise self._refuse_fetching()

        def build(root: Path, require_room: Callable[[int], None]) -> Built:
            self._require_room(store, missing)
            require_room(_EXPANSION * resolved.compressed_size)
            with _open_sink(root, self.workplace.threads) as sink:
                image = open_remote_image(resolved, self.workplace, store)  # downloads begin here, in one process only
                try:
                    return replace(_fill_sink(sink, image), config=_pack_section(image.config))
                finally:
                    image.close()

        with self._attempt(store):
            return self._make(identity, self.reference.redacted, build)

    def _unpack_sif(self, source: Source, store: Store, workplace: Workplace) -> _Done:
        from kedge.image.sources.content_digest import hash_content
        from kedge.image.sources.fetch_sif import find_sif_source

        sif = find_sif_source(source, workplace, store, offline=self.policy == "never")
        identity = self.once or (f"sif-{sif.digest.hex}" if sif.digest else "")
        unpacked = self.node.find(identity) if identity else None
        if unpacked is not None and self.policy != "always":
            return _Done(unpacked, identity, False)
        with store.use_image(sif.key):
            if self.policy == "never" and store.find_at_hand(sif.key) is None:
                raise self._refuse_fetching()
            self._require_room(store, sif.size or 0)
            with self._attempt(store):
                write = self._write_nothing if self.policy == "never" else sif.write
                path = store.build_image(sif.key, write)
                image = identify(str(path))
                identity = identity or hash_content(image, min(self.workplace.threads, _MAXIMUM_WORKERS))
                done = self._unpack_squashfs(image, identity, self.reference.redacted)
            if not sif.keep:
                store.images.drop(sif.key)
        return done

    def _write_nothing(self, file: BinaryIO) -> None:
        del file
        raise self._refuse_fetching()

    def _refuse_fetching(self) -> ImageNotFound:
        return ImageNotFound(
            f"{self.reference.redacted} is neither on this node nor in the cache, and --pull never forbids to fetch it",
            hint=f"fetch it on a host with internet access: kedge pull {self.reference.redacted}",
        )

    def _require_room(self, store: Store, missing: int) -> None:
        from kedge.system.host.space import require_space

        if missing:
            what = f"the download of {self.reference.redacted}"
            require_space(store.root, missing, what, choice=self.workplace.store_choice)

    def _attempt(self, store: Store) -> contextlib.AbstractContextManager[None]:
        return self.workplace.attempt(store, f"the unpacking of {self.reference.redacted}")


def _require_squashfs(image: ImageFile, source: str) -> None:
    if image.file_system != "squashfs":
        raise UnsupportedFormat(
            f"cannot unpack {source}: it holds an {image.file_system} file system, which kedge can only mount",
            hint="run it on a host with fuse2fs, or as root with --root-from kernel",
        )


def _require_unchanged(image: ImageFile) -> None:
    """Raise if the file was replaced or written to since it was identified."""
    if identify(image.path).state != image.state:
        raise FileProblem(f"{image.path} changed while kedge unpacked it", hint="try again when nothing writes to it")


class _LateBar:
    """A task that begins with its first progress: a bar has a thread, and forks come before threads."""

    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self._progress = progress
        self._label = label
        self._total = total
        self._task: Task | None = None

    def advance(self, amount: int) -> None:
        """Add to the progress."""
        if self._task is None:
            self._task = self._progress.task(self._label, self._total)
        self._task.advance(amount)

    def finish(self) -> None:
        """End the task, if it began."""
        if self._task is not None:
            self._task.finish()


def _pack_section(config: ImageConfig) -> bytes:
    """The part of a config that a SIF carries as well."""
    return json.dumps(config.section, sort_keys=True).encode() if config.section else b""


def _write_tree(root: Path, image: ImageSource, threads: int, *, is_plain: bool = False) -> Built:
    """Write the image's files into a directory, with those that containers need unless it `is_plain`."""
    with _open_sink(root, threads) as sink:
        return _fill_sink(sink, image, is_plain=is_plain)


def _open_sink(root: Path, threads: int) -> SandboxSink:
    """What takes the files; open it before downloads begin, because its processes are forked and downloads threads."""
    from kedge.image.layers.sandbox import SandboxSink

    return SandboxSink(root, writers=min(threads // 2, _MAXIMUM_WRITERS))


def _fill_sink(sink: SandboxSink, image: ImageSource, *, is_plain: bool = False) -> Built:
    from kedge.image.layers.owners import collect_owners
    from kedge.image.layers.unpack_squashfs import make_usable, measure_tree
    from kedge.image.write_image import fill_decorated

    tree = image.fill(sink) if is_plain else fill_decorated(image, sink)
    owners = collect_owners(tree)
    make_usable(tree)
    size = measure_tree(tree)
    sink.finish(tree)
    return Built(size, owners=owners.encode())


# For nodes without room to unpack an image: the file that squashfuse mounts instead.
#
# A file is mounted as it is. A reference becomes a SIF in the cache first, as a pull makes it.


def find_mountable(text: str, workplace: Workplace, problem: NoSpace | FileProblem, *, policy: str) -> Path:
    """The file to mount, with a warning that says why; raises a `problem` that is not about room on the node."""
    reference = Reference.parse(text)
    if not _is_of_node(problem, workplace) or not _can_be_file(reference, workplace):
        raise problem
    path = Path(reference.path) if reference.transport is Transport.FILE else _make_file(reference, workplace, policy)
    workplace.progress.warn(f"cannot unpack {reference.redacted}: {problem}. squashfuse mounts it instead")
    return path


def _is_of_node(problem: KedgeError, workplace: Workplace) -> bool:
    """Whether the node's directory is full, read-only or missing, not the cache's or the image's."""
    try:
        place = NodeCache(workplace.settings).place
    except FileProblem:
        return True
    return Path(str(problem.context.get("path", ""))).is_relative_to(place)


def _can_be_file(reference: Reference, workplace: Workplace) -> bool:
    """Whether a reference is a file, or a cache can hold one."""
    return reference.transport is Transport.FILE or not workplace.settings.disable_cache


def _make_file(reference: Reference, workplace: Workplace, policy: str) -> Path:
    """The SIF in the cache that the reference is converted or downloaded to."""
    with workplace.open_store() as store:
        return provide_cached(reference, workplace, store, CachedFormat("sif", write_sif), policy=policy)
