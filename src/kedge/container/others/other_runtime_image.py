# SPDX-License-Identifier: BSD-3-Clause
"""Brings an image into a format that another runtime takes: as it is, from the cache, or unpacked on this node."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path

from kedge.base.image_argument import find_path
from kedge.base.progress import Progress, Silent
from kedge.base.reference import Reference, Transport
from kedge.container.facts import HostFacts, ImageFacts
from kedge.container.mounts.overlay_options import explain_readonly_image
from kedge.container.options import RunOptions
from kedge.container.others import Adapter, ForeignImage
from kedge.container.start_container import choose_architecture, find_on_node, unpack_in_child
from kedge.errors import FileProblem, KedgeError, RuntimeUnsuited, UsageError
from kedge.image.image_file import ImageFile, compare_machine, identify
from kedge.image.node_cache import find_by_reference, find_unpacked, hold_image, is_volatile, read_config
from kedge.image.workplace import Workplace
from kedge.system.settings import SETTINGS, Settings
from kedge.system.views import DirectoryView, TableView

Say = Callable[[str, str], None]


class _SayingProgress(Silent):
    """Hands notes and warnings on."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def note(self, message: str) -> None:
        """Said with --verbose: standard error is the program's."""
        self._say("note", message)

    def detail(self, message: str) -> None:
        """Print a detail as a note."""
        self._say("note", message)

    def warn(self, message: str) -> None:
        """Said always."""
        self._say("warn", message)


def open_image(
    adapter: Adapter, options: RunOptions, host: HostFacts, say: Say, closing: contextlib.ExitStack
) -> ForeignImage:
    """The image in a format that the runtime takes, with a view into it where one is needed."""
    if options.image.startswith("instance://"):
        if not adapter.reads_scripts:
            raise RuntimeUnsuited(
                f"{adapter.name} has no instances, so it cannot enter {options.image}",
                context={"runtime": adapter.name},
                hint="leave out --runtime",
            )
        return _pass_on(options.image, "sif", options.image)
    path = find_path(options.image)
    found = identify(path) if path else None
    if found is not None:
        compare_machine(found, host.machine)
    must_unpack = not adapter.reads_scripts and "folder" in adapter.forms and (found is None or found.kind != "folder")
    if must_unpack and (options.root == "unpack" or adapter.forms == ("folder",)):
        return _unpack(options, found, host)
    if found is not None and found.kind in adapter.forms:
        return _look_into(adapter, found, found.read_config(), closing)
    if found is not None and found.kind == "folder":
        raise RuntimeUnsuited(
            f"{adapter.name} cannot run a directory: {found.path}",
            context={"runtime": adapter.name},
            hint=f"convert it to a file: kedge convert {shlex.quote(found.path)} IMAGE.sqsh",
        )
    file, config = _have_file(adapter.forms[0], options, found, say)
    return _look_into(adapter, identify(str(file)), config, closing, shown=options.image)


def _pass_on(path: str, kind: str, shown: str) -> ForeignImage:
    """Return an image to be looked at by the runtime itself."""
    return ForeignImage(path, kind, ImageFacts(view=TableView({}), path=shown, kind=kind))


def _look_into(
    adapter: Adapter, image: ImageFile, config: bytes, closing: contextlib.ExitStack, *, shown: str = ""
) -> ForeignImage:
    if adapter.reads_scripts:
        return _pass_on(image.path, image.kind, shown or image.path)
    name = shown or image.path
    if image.kind == "folder":
        facts = ImageFacts(view=DirectoryView(image.path), path=name, kind="folder", oci_config=config)
        return ForeignImage(image.path, "folder", facts)
    from kedge.image.formats.squashfs.view import SquashView  # late: directories need no reader

    file = closing.enter_context(Path(image.path).open("rb"))
    view = closing.enter_context(SquashView(file, image.offset, image.size))
    return ForeignImage(image.path, image.kind, ImageFacts(view=view, path=name, kind=image.kind, oci_config=config))


