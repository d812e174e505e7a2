# SPDX-License-Identifier: BSD-3-Clause
"""What a stage begins with: an image of any kind, opened so that its layers, config and files can be built on.

A base is identified before anything of it is fetched: a build whose steps are all in the cache needs its manifest only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.manifest import Descriptor, ImageConfig
from kedge.base.platform import Platform
from kedge.base.reference import Reference, Transport
from kedge.base.tree import Node, NodeKind, walk
from kedge.builds.bases.named_contexts import name_reference
from kedge.builds.request import NotMadeError
from kedge.builds.step_values import Base, refuse_recipe
from kedge.container.facts import Bind
from kedge.container.start.build_step import StepRoot
from kedge.container.start.host_script import HostScript, run_host_script
from kedge.errors import (
    InvalidReference,
    KedgeError,
    NamespaceRefused,
    ProgramFailed,
    SignatureInvalid,
    UnsupportedFormat,
)
from kedge.image.host_programs.python_environment import start_on_host
from kedge.image.make_layers import as_tree
from kedge.image.node.node_cache_writer import NodeCache
from kedge.image.signatures import Trust, VerifyRequest, open_ring, verify_file
from kedge.image.sources.classify import Source, SourceKind, classify
from kedge.image.sources.content_digest import hash_content, identify_settled
from kedge.image.sources.image_source import ImageSource
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.confined_paths import remove_tree
from kedge.system.files import explained
from kedge.system.host.private_places import find_homes
from kedge.system.process import describe_status

if TYPE_CHECKING:
    from kedge.image.sources.image_source import LayeredImage
    from kedge.image.sources.resolve import Resolved

# Imports inside the functions below are late for start-up cost: every kind of base needs a few of them.

_BOOTSTRAPS = ("busybox", "debootstrap", "yum", "dnf", "zypper", "arch")


@dataclass(slots=True)
class OpenedBase:
    """A base that is known; nothing of it need be on this host yet."""

    reference: str  # as locks and records name it; empty for scratch
    key: str  # what is in it: the same text for the same files and config
    config: ImageConfig
    digest: str = ""  # of the manifest or of the SIF file, where a registry or library says it
    is_decorated: bool = False  # whether it brings `/.singularity.d` along
    layers: tuple[Descriptor, ...] = ()  # that a registry has
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
        """The directory on this node that holds the base's files, and no others; None for an empty base."""
        return self._unpack()

    def close(self) -> None:
        """Release what `open_image` opened."""
        if self._image is not None:
            self._image.close()
            self._image = None


def open_base(
    base: Base,
    workplace: Workplace,
    store: Store,
    *,
    policy: str = "auto",
    lock: Mapping[str, str] | None = None,
    makes: bool = True,
) -> OpenedBase:
    """Open what a stage begins with; `lock` says which digest a reference means. Earlier stages are the caller's.

    `policy` says when registries are asked: always, newer, auto, missing or never. Without `makes` a base that is
    neither in the cache nor known by a manifest raises NotMadeError.
    """
    workplace = _choose_platform(base, workplace)
    if base.agent == "scratch":
        return OpenedBase("", "scratch", ImageConfig(workplace.platform))
    if base.agent in _BOOTSTRAPS:
        from kedge.builds.bases.bootstrap import find_instead, make_bootstrapped

        instead = find_instead(base, workplace)
        if instead is None:
            made = make_bootstrapped(base, workplace, store, anew=policy == "always", makes=makes)
            return _open_bootstrapped(base, made, workplace)
        base = instead
    try:
        reference = name_reference(base)
    except InvalidReference as problem:
        raise refuse_recipe(base.place, problem.message, problem.hint) from problem
    opening = _Opening(
        base=base, reference=_pin(reference, lock or {}), workplace=workplace, store=store, policy=policy, makes=makes
    )
    opened = opening.run()
    _refuse_other_platform(base, opened.config.platform, workplace.platform)
    return replace(opened, reference=str(reference.redacted))


