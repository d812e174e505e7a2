# SPDX-License-Identifier: BSD-3-Clause
"""Pull: turns any reference into a SIF, a directory, a SquashFS file, an OCI layout or an archive.

Remote images go through the cache: layers are kept for the next image that shares them, and a SIF is made once and
delivered again as long as its source is the same: as the user's own file, which shares nothing with the cache.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.image_format import ImageFormat
from kedge.base.platform import Platform
from kedge.base.reference import Reference, Transport
from kedge.errors import CorruptImage, FileProblem, HostileImage, KedgeError, NoSpace, OutputExists
from kedge.image.output_name import ImageOutput, choose_tag
from kedge.image.sources.classify import Source, SourceKind, classify
from kedge.image.sources.resolve import Resolved, compare_platform, resolve
from kedge.image.store.images import Handing
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.image.sources.fetch_sif import SifSource
    from kedge.image.sources.image_source import ImageSource

# Imports inside the functions below are late for start-up cost: a pull from the cache needs none of them.

_THERE = "there already"
_FORMAT_VERSION = 3  # part of the key of cached images: raise it when the written bytes change


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What to pull, where to, and in which format."""

    reference: Reference
    output: Path | None = None  # None: the default name, in the current directory or `pull_directory`
    form: ImageFormat = ImageFormat.SIF
    force: bool = False
    offline: bool = False
    tag: str | None = None  # name of the image inside OCI layouts and archives
    if_missing: bool = False  # many jobs may pull the same file at once: one makes it for all
    last_wins: bool = False  # as with Apptainer, two pulls to one file at once both succeed
    plain_name: bool = False  # no architecture in the name, as scripts for Apptainer expect


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did, or would do with a dry run."""

    reference: str
    output: Path
    form: ImageFormat
    digest: Digest | None = None
    platform: str = ""
    download: int = 0  # bytes that come over the network
    size: int = 0  # of the result; 0 for directories and for a dry run
    how: str = "converted"  # or 'downloaded', 'from the cache'; 'hard link', 'reflink', 'copy'
    layers: tuple[tuple[str, int], ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The result as `--json` prints it."""
        return {
            "reference": self.reference,
            "output": str(self.output),
            "format": str(self.form),
            "digest": str(self.digest) if self.digest else None,
            "platform": self.platform or None,
            "download": self.download,
            "size": self.size,
            "how": self.how,
            "layers": [{"digest": digest, "size": size} for digest, size in self.layers],
        }


def pull(request: PullRequest, workplace: Workplace, *, dry_run: bool = False) -> Pulled:
    """Pull the image; with `dry_run` only ask the registry, and return what would be done."""
    began = time.time()
    pulled = _pull_as_needed(request, workplace, dry_run=dry_run)
    if not dry_run and pulled.how != _THERE:
        _make_young(pulled.output, began)
    return pulled


def _make_young(output: Path, began: float) -> None:
    """Give the output the time of the pull, for make: a directory has its image's, a hard link the first pull's."""
    with explained(output):
        if output.stat().st_mtime < began:
            os.utime(output)


