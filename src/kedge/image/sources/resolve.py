# SPDX-License-Identifier: BSD-3-Clause
"""Resolves a reference in a registry to a manifest and a config, with as few requests as possible.

A digest whose manifest is in the cache needs no network, nor does the name of an image that was built here. If the
registry does not answer, a tag means what it meant the last time, and the user is warned.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.manifest import (
    MAXIMUM_CONFIG,
    MAXIMUM_MANIFEST,
    Descriptor,
    ImageConfig,
    Index,
    Manifest,
    parse_config,
    parse_manifest,
)
from kedge.base.platform import Platform
from kedge.base.reference import Reference, Transport
from kedge.errors import (
    AccessDenied,
    AuthenticationFailed,
    CorruptImage,
    FileProblem,
    ImageNotFound,
    InvalidReference,
    NetworkFailed,
    NoMatchingPlatform,
    RateLimited,
    RegistryProtocolError,
    UnsupportedFormat,
)
from kedge.image.store.resolved_names import NameRecord
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace

if TYPE_CHECKING:
    from kedge.image.registry.client import RegistryClient

_NOT_THERE = (ImageNotFound, AccessDenied, AuthenticationFailed)  # what registries say about names they do not have
_MAXIMUM_DEPTH = 4  # an index, and in practice one manifest below it


@frozen
class Resolved:
    """A manifest for the wanted platform; `client` reaches its blobs."""

    reference: Reference
    manifest: Manifest
    open_client: Callable[[], RegistryClient]
    index: Index | None = None  # that lists the manifest, if it was read
    is_unanswered: bool = False  # the registry did not answer: this is the manifest from before

    @property
    def client(self) -> RegistryClient:
        """The client, opened when the first one asks: who has all blobs in the cache needs none."""
        return self.open_client()

    @property
    def digest(self) -> Digest:
        """The manifest's digest: what identifies the image."""
        return self.manifest.digest

    @property
    def compressed_size(self) -> int:
        """Bytes of all layers, compressed as in the registry."""
        return sum(layer.size for layer in self.manifest.layers)


def resolve(
    reference: Reference,
    workplace: Workplace,
    store: Store,
    *,
    offline: bool = False,
    any_platform: bool = False,
    client: RegistryClient | None = None,
    patience: float | None = None,
    asks_local: bool = False,
) -> Resolved:
    """The manifest that `reference` means for the workplace's platform.

    With `any_platform` it may be for another platform if there is none for this one: to inspect it, not to run it.
    A caller with several references of one registry passes one `client`, which logs in once. With `patience` a cached
    manifest is used if the registry does not answer within about so many seconds. With `asks_local` the registry is
    asked about a name that was given here, too; if it has no such image, the one of this cache is meant.
    """
    known = store.recall(str(reference), workplace.platform)
    shared, open_client = client, cache(lambda: client or _open_client(reference, workplace))
    stored = _find_stored(reference, known, workplace, store, offline=offline)
    if stored is not None and not (asks_local and known is not None and known.is_local and not offline):
        return Resolved(reference, stored, open_client)
    if offline:
        raise ImageNotFound(
            f"{reference} is not in the cache, and --offline forbids to ask {reference.registry}",
            hint=f"pull it once without --offline, on a host with internet access: kedge pull {reference}",
        )
    fallback = _load_known(known, store)
    if fallback is None or known is None:
        manifest, index = _ask(open_client(), reference, workplace, store, any_platform=any_platform)
    else:
        impatient = shared or _open_client(reference, workplace, patient=False, patience=patience)
        try:
            manifest, index = _ask(impatient, reference, workplace, store, is_known=True, any_platform=any_platform)
        except _NOT_THERE as problem:
            if not known.is_local:
                raise
            workplace.progress.warn(f"{problem.message}; using the image of this name that was built here")
            return Resolved(reference, fallback, open_client)
        except (NetworkFailed, RateLimited) as problem:
            age = _describe_age(time.time() - known.when)
            workplace.progress.warn(f"{problem.message}; using {reference} as of {age} ago ({known.digest})")
            return Resolved(reference, fallback, open_client, is_unanswered=True)
    with contextlib.suppress(FileProblem):  # a read-only cache still serves what it has
        if index is None or _has_platform(index, workplace.platform):
            store.remember(str(reference), workplace.platform, manifest.digest)
    return Resolved(reference, manifest, open_client, index)


