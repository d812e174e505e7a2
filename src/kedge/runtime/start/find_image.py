# SPDX-License-Identifier: BSD-3-Clause
"""Makes sure that an image is ready to be a root: finds it, or has it pulled and unpacked by a child process."""

from __future__ import annotations

import os

from kedge.posix.spawn import run_attached
from kedge.runtime.command_line.config_files import read_configured
from kedge.runtime.images.image_file import ImageFile, compare_machine, identify
from kedge.runtime.images.mount_or_unpack import (
    Root,
    allows_layers_above,
    choose_bound,
    choose_overlay,
    choose_root,
    find_usable_squashfuse,
    wants_layers_above,
)
from kedge.runtime.images.node_cache import (
    IMAGES,
    ROOT,
    find_by_reference,
    find_unpacked,
    hold_image,
    is_volatile,
    node_directory,
    read_config,
    reference_path,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.facts import HostFacts
    from kedge.runtime.images.image_binds import ImageBinds
    from kedge.runtime.mounts.layering import Layering
    from kedge.runtime.options import RunOptions
    from kedge.runtime.start.services import FindServices, Say


_MESSAGES = ("quiet", "silent", "debug", "nocolor", "shim")  # what the child says is said as the user asked for it
_ATTEMPTS = 3  # others may remove what was unpacked a moment ago, and nobody holds yet


class LocatedImage:
    """An image that can be entered."""

    def __init__(self, image: ImageFile, root: Root, shown: str) -> None:
        self.image = image
        self.root = root
        self.shown = shown  # the image's path or reference, as the container is told

    def read_config(self, options: RunOptions) -> bytes:
        """The image's OCI config, where the start depends on it."""
        if options.verb != "run":
            return b""
        return self.image.read_config() or read_config(self.root.folder)


def locate(options: RunOptions, host: HostFacts, say: Say, services: FindServices) -> LocatedImage:
    """The image that the user named, ready to be entered."""
    path = options.image
    if ":" in path:
        from kedge.model.image_argument import find_path  # late: the names of most files have no colon

        path = find_path(path)
    if not path:
        return _locate_reference(options, host, say)
    image = identify(path)
    compare_machine(image, host.machine)

    mounted, passing = (
        "",
        "",
    )  # the squashfuse that mounts it, or a directory for this start alone, where nothing is kept

    def find() -> Root:
        if mounted:
            return Root("squashfuse", f"mounted by {mounted}", program=mounted)
        if passing:
            return _use_temporary_image(passing)
        return choose_root(image, options, host.environ, host.uid)

    def make_ready(root: Root) -> None:
        nonlocal mounted, passing
        say("note", f"{options.image}: {root.reason}")
        was_missing = root.way == "unpack"  # and not there, but about to be removed
        program = _find_substitute(options)
        if _keeps_nothing(options, host):
            mounted, passing = program, "" if program else _unpack_temporarily(options)
            return
        is_there = lambda: was_missing and bool(find_unpacked(image, host.environ))  # noqa: E731 - two of a kind
        if _prepare_once(options, say, image.state, is_there, may_mount=bool(program)):
            mounted = program

    root = find() if image.kind == "folder" else find_held(find, make_ready, options.image)
    if root.way == "gocryptfs" and not options.dry_run:
        root.secret = services().find_passphrase(options, image.path, host.environ)
    return LocatedImage(image, root, image.path)


def find_held(find: Callable[[], Root], make_ready: Callable[[Root], None], name: str) -> Root:
    """A root that nobody takes away; unpacked first where it is missing, again where it is gone before it is held."""
    for attempt in range(_ATTEMPTS + 1):
        root = find()
        if root.way != "unpack" and (root.way != "folder" or hold_image(root.folder) >= 0):
            return root
        if attempt < _ATTEMPTS:
            make_ready(root)
    from kedge.errors import FileProblem  # late: only for an error

    raise FileProblem(
        f"{name} was unpacked {_ATTEMPTS} times, and each time removed from this node before the start",
        hint="the cache is too small: set KEDGE_NODEDIR to a directory on a larger disk, or mount a file with "
        "--root-from squashfuse",
    )


def prepare_overlays(layering: Layering, options: RunOptions, host: HostFacts, shown: str) -> None:
    """Let SquashFS overlays that cannot be mounted, or not be written above, be directories on this node.

    A directory that takes changes remembers the image, which is `shown` so.
    """
    if options.overlay and layering.keeps_changes and not options.dry_run:
        from kedge.runtime.mounts.overlay_base import remember_base  # late: few overlays are written to

        remember_base(layering.layers, shown)
    for layer in layering.layers:
        if layer.kind != "squashfs" or layer.offset:
            continue
        image = identify(layer.path)
        root = choose_overlay(image, options, host.environ, is_written=layering.is_writable)
        if root.way == "unpack":
            unpack_in_child(options, layer.path)
            root = choose_overlay(image, options, host.environ, is_written=layering.is_writable)
        if root.folder and hold_image(root.folder) >= 0:
            layer.kind, layer.path = "folder", root.folder


def prepare_image_binds(binds: ImageBinds, options: RunOptions, host: HostFacts) -> None:
    """Let SquashFS files that are bound and cannot be mounted here be directories on this node, if small enough."""
    for number, image in enumerate(binds.images):
        if image.kind != "squashfs":
            continue
        folder = _find_bound(image, options, host)
        if folder:
            binds.images[number] = ImageFile(folder, "folder")


def _find_bound(image: ImageFile, options: RunOptions, host: HostFacts) -> str:
    """Where a bound SquashFS file is unpacked; empty where it is to be mounted."""

    def find() -> Root:
        return choose_bound(image, options, host.environ)

    def make_ready(_root: Root) -> None:
        unpack_in_child(options, image.path)

    return find_held(find, make_ready, image.path).folder


def _locate_reference(options: RunOptions, host: HostFacts, say: Say) -> LocatedImage:
    reference = options.image
    if options.writable:
        from kedge.runtime.mounts.overlay_options import explain_readonly_image  # late: only for an error

        raise explain_readonly_image(reference, "reference")
    if options.root not in ("auto", "unpack"):
        say("warn", f"--root-from {options.root} is ignored: {reference} is unpacked on this node")
    machine = choose_architecture(options, host)
    is_looked_up = options.pull == "auto" and not is_volatile(reference)
    is_asked = not is_volatile(reference) and options.pull in ("missing", "never")
    program, mounted = "", ""  # squashfuse and the SIF that it mounts instead, where nothing can be unpacked
    passing = ""  # a directory for this start alone

    def find() -> Root:
        if mounted:
            return Root("squashfuse", f"{mounted} is mounted by {program}", program=program)
        if passing:
            return _use_temporary_image(passing)
        try:
            folder = find_on_node(options, host, is_asked=is_asked)
        except _file_problem():  # this node has no place for images
            folder = ""
        return Root("folder" if folder else "unpack", f"{reference} is unpacked on this node: {folder}", folder)

    def make_ready(root: Root) -> None:
        nonlocal is_asked, program, mounted, passing
        if _keeps_nothing(options, host):
            passing = _unpack_temporarily(options)
            return
        program = _find_substitute(options)
        if not is_asked and not is_looked_up:
            is_asked = True
            mounted = unpack_in_child(options, reference, may_mount=bool(program))
            return
        was_missing = root.way == "unpack"  # and not there, but about to be removed
        name = reference_path("", reference, machine).rpartition("/")[2]
        is_there = lambda: was_missing and bool(find_on_node(options, host, is_asked=is_asked))  # noqa: E731 - as above
        mounted = _prepare_once(options, say, name, is_there, may_mount=bool(program))
        is_asked = True

    root = find_held(find, make_ready, reference)
    return LocatedImage(identify(mounted) if mounted else ImageFile(root.folder, "folder"), root, reference)


def find_on_node(options: RunOptions, host: HostFacts, *, is_asked: bool) -> str:
    """The root that a reference means here; empty where --pull wants the registry to be asked, and nobody has yet."""
    if is_asked:
        return find_by_reference(options.image, choose_architecture(options, host), host.environ)
    if options.pull != "auto" or is_volatile(options.image):
        return ""
    from kedge.runtime.images.tag_lookups import find_current  # late: files are not looked up

    return find_current(options.image, choose_architecture(options, host), host.environ, options.pull_words)


def _keeps_nothing(options: RunOptions, host: HostFacts) -> bool:
    """Whether nothing is to be left on this node: --disable-cache, its variables, or the setting."""
    if "--disable-cache" in options.pull_words:
        return True
    asked = [host.environ.get(f"{prefix}_DISABLE_CACHE") for prefix in ("KEDGE", "APPTAINER", "SINGULARITY")]
    word = next(filter(None, asked), "") or read_configured("disable_cache", host.environ)
    return word.lower() in ("true", "yes", "on", "1")


def _unpack_temporarily(options: RunOptions) -> str:
    """Have the image unpacked for this start alone; the directory of its root."""
    from kedge.runtime.start.temporary_image import name_temporary_image  # late: only with --disable-cache

    name = name_temporary_image()
    unpack_in_child(options, options.image, once=name)
    return f"{node_directory(os.environ)}/{IMAGES}/{name}/{ROOT}"


def _use_temporary_image(folder: str) -> Root:
    """A root that is removed after the start that it was made for."""
    root = Root("folder", f"unpacked for this container only: {folder}", folder)
    root.is_temporary = True
    return root


def _find_substitute(options: RunOptions) -> str:
    """The squashfuse that stands in where an image cannot be unpacked; empty where there is none or none is wanted."""
    if options.root != "auto" or options.json:
        return ""
    program = find_usable_squashfuse()[0]
    return "" if program and wants_layers_above(options) and not allows_layers_above(program) else program


def choose_architecture(options: RunOptions, host: HostFacts) -> str:
    """The machine whose image is meant, in the words that `kedge unpack` gets: --arch, a variable, a setting."""
    words = options.pull_words
    if "--arch" in words:
        return words[len(words) - words[::-1].index("--arch")]
    for prefix in ("KEDGE", "APPTAINER", "SINGULARITY"):
        for name in ("PULL_ARCH", "ARCH"):
            if host.environ.get(f"{prefix}_{name}"):
                return host.environ[f"{prefix}_{name}"]
    return read_configured("architecture", host.environ) or host.machine


def _prepare_once(
    options: RunOptions, say: Say, name: str, is_there: Callable[[], bool], *, may_mount: bool = False
) -> str:
    """Call `unpack_in_child` in one of all processes that want the image on this node; the others wait for it."""
    from kedge.runtime.images.unpack_lock import UnpackLock, speaks_for_others  # late: only where an image is missing

    try:
        lock = UnpackLock(node_directory(os.environ), name)
    except _file_problem():
        if not may_mount:
            raise
        return unpack_in_child(
            options, options.image, may_mount=True
        )  # there is no place for turns, and none to unpack to
    level = "tell" if speaks_for_others(os.environ) else "note"
    try:
        lock.acquire(lambda text: say(level, f"{text}: {options.image}"))
        return "" if is_there() else unpack_in_child(options, options.image, may_mount=may_mount)
    finally:
        lock.release()


def unpack_in_child(options: RunOptions, word: str, *, may_mount: bool = False, once: str = "") -> str:
    """Have the image unpacked on this node; the child shows progress and says itself what goes wrong.

    With `may_mount` a child that finds no room here returns the file to be mounted instead. `once` is the name of an
    image that nobody else is to find.
    """
    words = ["unpack", *options.pull_words, *(f"--{name}" for name in _MESSAGES if getattr(options, name))]
    if options.shim and not options.verbose and not os.isatty(2):
        words.append("--quiet")  # a program may read it, and take progress for output
    words += ["--pull", options.pull, *(["--once", once] if once else [])]
    if options.json:
        _prepare_silently([*words, "--", word], word)
        return ""
    from kedge.posix.start_kedge import own_command  # late: only where an image is missing

    answer, telling = os.pipe()
    try:
        if may_mount:
            os.set_inheritable(telling, True)
            words += ["--or-mount", str(telling)]
        status = run_attached(own_command(*words, "--", word), os.environ, is_kedge=True)
        os.close(telling)
        mounted = os.read(answer, 1 << 16)
    finally:
        os.close(answer)
    if status:
        from kedge.errors import NotReady  # late: only for an error

        raise NotReady(f"cannot prepare {word}", context={"status": str(status)})
    return os.fsdecode(mounted)


def _file_problem() -> type[Exception]:
    """Python asks for it only once something was raised: success needs no errors."""
    from kedge.errors import FileProblem  # late: as said

    return FileProblem


def _prepare_silently(words: list[str], word: str) -> None:
    """The same where a program reads what we say: what goes wrong in the child is raised here, to be said as JSON."""
    from kedge.errors import NotReady  # late, both: few ask for JSON
    from kedge.posix.kedge_child import read_error, run_kedge

    done = run_kedge(words)
    if done.status:
        context = {"status": str(done.status), "stderr": done.errors[-2000:].decode(errors="replace").strip()}
        raise read_error(done.output) or NotReady(f"cannot prepare {word}", context=context)