def _open_bootstrapped(base: Base, made: LayeredImage, workplace: Workplace) -> OpenedBase:
    """A base that was made on this host."""
    name = f"{base.agent}: {base.read_field('mirrorurl').text}".rstrip(": ")
    return OpenedBase(
        name,
        str(made.manifest.digest),
        made.config,
        _open=lambda: made,
        _unpack=lambda: _unpack_plain(made.manifest.digest, name, lambda: made, workplace),
        _image=made,
    )


def _choose_platform(base: Base, workplace: Workplace) -> Workplace:
    if not base.platform:
        return workplace
    try:
        architecture = str(Platform.parse(base.platform))
    except InvalidReference as problem:
        raise refuse_recipe(base.place, problem.message, problem.hint) from problem
    return replace(workplace, settings=replace(workplace.settings, architecture=architecture))


def _refuse_other_platform(base: Base, found: Platform, wanted: Platform) -> None:
    """Raise where --platform asks for another architecture than the base has: the result would be named wrongly."""
    is_usual = wanted.architecture == Platform.host().architecture  # who asks for nothing hears of it at the first RUN
    if not is_usual and found.architecture not in ("unknown", wanted.architecture):
        raise refuse_recipe(
            base.place,
            f"{base.reference} is for {found.architecture}, and the build for {wanted.architecture}",
            f"name a base that exists for {wanted.architecture}, or leave --platform out",
        )


def _pin(reference: Reference, lock: Mapping[str, str]) -> Reference:
    """The reference by the digest that a lock has for it."""
    locked = lock.get(reference.redacted)
    if not locked or reference.digest is not None or reference.transport is not Transport.DOCKER:
        return reference
    return replace(reference, tag=None, digest=Digest.parse(locked))


