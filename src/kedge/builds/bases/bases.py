# SPDX-License-Identifier: BSD-3-Clause
"""What a stage begins with: an image of any kind, opened so that its layers, config and files can be built on.

A base is identified before anything of it is fetched: a build whose steps are all in the cache needs its manifest only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.manifest import Descriptor, ImageConfig
from kedge.base.platform import Platform
from kedge.base.reference import Reference, Transport
from kedge.builds.bases.named_contexts import name_reference
from kedge.builds.request import NotMadeError
from kedge.builds.step_values import Base, refuse_recipe
from kedge.errors import InvalidReference
from kedge.image.sources.classify import Source, SourceKind, classify
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace

if TYPE_CHECKING:
    from kedge.image.sources.image_source import ImageSource, LayeredImage
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
        from kedge.builds.bases.base_identity import identify_image_file

        self._verify_signers(path)
        identity = identify_image_file(path, self.workplace)
        text = str(Reference(Transport.FILE, path=str(path)))
        opened = self._open_tree(identity, partial(_open_path, path, self.workplace))
        return replace(opened, digest=digest, _unpack=lambda: self._unpack(text))

    def _verify_signers(self, path: Path) -> None:
        if self.base.read_field("fingerprints"):
            from kedge.builds.bases.base_signers import verify_fingerprints

            verify_fingerprints(self.base, path)

    def _open_local(self) -> OpenedBase:
        """An archive, a layout, a directory, an engine's image, or programs of this host."""
        from kedge.image.sources.image_source import LayeredImage
        from kedge.image.sources.open_local import open_local_image

        if self.base.read_field("fingerprints"):
            self._verify_signers(Path(self.reference.path))
        from kedge.builds.bases.ask_inside import InsideQuestions

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
        from kedge.builds.bases.base_identity import identify_tree

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
        from kedge.builds.bases.base_layers import as_one_layer

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