def resolve_by_policy(
    reference: Reference, workplace: Workplace, store: Store, policy: str, *, asks_local: bool = False
) -> Resolved:
    """Resolve a reference by the policy of --pull: `auto` asks about a tag again when its last answer is too old."""
    if policy in ("missing", "never") or (policy == "auto" and _was_asked(reference, workplace, store)):
        try:
            return resolve(reference, workplace, store, offline=True)
        except ImageNotFound:
            if policy == "never":
                raise
    return resolve(reference, workplace, store, asks_local=asks_local)


def _was_asked(reference: Reference, workplace: Workplace, store: Store) -> bool:
    """Whether the tag was resolved a moment ago; a login in the environment is tried each time."""
    known, settings = store.recall(str(reference), workplace.platform), workplace.settings
    return known is not None and not settings.registry_login and 0 <= time.time() - known.when < settings.tag_lifetime


def _open_client(
    reference: Reference, workplace: Workplace, *, patient: bool = True, patience: float | None = None
) -> RegistryClient:
    from kedge.image.registry.client import RegistryClient  # late: what is in the cache needs no registry

    return RegistryClient(reference.registry, workplace.open_access(patient=patient, patience=patience))


def _has_platform(index: Index, platform: Platform) -> bool:
    try:
        index.choose(platform)
    except NoMatchingPlatform:
        return False
    return True


def _choose(index: Index, reference: Reference, workplace: Workplace, *, any_platform: bool) -> Descriptor:
    if any_platform and not _has_platform(index, workplace.platform):
        others = (entry.platform for entry in index.manifests if entry.platform is not None)
        usable = [platform for platform in others if platform.os == "linux" and platform.architecture != "unknown"]
        if usable:
            return index.choose(usable[0], str(reference))
    return index.choose(workplace.platform, str(reference))


def _find_stored(
    reference: Reference, known: NameRecord | None, workplace: Workplace, store: Store, *, offline: bool
) -> Manifest | None:
    """The cached manifest, if the network is not needed or not allowed."""
    if reference.digest is None:
        is_settled = offline or (known is not None and known.is_local)  # a name of this cache, which no registry knows
        return _load_known(known, store) if is_settled else None
    raw = store.read_blob(reference.digest, MAXIMUM_MANIFEST)
    if raw is None:
        return _load_known(known, store)
    document = parse_manifest(raw, where=str(reference))
    if isinstance(document, Index):
        chosen = document.choose(workplace.platform, str(reference))
        raw = store.read_blob(chosen.digest, MAXIMUM_MANIFEST)
        document = parse_manifest(raw, where=str(reference)) if raw is not None else document
    return document if isinstance(document, Manifest) else None


def _load_known(known: NameRecord | None, store: Store) -> Manifest | None:
    if known is None:
        return None
    raw = store.read_blob(known.digest, MAXIMUM_MANIFEST)
    document = parse_manifest(raw, where=known.reference) if raw is not None else None
    return document if isinstance(document, Manifest) else None


def _ask(
    client: RegistryClient,
    reference: Reference,
    workplace: Workplace,
    store: Store,
    *,
    is_known: bool = False,
    any_platform: bool = False,
) -> tuple[Manifest, Index | None]:
    """Make one request for the manifest, and a second one for an index; indexes of indexes are followed, too."""
    wanted = str(reference.digest) if reference.digest else reference.tag or "latest"
    if is_known and not reference.digest:
        wanted = _find_unchanged(client, reference.repository, wanted, store)
    index: Index | None = None
    for _ in range(_MAXIMUM_DEPTH):
        raw = store.read_blob(Digest.parse(wanted), MAXIMUM_MANIFEST) if ":" in wanted else None
        document = parse_manifest(raw) if raw is not None else client.get_manifest(reference.repository, wanted)
        store.add_blob(document.raw, is_lasting=False)
        if isinstance(document, Manifest):
            return document, index
        index = document
        wanted = str(_choose(document, reference, workplace, any_platform=any_platform).digest)
    raise RegistryProtocolError(
        f"{reference} has more than {_MAXIMUM_DEPTH} levels of indexes",
        hint="name the image by the digest of one of its manifests, or ask its owner to push it again",
    )