@frozen
class _Opening:
    """One base on its way to be opened."""

    base: Base
    reference: Reference
    workplace: Workplace
    store: Store
    policy: str
    makes: bool

    def run(self) -> OpenedBase:
        source = classify(self.reference)
        if not source.is_local:
            source = source.look_up(self._resolve)
        if source.layers is not None:
            return self._open_layers(source.layers)
        if source.kind is SourceKind.REMOTE_SIF:
            return self._open_remote_sif(source)
        if source.kind is SourceKind.SIF_FILE or source.kind is SourceKind.SQUASHFS_FILE:
            return self._open_file(Path(self.reference.path), "")
        return self._open_local()

    def _resolve(self) -> Resolved:
        """Ask the registry, as the policy wants it; a login in options is tried each time."""
        from kedge.image.sources.resolve import resolve_by_policy

        asks_local = self.policy in ("newer", "always")
        policy = "newer" if self.policy == "auto" and self.workplace.access is not None else self.policy
        return resolve_by_policy(self.reference, self.workplace, self.store, policy, asks_local=asks_local)

    def _open_layers(self, resolved: Resolved) -> OpenedBase:
        from kedge.image.sources.resolve import read_config, refuse_artifacts

        refuse_artifacts(resolved)
        _, config = read_config(resolved, self.store)
        fetch = cache(partial(self._fetch, resolved))
        return OpenedBase(
            str(self.reference),
            str(resolved.digest),
            config,
            str(resolved.digest),
            layers=resolved.manifest.layers,
            _open=fetch,
            _unpack=lambda: _unpack_plain(resolved.digest, str(self.reference), fetch, self.workplace),
        )

    def _fetch(self, resolved: Resolved) -> LayeredImage:
        from kedge.image.sources.fetch_layers import open_remote_image

        image = open_remote_image(resolved, self.workplace, self.store)
        image.on_close = None  # the cache is shared with other stages, whose downloads go on
        return image

    def _unpack(self, text: str) -> Path:
        from kedge.image.unpack import unpack

        return unpack(text, self.workplace, policy="never" if self.policy == "never" else "missing").root

    def _open_remote_sif(self, source: Source) -> OpenedBase:
        """A SIF from elsewhere: fetched into the cache, then as a file."""
        from kedge.image.sources.fetch_sif import find_sif_source

        sif = find_sif_source(source, self.workplace, self.store, offline=self.policy == "never")
        if not self.makes and self.store.find_image(sif.key) is None:
            raise NotMadeError
        path = self.store.build_image(sif.key, sif.write)
        return self._open_file(path, str(sif.digest or ""))

    def _open_file(self, path: Path, digest: str) -> OpenedBase:
        """A SIF or SquashFS file: known by its bytes, opened as one layer."""

        self._verify_signers(path)
        identity = identify_image_file(path, self.workplace)
        text = str(Reference(Transport.FILE, path=str(path)))
        opened = self._open_tree(identity, partial(_open_path, path, self.workplace))
        return replace(opened, digest=digest, _unpack=lambda: self._unpack(text))

    def _verify_signers(self, path: Path) -> None:
        if self.base.read_field("fingerprints"):
            verify_fingerprints(self.base, path)

    def _open_local(self) -> OpenedBase:
        """An archive, a layout, a directory, an engine's image, or programs of this host."""
        from kedge.image.sources.image_source import LayeredImage
        from kedge.image.sources.open_local import open_local_image

        if self.base.read_field("fingerprints"):
            self._verify_signers(Path(self.reference.path))

        open_image = partial(open_local_image, self.reference, self.workplace, InsideQuestions(self.workplace))
        image = open_image()
        if isinstance(image, LayeredImage):
            text = str(self.reference)
            digest = image.manifest.digest
            return OpenedBase(
                text,
                str(digest),
                image.config,
                _open=lambda: image,
                _unpack=lambda: _unpack_plain(digest, text, lambda: image, self.workplace),
                _image=image,
            )

        identity = identify_tree(image, self.workplace)
        opened = self._open_tree(identity, open_image)
        image.close()
        if classify(self.reference).kind is not SourceKind.DIRECTORY:
            return opened
        return replace(opened, _unpack=lambda: Path(self.reference.path).resolve())

    @property
    def _name(self) -> str:
        """What the labels of an image call this base."""
        return self.reference.path or ",".join(self.reference.programs)

    def _open_tree(self, identity: str, open_image: Callable[[], ImageSource]) -> OpenedBase:
        from kedge.builds.bases.bootstrap import as_one_layer

        image = as_one_layer(open_image, identity, self.workplace, self.store, name=self._name)
        return OpenedBase(
            str(self.reference),
            identity,
            image.config,
            is_decorated=image.is_decorated,
            _open=lambda: image,
            _unpack=lambda: _unpack_plain(image.manifest.digest, str(self.reference), lambda: image, self.workplace),
            _image=image,
        )


def _open_path(path: Path, workplace: Workplace) -> ImageSource:
    from kedge.image.sources.open_local import open_local_image

    return open_local_image(Reference(Transport.FILE, path=str(path)), workplace)


def _unpack_plain(digest: Digest, text: str, open_image: Callable[[], LayeredImage], workplace: Workplace) -> Path:
    from kedge.image.unpack import unpack_plain

    return unpack_plain(digest, text, open_image, workplace)


# Asks a Python interpreter of this host about itself inside a container: for recipes, which strangers write.
#
# It sees the host's programs, its own directories and those of its shared objects, all read-only, and no home. Where no
# container can be made, an interpreter of the PATH is asked outside if the user cannot change it: the site installed
# it.

_PATIENCE = 120.0  # seconds
_SHOWN = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/etc/")  # to every such script
_MOST = 64 << 20  # bytes of an answer