def _unpack(options: RunOptions, found: ImageFile | None, host: HostFacts) -> ForeignImage:
    """A directory on this node, held for as long as the runtime's processes live."""
    if options.writable:
        raise explain_readonly_image(options.image, found.kind if found else "reference")
    root = _find_current(options, found, host)
    if options.pull in ("newer", "always") or not root or hold_image(root) < 0:
        unpack_in_child(options, options.image)
        root = _find_root(options, found, host)
        if not root or hold_image(root) < 0:
            raise FileProblem(
                f"{options.image} was removed from this node's cache before it could be used",
                hint="set KEDGE_NODEDIR to a directory on a larger disk",
            )
    facts = ImageFacts(view=DirectoryView(root), path=options.image, kind="folder", oci_config=read_config(root))
    return ForeignImage(root, "folder", facts)


def _find_current(options: RunOptions, found: ImageFile | None, host: HostFacts) -> str:
    is_looked_up = found is None and options.pull == "auto"
    return find_on_node(options, host, is_asked=False) if is_looked_up else _find_root(options, found, host)


def _find_root(options: RunOptions, found: ImageFile | None, host: HostFacts) -> str:
    if found is not None:
        return find_unpacked(found, host.environ)
    return (
        ""
        if is_volatile(options.image)
        else find_by_reference(options.image, choose_architecture(options, host), host.environ)
    )


def _have_file(kind: str, options: RunOptions, found: ImageFile | None, say: Say) -> tuple[Path, bytes]:
    """A SIF or SquashFS file in the store, and the image's OCI config where it is known."""
    from kedge.image.cached_image import CachedFormat, provide_cached
    from kedge.image.write_image import write_sif, write_squashfs  # late: what a runtime takes as it is needs none

    shape = CachedFormat("sif", write_sif) if kind == "sif" else CachedFormat("squashfs", write_squashfs)
    workplace = _make_workplace(options, _SayingProgress(say))
    reference = Reference(Transport.FILE, path=found.path) if found else Reference.parse(options.image)
    if workplace.settings.disable_cache:
        raise UsageError(
            "--disable-cache cannot be used with another runtime, which needs the image in the cache",
            hint=f"pull it first: kedge pull IMAGE.{'sif' if kind == 'sif' else 'sqsh'} {reference.redacted}",
        )
    with workplace.open_store() as store:
        path = provide_cached(reference, workplace, store, shape, policy=options.pull)
        config = found.read_config() if found else _find_config(reference, workplace)
    return path, config


def _find_config(reference: Reference, workplace: Workplace) -> bytes:
    """What the registry said when the image was fetched; nothing where it was no image of layers."""
    from kedge.image.sources.classify import SourceKind, classify
    from kedge.image.sources.resolve import read_config as read_image_config
    from kedge.image.sources.resolve import resolve

    source = classify(reference)
    if source.kind is not SourceKind.REGISTRY:
        return b""
    with contextlib.suppress(KedgeError), workplace.open_store() as store:
        source = source.look_up(lambda: resolve(reference, workplace, store, offline=True))
        return read_image_config(source.layers, store)[0] if source.layers else b""
    return b""


def _make_workplace(options: RunOptions, progress: Progress) -> Workplace:
    """Settings as the words for a pull say; they are those of `kedge pull`."""
    from kedge.image.registry.access_options import AccessOptions

    flags: dict[str, object] = {}
    authfile: Path | None = None
    words = list(options.pull_words)
    by_flag = {flag: setting for setting in SETTINGS.values() for flag in setting.flags}
    while words:
        word, _, value = words.pop(0).partition("=")
        setting = by_flag.get(word)
        if setting is not None and setting.kind == "yes or no":
            flags[setting.name] = True
        elif setting is not None:
            flags[setting.name] = value or words.pop(0)
        elif word == "--authfile":
            authfile = Path(value or words.pop(0))
        elif word == "--docker-login":
            raise UsageError("--docker-login cannot be used with --runtime", hint="log in first: kedge registry login")
    return Workplace(Settings.load(flags), progress, AccessOptions(authfile=authfile))