def _pull_as_needed(request: PullRequest, workplace: Workplace, *, dry_run: bool) -> Pulled:
    target = _name_output(request, workplace)
    if not request.if_missing:
        may_win = request.last_wins and not os.path.lexists(target)
        try:
            return _pull(request, workplace, dry_run=dry_run)
        except OutputExists:
            if not may_win:
                raise
            return _pull(replace(request, force=True), workplace, dry_run=dry_run)
    there = Pulled(request.reference.redacted, target, request.form, how=_THERE)
    if os.path.lexists(target):
        return there
    if not dry_run:
        with explained(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _pull(request, workplace, dry_run=dry_run)
    except OutputExists:
        return there


def _pull(request: PullRequest, workplace: Workplace, *, dry_run: bool) -> Pulled:
    target = _choose_output(request, workplace)
    source = classify(request.reference)
    plan = Pulled(request.reference.redacted, target, request.form)
    if source.is_local:
        return plan if dry_run else _pull_local(request, source, plan, workplace)
    try:
        return _pull_remote(request, source, plan, workplace, dry_run=dry_run)
    except (FileProblem, NoSpace) as problem:
        if request.offline:  # only the cache may be used
            raise
        return _pull_remote(request, source, plan, workplace.go_around_cache(problem), dry_run=dry_run)


def _pull_remote(request: PullRequest, source: Source, plan: Pulled, workplace: Workplace, *, dry_run: bool) -> Pulled:
    with workplace.open_store() as store:
        puller = _Puller(request, workplace, store)
        source = source.look_up(lambda: resolve(request.reference, workplace, store, offline=request.offline))
        if source.layers:
            return puller.pull_layers(plan, source.layers, dry_run=dry_run)
        if source.resolved:
            workplace.progress.detail(f"{request.reference} is a SIF file kept in a registry")
        return puller.pull_sif(plan, source, dry_run=dry_run)


def _choose_output(request: PullRequest, workplace: Workplace) -> Path:
    """The output path; an existing one is refused before anything is downloaded."""
    target = _name_output(request, workplace)
    ImageOutput(target, request.form).refuse_existing(force=request.force)
    return target


def _name_output(request: PullRequest, workplace: Workplace) -> Path:
    directory = workplace.settings.pull_directory or Path()
    return directory / (request.output or _choose_name(request, workplace.platform))


def _choose_name(request: PullRequest, wanted: Platform) -> str:
    """Apptainer's name; for another architecture than this host's with that architecture in it."""
    is_foreign = wanted.architecture != Platform.host().architecture and not request.plain_name
    may_differ = request.reference.transport in (Transport.DOCKER, Transport.LIBRARY)
    mark = f"_{wanted.architecture}" if is_foreign and may_differ else ""
    return request.reference.default_name(mark + request.form.extension)


def image_key(reference: Reference, digest: Digest, codec: str) -> str:
    """The key of a cached SIF: everything its bytes depend on, among them the reference."""
    return f"sif {reference} {digest} {codec} v{_FORMAT_VERSION}"


def _pull_local(request: PullRequest, source: Source, plan: Pulled, workplace: Workplace) -> Pulled:
    from kedge.image.convert import repack_sif
    from kedge.image.sources.fetch_sif import check_architecture
    from kedge.image.sources.open_local import open_local_image
    from kedge.image.write_image import choose_options, write_image

    tag = choose_tag(request.reference, request.form, request.tag)
    options = choose_options(workplace, force=request.force, tag=tag)
    if request.form is ImageFormat.SIF and source.kind is SourceKind.SIF_FILE:
        path = Path(request.reference.path)
        check_architecture(path, request.reference, workplace)
        repack_sif(path, plan.output, options)
        return replace(_measure(plan), how=plan.how if options.recompress else "copy")
    image = open_local_image(request.reference, workplace)
    try:
        write_image(plan.output, request.form, image, options)
    finally:
        image.close()
    return _measure(plan)


def _read_platform(sif: Path) -> Platform:
    from kedge.image.formats.sif.reader import SifReader

    with explained(sif), sif.open("rb") as file:
        return Platform(SifReader(file, str(sif)).header.architecture)


def _measure(plan: Pulled) -> Pulled:
    return plan if plan.form.is_directory else replace(plan, size=plan.output.stat().st_size)


@dataclass(frozen=True, slots=True)
class _Puller:
    """A remote pull, and the cache it goes through."""

    request: PullRequest
    workplace: Workplace
    store: Store

    def pull_layers(self, plan: Pulled, resolved: Resolved, *, dry_run: bool) -> Pulled:
        """Convert layers, or deliver the image that was converted before."""
        key = image_key(self.request.reference, resolved.digest, self.workplace.packing)
        with self.store.use_image(key):  # an image found now must still be there when it is delivered
            return self._pull_layers(plan, resolved, key, dry_run=dry_run)

    def _pull_layers(self, plan: Pulled, resolved: Resolved, key: str, *, dry_run: bool) -> Pulled:
        stored = self.store.find_at_hand(key) if self.request.form is ImageFormat.SIF else None
        is_stored = stored is not None
        platform = self.workplace.platform  # a download reads it from the config
        if stored is not None:
            with contextlib.suppress(KedgeError):  # a file that the user has changed since: it is not used
                platform = _read_platform(stored)
        compare_platform(platform, self.request.reference, self.workplace)
        plan = replace(
            plan,
            digest=resolved.digest,
            platform=str(platform),
            download=0 if is_stored else self._count_missing(resolved),
            how="from the cache" if is_stored else plan.how,
            layers=tuple((str(layer.digest), layer.size) for layer in resolved.manifest.layers),
        )
        if dry_run:
            return plan
        if self.request.form is ImageFormat.SIF:
            made = self._deliver(plan, key, lambda file: self._convert_into(file, resolved, plan.output))
            return replace(made, platform=str(_read_platform(made.output)))
        from kedge.image.sources.fetch_layers import open_remote_image

        self._require_room(resolved, plan.output)
        with self._attempt():
            image = open_remote_image(resolved, self.workplace, self.store)
            plan = replace(plan, platform=str(image.record.platform))
            self._write(plan, image)
        return _measure(plan)

    def pull_sif(self, plan: Pulled, source: Source, *, dry_run: bool) -> Pulled:
        """Get a remote SIF file, and convert it if another format is wanted."""
        from kedge.image.sources.fetch_sif import check_architecture, find_sif_source

        sif = find_sif_source(source, self.workplace, self.store, offline=self.request.offline)
        how = "downloaded" if self.request.form is ImageFormat.SIF else plan.how
        plan = replace(plan, digest=sif.digest, platform=str(self.workplace.platform), download=sif.size or 0, how=how)
        if dry_run:
            return plan
        with self.store.use_image(sif.key):
            stored = self.store.find_at_hand(sif.key)
            if stored is None:
                self._require_room_for_file(sif, plan.output)
            else:
                with contextlib.suppress(CorruptImage, HostileImage, FileProblem):  # as above
                    check_architecture(stored, self.request.reference, self.workplace)
            if self.request.form is ImageFormat.SIF:
                return self._deliver(plan, sif.key, lambda file: self._fetch_into(file, sif), keep=sif.keep)
        with self._attempt(), self._stored_sif(sif) as image:
            self._write(plan, image)
        return _measure(plan)

    def _fetch_into(self, file: BinaryIO, sif: SifSource) -> None:
        from kedge.image.write_image import check_copy, choose_options

        sif.write(file)
        if self.workplace.verify:
            check_copy(file, self.request.reference.redacted, choose_options(self.workplace))

    def _deliver(self, plan: Pulled, key: str, build: Callable[[BinaryIO], None], *, keep: bool = True) -> Pulled:
        keep = keep and not self.workplace.settings.disable_cache
        wish = Handing(plan.output, self.request.force, self.workplace.settings.link_mode)
        how = self.store.deliver(key, wish)
        if how is not None:
            return replace(_measure(plan), how=str(how), download=0)
        with self._attempt():
            self.store.build_into(key, build, wish, keep=keep)
        return _measure(plan)

    def _convert_into(self, file: BinaryIO, resolved: Resolved, target: Path) -> None:
        from kedge.image.sources.fetch_layers import open_remote_image
        from kedge.image.write_image import choose_options, write_sif

        self._require_room(resolved, target)
        image = open_remote_image(resolved, self.workplace, self.store)
        try:
            write_sif(file, image, choose_options(self.workplace))
        finally:
            image.close()

    def _write(self, plan: Pulled, image: ImageSource) -> None:
        from kedge.image.write_image import choose_options, write_image

        tag = choose_tag(self.request.reference, plan.form, self.request.tag)
        try:
            options = choose_options(self.workplace, force=self.request.force, tag=tag)
            write_image(plan.output, plan.form, image, options)
        finally:
            image.close()

    @contextlib.contextmanager
    def _stored_sif(self, source: SifSource) -> Iterator[ImageSource]:
        from kedge.image.sources.image_source import TreeImage
        from kedge.image.sources.open_local import open_any_image

        with self.store.use_image(source.key):
            path = self.store.build_image(source.key, source.write)
            image = open_any_image(Reference(Transport.FILE, path=str(path)), self.workplace)
            if isinstance(image, TreeImage):  # its name in the cache means nothing to users
                reference = self.request.reference
                image.record = replace(image.record, kind=str(reference.transport), reference=reference.redacted)
            yield image
            if not source.keep:
                self.store.images.drop(source.key)

    def _attempt(self) -> contextlib.AbstractContextManager[None]:
        return self.workplace.attempt(self.store, f"the pull of {self.request.reference.redacted}")

    def _count_missing(self, resolved: Resolved) -> int:
        return sum(x.size for x in resolved.manifest.layers if not self.store.has_blob(x.digest, x.size))

    def _require_room(self, resolved: Resolved, target: Path) -> None:
        """Require room before the download: for missing layers, and for a SIF about as large as all of them."""
        from kedge.system.host.space import require_space

        missing = self._count_missing(resolved)
        what = f"the pull of {self.request.reference.redacted}"
        is_passing = self.workplace.settings.disable_cache
        result = estimate_size(resolved.compressed_size, self.request.form)
        together = _same_device(self.store.root, target.parent)
        is_kept = self.request.form is ImageFormat.SIF and not is_passing
        needed = missing + (result if together or is_kept else 0)
        require_space(self.store.root, needed, what, choice=self.workplace.store_choice)
        if not together:
            require_space(target.parent, result, what, choice="--dir {}")

    def _require_room_for_file(self, source: SifSource, target: Path) -> None:
        """Require room for a remote SIF file."""
        from kedge.system.host.space import require_space

        size, what = source.size or 0, f"the pull of {self.request.reference.redacted}"
        require_space(self.store.root, size, what, choice=self.workplace.store_choice)
        if self.request.form is ImageFormat.SIF and not _same_device(self.store.root, target.parent):
            require_space(target.parent, size, what, choice="--dir {}")


def estimate_size(compressed: int, form: ImageFormat) -> int:
    """About how large the result is: zstd packs as tightly as the layers' gzip; a directory is three times that."""
    return compressed * 3 if form is ImageFormat.SANDBOX else compressed * 11 // 10 + (1 << 20)


def _same_device(first: Path, second: Path) -> bool:
    """Whether two paths are on one file system; a missing path is where its parent is."""
    return _nearest_existing(first).stat().st_dev == _nearest_existing(second).stat().st_dev


def _nearest_existing(path: Path) -> Path:
    """The path, or the first of its parents that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())