class InsideQuestions:
    """Starts interpreters in a container; the same question is asked once."""

    def __init__(self, workplace: Workplace) -> None:
        self._place = workplace.settings.temporary_directory
        self._answers: dict[tuple[str, ...], bytes] = {}

    def __call__(self, argv: Sequence[str], folders: Iterable[str]) -> bytes:
        """What the interpreter prints; `folders` hold its shared objects. Raises ProgramFailed."""
        if tuple(argv) not in self._answers:
            self._answers[tuple(argv)] = self._ask(argv, folders)
        return self._answers[tuple(argv)]

    def _ask(self, argv: Sequence[str], folders: Iterable[str]) -> bytes:
        output = bytearray()

        def keep(data: bytes) -> None:
            output.extend(data)
            if len(output) > _MOST:
                raise ProgramFailed(f"'{argv[0]}' does not stop printing")

        with explained(self._place):
            root = Path(tempfile.mkdtemp(prefix="kedge-ask-", dir=self._place))
        variables = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        binds = [Bind(place, place, readonly=True) for place in list_shown({*folders, *list_prefixes(argv[0])})]
        try:
            script = HostScript(list(argv), environment=variables)
            status = run_host_script(StepRoot(str(root)), script, keep, binds=binds, timeout=_PATIENCE)
        except NamespaceRefused:
            if os.access(argv[0], os.W_OK):
                raise
            return start_on_host(argv, folders)
        finally:
            remove_tree(root)
        if status:
            text = output[-2000:].decode(errors="replace")
            raise ProgramFailed(f"'{argv[0]}' {describe_status(status)}", context={"output": text})
        return bytes(output)


def list_prefixes(interpreter: str) -> list[str]:
    """The directories that an interpreter needs: where it lies and, through its links, where its files do."""
    found: list[str] = []
    path = os.path.abspath(interpreter)  # noqa: PTH100 - links are kept
    for _ in range(40):
        folder = os.path.dirname(path)  # noqa: PTH120
        prefix = os.path.dirname(folder)  # noqa: PTH120
        has_settings = os.path.isfile(f"{prefix}/pyvenv.cfg")  # noqa: PTH113
        if not os.path.islink(path):  # noqa: PTH114
            return [*found, prefix]
        found.append(prefix if has_settings else folder)
        path = os.path.normpath(os.path.join(folder, os.readlink(path)))  # noqa: PTH115, PTH118
    return found


def list_shown(folders: Iterable[str]) -> list[str]:
    """Return those that are directories, not shown anyway, and neither in a home nor above one; none twice."""
    homes = find_homes()
    shown: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in folders} | set(folders)):
        place = folder.rstrip("/") + "/"
        if place == "/" or place.startswith(_SHOWN) or not os.path.isdir(folder):  # noqa: PTH112
            continue
        if any(home.startswith(place) or place.startswith(home) for home in homes):
            continue
        if not any(place.startswith(f"{other}/") for other in shown):
            shown.append(folder.rstrip("/"))
    return shown


# What an image without a manifest holds, as a text that is equal for equal contents.


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


# `Fingerprints:` in a header: the base must be signed by all of these keys.


def verify_fingerprints(base: Base, path: Path) -> None:
    """Raise unless each key that the header names has signed the file."""
    wanted = {
        text.upper().removeprefix("0X") for text in re.split(r"[\s,]+", base.read_field("fingerprints").text) if text
    }
    try:
        report = verify_file(VerifyRequest(path), Trust(open_ring(os.environ)))
    except KedgeError as problem:
        problem.context.setdefault("recipe", str(base.place))
        raise
    if report.error is not None:
        raise report.error
    signers = {signer.fingerprint.upper() for result in report.results for signer in result.signers}
    missing = sorted(text for text in wanted if not any(signer.endswith(text) for signer in signers))
    if missing:
        raise SignatureInvalid(
            f"{base.place}: {path} is not signed by {', '.join(missing)}",
            context={"signed by": ", ".join(sorted(signers)) or "nobody"},
            hint="check 'Fingerprints:' in the recipe, or fetch the image again from who signs it",
        )