def _find_unchanged(client: RegistryClient, repository: str, tag: str, store: Store) -> str:
    """The digest of the tag, if the cache has its manifest; else the tag. Docker Hub does not count HEAD as a pull."""
    with contextlib.suppress(AccessDenied, RegistryProtocolError):  # some registries do not answer HEAD as specified
        digest = client.head_manifest(repository, tag)
        if digest is not None and store.has_blob(digest):
            return str(digest)
    return tag


def read_config(resolved: Resolved, store: Store) -> tuple[bytes, ImageConfig]:
    """The image config, from the cache or the registry."""
    descriptor = resolved.manifest.config
    raw = store.read_blob(descriptor.digest, MAXIMUM_CONFIG)
    if raw is None:
        raw = resolved.client.read_blob(resolved.reference.repository, descriptor, MAXIMUM_CONFIG)
        store.add_blob(raw, is_lasting=False)
    return raw, parse_config(raw, where=f"the config of {resolved.reference}")


def refuse_artifacts(resolved: Resolved) -> None:
    """Raise for artifacts that are not container images."""
    manifest = resolved.manifest
    if manifest.is_sif:
        raise UnsupportedFormat(
            f"{resolved.reference} is a SIF file in a registry, not a layered image",
            hint=f"pull it as oras://{resolved.reference.registry}/{resolved.reference.name}",
        )
    if not manifest.layers:
        raise CorruptImage(f"{resolved.reference} has no layers")
    if not _is_image(manifest):
        raise UnsupportedFormat(
            f"{resolved.reference} is not a container image: its config has the type {manifest.config.media_type}",
            hint="check the name; registries also hold models, charts and signatures",
        )


def _is_image(manifest: Manifest) -> bool:
    kind = manifest.config.media_type
    return not kind or kind.endswith(("image.config.v1+json", "container.image.v1+json")) or kind == "application/json"


def compare_platform(actual: Platform, reference: Reference, workplace: Workplace) -> None:
    """Warn about a single-platform image for another architecture, or refuse it if --arch was given."""
    wanted = workplace.platform
    if actual.os != wanted.os:
        raise NoMatchingPlatform(
            f"{reference.redacted} is for {actual.os}; clusters run {wanted.os} images only",
            hint=f"choose another tag: kedge tags {reference.registry}/{reference.repository}"
            if reference.repository
            else "choose an image for Linux",
        )
    if actual.architecture in ("unknown", wanted.architecture):
        return
    if workplace.settings.architecture:
        raise NoMatchingPlatform(
            f"{reference.redacted} is for {actual.architecture}, not for {wanted.architecture}",
            hint=f"it exists for one architecture only: leave --arch out, or use --arch {actual.architecture}",
        )
    workplace.progress.warn(
        f"{reference.redacted} is for {actual.architecture} and does not run on this {wanted.architecture} host"
    )


def _describe_age(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "a moment"


# The digest of an image in a registry: by a request for its manifest, without a download.


def ask_digest(reference: Reference, workplace: Workplace) -> Digest:
    """Return the digest of the manifest that a pull would take for the workplace's platform."""
    if reference.transport not in (Transport.DOCKER, Transport.ORAS):
        raise InvalidReference(
            f"'{reference}' is not in a registry",
            hint="name an image, such as docker://nvcr.io/nvidia/pytorch:24.03-py3",
        )
    with workplace.open_store() as store:
        return resolve(reference, workplace, store).digest
