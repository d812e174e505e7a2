# SPDX-License-Identifier: BSD-3-Clause
"""The way of a start, from the options to the program: the image found, the root built, the program become."""

from __future__ import annotations

import os

from kedge.base.rank_variables import COUNTED
from kedge.container.facts import (
    Additions,
    Bind,
    ImageFacts,
    find_terminal,
    gather_host,
    make_group,
    make_passwd,
    read_memory,
)
from kedge.container.flags import collect_binds
from kedge.container.mount_operations import Fuse2fs, Gocryptfs, Overlay, Squashfuse, render_plan
from kedge.container.mounting import (
    OTHER_NAMESPACES,
    ROOT_ALONE,
    SUBORDINATE,
    Builder,
    HostRoot,
    PlanRequest,
    Restrictions,
    Root,
    allows_layers_above,
    choose_base,
    choose_bound,
    choose_layering,
    choose_overlay,
    choose_root,
    enter_other_namespaces,
    enter_process_namespace,
    enter_wanted_namespace,
    find_usable_squashfuse,
    is_own_interpreter,
    is_restricted,
    plan_container,
    plan_layers,
    plan_points,
    plan_root,
    start_program,
    try_namespaces,
    wants_layers_above,
    wants_user_namespace,
)
from kedge.container.options import CONTAINER_SETTINGS, is_granted, settle_options
from kedge.container.payload import plan_payload
from kedge.image.image_file import ImageFile, compare_machine, identify
from kedge.image.node_cache import (
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
from kedge.system.settings_lines import read_configured
from kedge.system.spawn import close_all, list_inherited_directories, run_attached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kedge.container.facts import HostFacts, Payload
    from kedge.container.image_binds import ImageBinds
    from kedge.container.mount_operations import ContainerView, MountPlan, Operation
    from kedge.container.mounting import Layering
    from kedge.container.mounts.ext3 import ExtServers
    from kedge.container.mounts.squashfuse import FuseServer
    from kedge.container.options import RunOptions
    from kedge.container.processes.rank_sharing import Sharing
    from kedge.container.start.services import FindServices, Say

    class Starting(Protocol):
        """What a process that becomes a program must know; a container that is built, or one that was joined."""

        host: HostFacts
        host_root: HostRoot
        sharing: Sharing | None
        restrictions: Restrictions


# Makes sure that an image is ready to be a root: finds it, or has it pulled and unpacked by a child process.

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
        from kedge.base.image_argument import find_path  # late: the names of most files have no colon

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
        from kedge.container.mounts.overlay_base import remember_base  # late: few overlays are written to

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


def prepare_image_binds(binds: list[Bind], options: RunOptions, host: HostFacts) -> ImageBinds | None:
    """The binds that come out of image files, or None where there are none.

    SquashFS files that cannot be mounted here become directories on this node, if they are small enough.
    """
    if not any(bind.image_source or bind.partition for bind in binds):
        return None
    from kedge.container.image_binds import ImageBinds  # late: few binds come out of image files

    image_binds = ImageBinds(binds)
    for number, image in enumerate(image_binds.images):
        if image.kind != "squashfs":
            continue
        folder = _find_bound(image, options, host)
        if folder:
            image_binds.images[number] = ImageFile(folder, "folder")
    return image_binds


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
        from kedge.container.mounts.overlay_options import explain_readonly_image  # late: only for an error

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
    from kedge.image.node.tag_lookups import find_current  # late: files are not looked up

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
    from kedge.container.start.temporary_image import name_temporary_image  # late: only with --disable-cache

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
    from kedge.image.node.unpack_lock import UnpackLock, speaks_for_others  # late: only where an image is missing

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
    from kedge.system.start_kedge import own_command  # late: only where an image is missing

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
    from kedge.system.kedge_child import read_error, run_kedge

    done = run_kedge(words)
    if done.status:
        context = {"status": str(done.status), "stderr": done.errors[-2000:].decode(errors="replace").strip()}
        raise read_error(done.output) or NotReady(f"cannot prepare {word}", context=context)


# One start, and its root: the image and its layers in their place, mount points for all the rest, and the plan.
#
# `run` goes through the namespaces and becomes the program. On the path of every start, so it imports little.


class Container:
    """One start: what was asked, what was found, and the pieces as they are made."""

    def __init__(
        self,
        options: RunOptions,
        say: Say,
        services: FindServices,
        host: HostFacts,
        host_root: HostRoot,
        *,
        located: LocatedImage,
        layering: Layering,
        asked: list[Bind],
        binds: list[Bind],
        scratch: list[str],
        image_binds: ImageBinds | None,
        base: str,
        restrictions: Restrictions,
    ) -> None:
        self.options = options
        self.say = say
        self.services = services
        self.host = host
        self.host_root = host_root
        self.located = located
        self.layering = layering
        self.asked = asked
        self.binds = binds
        self.scratch = scratch  # places that get an empty file system in memory
        self.image_binds = image_binds
        self.base = base
        self.restrictions = restrictions
        self.root_mounts: list[Operation] = []
        self.layer_mounts: list[Operation] = []
        self.image_mounts: list[Operation] = []
        self.performed: list[Operation] = []
        self.ext_servers: ExtServers | None = None
        self.is_root_alone = False  # whether the emulated root is the only user there is
        self.sharing: Sharing | None = None


def prepare_container(options: RunOptions, say: Say, services: FindServices) -> Container:
    """Find the image, the host's facts and what the options mean there; make the directories that a start needs."""
    host, host_root = gather_host(os.environ), HostRoot()
    located = locate(options, host, say, services)
    if options.writable_tmpfs or options.contain or options.scratch:
        host.memory = read_memory()  # what is private lives in memory
    layering = choose_layering(options, host, located.image)
    if layering.layers:
        prepare_overlays(layering, options, host, located.shown)
    asked = collect_binds(options, os.environ, host.cwd)
    if options.step is not None:
        asked += [Bind(source, place, readonly=bool(mode)) for source, place, mode in options.step.binds]
    own_binds, scratch = _prepare_scratch(options, host)
    for text in options.warnings:
        say("warn", text)
    binds = [*own_binds, *asked]
    image_binds = prepare_image_binds(binds, options, host)
    base = choose_base(os.environ)
    for layer in layering.layers:
        if layer.warning:
            say("warn", layer.warning)
    restrictions = choose_restrictions(options, host)
    if options.drop_caps or options.no_privs:
        from kedge.container.processes.capabilities import choose_dropped  # late: few ask for it

        restrictions.capabilities = sorted({*restrictions.capabilities, *choose_dropped(options)})
    return Container(
        options,
        say,
        services,
        host,
        host_root,
        located=located,
        layering=layering,
        asked=asked,
        binds=binds,
        scratch=scratch,
        image_binds=image_binds,
        base=base,
        restrictions=restrictions,
    )


def _prepare_scratch(options: RunOptions, host: HostFacts) -> tuple[list[Bind], list[str]]:
    """Make the directories below --workdir: their binds, and the places that get a file system in memory instead."""
    if not options.scratch and not options.workdir:
        return [], []
    from kedge.container.mounts.scratch import plan_scratch  # late: only with these options

    plan = plan_scratch(options, host)
    if not options.dry_run:
        plan.make_folders()
    options.workdir = plan.workdir
    return plan.binds, plan.memory


def choose_restrictions(options: RunOptions, host: HostFacts) -> Restrictions:
    """What the program is to be without; to be asked while the host's tree is the root."""
    restrictions = Restrictions(is_root=options.fakeroot or host.uid == 0)
    if wants_user_namespace(options, host.uid) and is_own_interpreter():
        # late: where the system's Python runs this it is not needed
        from kedge.container.exec_from_memory import ExecFromMemory, explain_exposure
        from kedge.system.memory_program import can_hand_over

        if can_hand_over():
            restrictions.hand_over = ExecFromMemory(explains=options.json)
        elif options.contain:
            raise explain_exposure()
    if options.contain:
        from kedge.container.seccomp import prepare_containment  # late: only with --contain

        restrictions.contain = prepare_containment(host.machine)
        close_all(list_inherited_directories())
    return restrictions


def make_servers(container: Container) -> list[FuseServer]:
    """Plan what is mounted before the image can be looked into, and start one server for each FUSE mount in it."""
    located, layering = container.located, container.layering
    container.root_mounts = plan_root(located.image, located.root, is_writable=layering.is_direct)
    container.layer_mounts = plan_layers(layering)
    container.image_mounts = container.image_binds.plan() if container.image_binds is not None else []
    mounts = [*container.root_mounts, *container.layer_mounts, *container.image_mounts]
    count = sum(isinstance(operation, Squashfuse | Gocryptfs) for operation in mounts)
    servers: list[FuseServer] = []
    if count:
        from kedge.container.mounts.squashfuse import FuseServer  # late: an unpacked image needs none

        servers = [FuseServer() for _ in range(count)]
    if any(isinstance(operation, Fuse2fs) for operation in mounts):
        from kedge.container.mounts.ext3 import serve_images  # late: only for ext3 images

        container.ext_servers = serve_images(mounts, container.base)
    return servers


class BuiltRoot:
    """A container whose root is in its place, with mount points for all the rest."""

    def __init__(self, builder: Builder, planned: MountPlan, payload: Payload) -> None:
        self.builder = builder
        self.planned = planned
        self.payload = payload


def begin(container: Container, servers: list[FuseServer]) -> BuiltRoot:
    """Put the root in its place and plan the rest. FUSE servers start here, outside of a process-id namespace."""
    builder = Builder(container.base, container.say, servers, container.host_root)
    builder.secret = container.located.root.secret
    builder.lets_setuid = container.restrictions.lets_setuid = container.layering.has_users
    if container.ext_servers is not None:
        container.ext_servers.adopt()
        builder.ext_servers = container.ext_servers
    builder.prepare()
    _perform_root(container, builder)
    view = builder.look()
    request, payload = plan(container, view)
    planned = plan_container(request)
    view.close()
    for text in request.additions.warnings:
        container.say("warn", text)
    for text in payload.warnings:
        container.say("once", text)
    for text in (*request.additions.notes, *payload.notes):
        container.say("note", text)
    _make_points(container, builder, planned)
    return BuiltRoot(builder, planned, payload)


def complete(container: Container, built: BuiltRoot) -> None:
    """Mount the rest and go in, in the process that becomes the program."""
    if container.options.dry_run:
        container.performed += built.planned.rest
        return
    if container.options.fakeroot:
        add_fakeroot_namespaces(container)
        container.restrictions.prepare()
    built.builder.perform(built.planned.rest)


def add_fakeroot_namespaces(container: Starting) -> None:
    """Let fake root have namespaces of its own; to be called while /proc is the host's."""
    from kedge.container.processes.fakeroot_namespaces import FakerootNamespaces  # late: only with --fakeroot

    restrictions = container.restrictions
    user = restrictions.user
    takes_user = getattr(restrictions.emulate, "takes_user", None)
    if user is not None and (user.uid or user.gid or user.groups) and takes_user is not None and takes_user(user):
        user, restrictions.capabilities = None, list(range(64))
    restrictions.fakeroot_namespaces = FakerootNamespaces(user)


def _make_points(container: Container, builder: Builder, planned: MountPlan) -> None:
    """Make the mount points; where no layer takes them, the image's directories are rebuilt around them."""
    layering = container.layering
    perform = builder.perform if not container.options.dry_run else _stay_planned
    steps: list[list[Operation]] = []
    files: tuple[tuple[str, str], ...] = ()
    if layering.is_layered and layering.keeps_changes:
        builder.refused = planned.missing
    elif layering.is_layered:
        perform(planned.making)
        steps.append(planned.making)
    if container.is_root_alone and layering.is_writable:
        from kedge.container.mounts.step_points import list_emulation_files  # late: only with --fakeroot

        view = builder.look()
        files = list_emulation_files(view)
        view.close()
    if (builder.refused or files) and layering.is_layered:
        overlay = next(operation for operation in container.performed if isinstance(operation, Overlay))
        steps.append(builder.plan_inside(lambda view: plan_points(overlay, builder.refused, view, files)))
        perform(steps[-1])
    elif planned.missing and not layering.is_layered and not layering.is_direct:
        from kedge.container.mounts.underlay import plan_underlay  # late: only where there is no overlay

        steps.append(builder.plan_inside(lambda view: plan_underlay(planned.missing, view)))
        perform(steps[-1])
    for step in steps:
        container.performed += step


def _stay_planned(_: list[Operation]) -> None:
    """Does nothing: a dry run."""


def _perform_root(container: Container, builder: Builder) -> None:
    """The image, and the layers above it; without an overlay the missing mount points come from binds."""
    located, layering = container.located, container.layering
    container.say("note", f"root: {located.root.reason}")
    builder.perform(container.root_mounts)
    builder.image_folder = located.root.folder
    container.performed += container.root_mounts
    layers = container.layer_mounts
    try:
        builder.perform(layers)
    except _mount_failed() as problem:
        if layering.must_overlay:
            raise
        container.say("note", f"{problem}: using binds for the mount points instead")
        layering.use_binds()
        layers = plan_layers(layering)
        builder.perform(layers)
    container.performed += layers
    if container.image_binds is not None:
        builder.perform(container.image_mounts)
        container.performed += container.image_mounts
        container.image_binds.settle(container.base)


def _mount_failed() -> type[Exception]:
    """Python asks for it only once something was raised: success needs no errors."""
    from kedge.errors import MountFailed  # late: as said

    return MountFailed


def plan(container: Container, view: ContainerView) -> tuple[PlanRequest, Payload]:
    """Make the plan from what is in the root."""
    options, host, located = container.options, container.host, container.located
    image = ImageFacts(view=view, path=located.shown, kind=located.image.kind, oci_config=located.read_config(options))
    additions = Additions()
    if asks_devices(options, host):
        from kedge.container.devices import plan_devices  # late: most containers ask for no device

        additions = plan_devices(options, host, image)
    payload = plan_payload(options, host, _see_binds(image, container), additions, container.asked)
    container.restrictions.user = payload.user
    request = PlanRequest(options, host, image, additions, payload)
    request.binds, request.scratch = container.binds, container.scratch
    request.is_writable, request.is_direct = container.layering.is_writable, container.layering.is_direct
    request.store = container.base[: -len("/session")] if container.base.endswith("/session") else ""
    request.private_size = container.layering.private_size
    home = request.home[1]
    if not (request.is_writable and (options.fakeroot or host.uid == 0)):
        # Root is in every image, and where it may write, useradd must be able to replace these files.
        request.passwd = make_passwd(view.read("/etc/passwd"), host, home, fakeroot=options.fakeroot)
        request.group = make_group(view.read("/etc/group"), host)
    request.terminal = find_terminal() if options.contain else ""
    return request, payload


def _see_binds(image: ImageFacts, container: Container) -> ImageFacts:
    """The image as its scripts will be, where a bind brings one of them."""
    if not any(bind.destination.startswith(("/.singularity.d", "/scif")) for bind in container.binds):
        return image
    from kedge.container.environment.bound_view import BoundView  # late: few binds touch scripts

    view = BoundView(image.view, container.binds, container.host.view)
    return ImageFacts(view=view, path=image.path, name=image.name, kind=image.kind, oci_config=image.oci_config)


def asks_devices(options: RunOptions, host: HostFacts) -> bool:
    """Whether devices matter: asked for, or --contain hides them, or the scheduler gave GPUs that nobody asked for."""
    return options.asks_devices or options.contain or is_granted(host.environ)


# Run: from options to a program in a container. This is the path that every start takes, so it imports little.
#
# One process does it all and becomes the program, so exit status and signals need no help; only a process-id
# namespace
# needs a second one. What must be pulled or unpacked first is done by a child, because a process that makes a user
# namespace may have one thread only.


def run_container(options: RunOptions, say: Say, services: FindServices) -> int:
    """Start the container and become its program; returns only after a dry run, and raises where it fails.

    `say(level, text)` hears warnings, notes and, at level `out`, the plan of a dry run.
    """
    settle_options(options, os.environ, ("runtime", *CONTAINER_SETTINGS))
    if options.is_foreign:
        return services().run_elsewhere(options, say)
    container = prepare_container(options, say, services)
    try:
        if container.located.root.is_temporary:
            from kedge.container.start.temporary_image import run_and_remove  # late: only with --disable-cache

            run_and_remove(lambda: end_with(_start_container(container)), container.located.root.folder)
        return _start_container(container)
    except BaseException:
        container.host_root.restore_if_inside()
        raise


def _start_container(container: Container) -> int:
    """Join the container or build it, and become the program in it."""
    options = container.options
    limit_resources(options)
    if not options.dry_run and is_shared(options, container.host) and share(container):
        return _finish_inside(container)
    if options.device:
        from kedge.container.devices.cdi import refuse_strangers  # late: few name devices

        refuse_strangers(options, container.host.view)
    built = begin(container, enter_namespaces(container))
    if options.pid:
        # late: only a process-id namespace needs a second process
        from kedge.container.processes.supervise import end_with_parent, run_supervised

        enter_pid_namespace(container)
        if options.step is not None:
            end_with_parent(options.step.parent)
        run_supervised(
            lambda: end_with(finish(container, built)),
            with_init=options.sharens or not options.no_init,
            is_shared=options.sharens,
        )
    return finish(container, built)


def limit_resources(options: RunOptions) -> None:
    """Enter a control group with the limits of --memory, --cpus and the like; a dry run only checks them."""
    if not options.limits:
        return
    from kedge.system.host.resource_group import enter_limits  # late, both: few ask for limits
    from kedge.system.host.resource_request import read_request

    request = read_request(options.limits)
    if not options.dry_run:
        enter_limits(request, options.limits)


def is_shared(options: RunOptions, host: HostFacts) -> bool:
    """Whether this rank shares a container with the others of its launch on this node: asked for, or needed by MPI."""
    if options.sharens or "sharens" in options.given or not wants_user_namespace(options, host.uid):
        return options.sharens
    is_apart = options.contain or options.pid or options.ipc or options.net or options.uts or options.fakeroot
    if is_apart or options.writable_tmpfs or options.dry_run or host.environ.keys().isdisjoint(COUNTED):
        return False
    from kedge.container.processes.rank_sharing import has_companions  # late: only below a launcher

    return has_companions(host.environ)  # in user namespaces of their own they could not reach each other's memory


def share(container: Container) -> bool:
    """Join the container that another rank of the same launch has built; else this one builds it for the others."""
    import kedge.container.start.joined_container  # noqa: F401 - while the host's tree is still there
    from kedge.container.processes.rank_sharing import Sharing, make_key  # late: only ranks share

    located, options = container.located, container.options
    identity = located.image.state or located.root.folder
    container.sharing = Sharing(is_hidden=options.fakeroot)
    try:
        is_inside = container.sharing.enter_or_build(make_key(options, identity, os.environ, container.host.cwd))
    except Exception as problem:
        if options.sharens or not (isinstance(problem, OSError) or type(problem).__name__ == "FileProblem"):
            raise
        container.sharing = None  # nobody asked for it: there is no place to note who shares
        container.say("note", f"not shared with other ranks: {problem}")
        return False
    container.say("note", f"{'joined' if is_inside else 'built'} the container of this launch on this node")
    return is_inside


def _finish_inside(container: Container) -> int:
    """In a container that was joined: become the program."""
    from kedge.container.start.joined_container import JoinedContainer  # late: as above

    located, options = container.located, container.options
    inside = JoinedContainer(container.host_root)

    def start() -> int:
        image = ImageFacts(
            view=container.host.view,
            path=located.shown,
            kind=located.image.kind,
            oci_config=located.read_config(options),
        )
        payload = inside.plan(options, container.host, image, container.say)
        container.restrictions.emulate = inside.emulate
        return become(container, payload)

    def start_apart() -> None:
        if options.fakeroot:  # who joined a process-id namespace is where the container was built
            add_fakeroot_namespaces(container)
        end_with(start())

    if container.sharing is not None and container.sharing.must_fork:
        from kedge.container.processes.supervise import run_supervised  # late: only where it has one

        run_supervised(start_apart, with_init=False)
    return start()


def end_with(status: int) -> None:
    """End a second process."""
    os._exit(status)


def finish(container: Container, built: BuiltRoot) -> int:
    """Complete the container and become its program."""
    complete(container, built)
    if container.options.dry_run:
        container.say("out", render_plan(container.performed, built.payload, as_json=container.options.json))
        return 0
    return become(container, built.payload)


def enter_namespaces(container: Container) -> list[FuseServer]:
    """Leave the host's namespaces; FUSE servers are made halfway, so that they do not keep the mounts alive."""
    options, host = container.options, container.host
    refused = "a user namespace"
    try:
        if wants_user_namespace(options, host.uid):
            if is_restricted():
                try_namespaces(options, host)
            mapped = None
            if options.step is not None and not options.ignore_subuid and host.uid:
                from kedge.container.start.mapped_step import MappedStep  # late: only builds have steps

                mapped = MappedStep(options, options.step)
            known = enter_wanted_namespace(options, host)
            container.say("note", f"users in the container: {known}")
            container.is_root_alone = known == ROOT_ALONE and options.fakeroot
            if container.is_root_alone or options.step is not None:
                from kedge.container.start.emulation import choose_emulation  # late: only with --fakeroot

                container.restrictions.emulate = choose_emulation(
                    options, host.machine, container.is_root_alone, is_mapped=known == SUBORDINATE
                )
            if mapped is not None and known == SUBORDINATE:
                mapped.go_on_inside(container.layering)
        servers = make_servers(container)
        refused = OTHER_NAMESPACES
        enter_other_namespaces(options)
    except OSError as problem:
        from kedge.container.start.start_errors import leave_to_other_runtime  # late: only where this machine refuses

        leave_to_other_runtime(options, problem, container.say, refused, container.services())
    return servers


def enter_pid_namespace(container: Container) -> None:
    """A process-id namespace for the next child and all its children."""
    try:
        enter_process_namespace()
    except OSError as problem:
        from kedge.container.start.start_errors import leave_to_other_runtime  # late: only where this machine refuses

        leave_to_other_runtime(container.options, problem, container.say, OTHER_NAMESPACES, container.services())


def become(container: Starting, payload: Payload) -> int:
    """Become the program; where it cannot be started, go back to the host's tree and say why."""
    if container.sharing is not None:
        container.sharing.note_mounts()
    container.restrictions.apply()
    if container.sharing is not None:
        container.sharing.publish()
    if not payload.argv:
        return 0  # a test or start script that the image does not have
    problem = start_program(payload, container.restrictions.hand_over)
    container.host_root.restore()
    from kedge.container.start.start_errors import explain_start  # late: only where the program cannot be started

    raise explain_start(payload.argv[0], problem, container.host.machine)
