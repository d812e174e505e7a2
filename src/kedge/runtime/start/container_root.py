# SPDX-License-Identifier: BSD-3-Clause
"""One start, and its root: the image and its layers in their place, mount points for all the rest, and the plan.

`run` goes through the namespaces and becomes the program. On the path of every start, so it imports little.
"""

from __future__ import annotations

import os

from kedge.posix.spawn import close_all, list_inherited_directories
from kedge.runtime.command_line.binds import collect_binds
from kedge.runtime.environment.identity import make_group, make_passwd
from kedge.runtime.environment.payload import plan_payload
from kedge.runtime.facts import Additions, Bind, ImageFacts
from kedge.runtime.gpu_vendors import is_granted
from kedge.runtime.host_facts import find_terminal, gather_host, read_memory
from kedge.runtime.images.mount_or_unpack import plan_root
from kedge.runtime.mounts.builder import Builder, choose_base
from kedge.runtime.mounts.layering import choose_layering, plan_layers, plan_points
from kedge.runtime.mounts.plan import PlanRequest, plan_container
from kedge.runtime.start.exec_program import Restrictions, is_own_interpreter
from kedge.runtime.start.find_image import locate, prepare_image_binds, prepare_overlays
from kedge.runtime.start.host_root import HostRoot
from kedge.runtime.start.namespaces import wants_user_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from kedge.runtime.container_view import ContainerView
    from kedge.runtime.facts import HostFacts, Payload
    from kedge.runtime.images.image_binds import ImageBinds
    from kedge.runtime.mounts.ext3 import ExtServers
    from kedge.runtime.mounts.layering import Layering
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.mounts.points import MountPlan
    from kedge.runtime.mounts.squashfuse import FuseServer
    from kedge.runtime.options import RunOptions
    from kedge.runtime.processes.rank_sharing import Sharing
    from kedge.runtime.start.find_image import LocatedImage
    from kedge.runtime.start.services import FindServices, Say

    class Starting(Protocol):
        """What a process that becomes a program must know; a container that is built, or one that was joined."""

        host: HostFacts
        host_root: HostRoot
        sharing: Sharing | None
        restrictions: Restrictions


class Container:
    """One start: what was asked, what was found, and the pieces as they are made."""

    def __init__(self, options: RunOptions, say: Say, services: FindServices) -> None:
        self.options = options
        self.say = say
        self.services = services
        self.host = gather_host(os.environ)
        self.host_root = HostRoot()
        self.located: LocatedImage = locate(options, self.host, say, services)
        if options.writable_tmpfs or options.contain or options.scratch:
            self.host.memory = read_memory()  # what is private lives in memory
        self.layering: Layering = choose_layering(options, self.host, self.located.image)
        if self.layering.layers:
            prepare_overlays(self.layering, options, self.host, self.located.shown)
        self.asked = collect_binds(options, os.environ, self.host.cwd)
        if options.step is not None:
            self.asked += [Bind(source, place, readonly=bool(mode)) for source, place, mode in options.step.binds]
        self.binds = list(self.asked)
        self.scratch = self._prepare_scratch()
        for text in options.warnings:
            say("warn", text)
        self.image_binds: ImageBinds | None = None
        if any(bind.image_source or bind.partition for bind in self.binds):
            from kedge.runtime.images.image_binds import ImageBinds  # late: few binds come out of image files

            self.image_binds = ImageBinds(self.binds)
            prepare_image_binds(self.image_binds, options, self.host)
        self.base = choose_base(os.environ)
        self.root_mounts: list[Operation] = []
        self.layer_mounts: list[Operation] = []
        self.image_mounts: list[Operation] = []
        self.performed: list[Operation] = []
        for layer in self.layering.layers:
            if layer.warning:
                say("warn", layer.warning)
        self.ext_servers: ExtServers | None = None
        self.is_root_alone = False  # whether the emulated root is the only user there is
        self.sharing: Sharing | None = None
        self.restrictions = choose_restrictions(options, self.host)
        if options.drop_caps or options.no_privs:
            from kedge.runtime.processes.capabilities import choose_dropped  # late: few ask for it

            self.restrictions.capabilities = sorted({*self.restrictions.capabilities, *choose_dropped(options)})

    def _prepare_scratch(self) -> list[str]:
        """Make the directories below --workdir; returns the places that get an empty file system in memory instead."""
        if not self.options.scratch and not self.options.workdir:
            return []
        from kedge.runtime.mounts.scratch import plan_scratch  # late: only with these options

        plan = plan_scratch(self.options, self.host)
        if not self.options.dry_run:
            plan.make_folders()
        self.options.workdir = plan.workdir
        self.binds = [*plan.binds, *self.binds]
        return plan.memory


def choose_restrictions(options: RunOptions, host: HostFacts) -> Restrictions:
    """What the program is to be without; to be asked while the host's tree is the root."""
    restrictions = Restrictions(is_root=options.fakeroot or host.uid == 0)
    if wants_user_namespace(options, host.uid) and is_own_interpreter():
        # late: where the system's Python runs this it is not needed
        from kedge.posix.memory_program import can_hand_over
        from kedge.runtime.start.exec_from_memory import ExecFromMemory, explain_exposure

        if can_hand_over():
            restrictions.hand_over = ExecFromMemory(explains=options.json)
        elif options.contain:
            raise explain_exposure()
    if options.contain:
        from kedge.runtime.processes.seccomp import prepare_containment  # late: only with --contain

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
    count = sum(operation[0] in ("squashfuse", "gocryptfs") for operation in mounts)
    servers: list[FuseServer] = []
    if count:
        from kedge.runtime.mounts.squashfuse import FuseServer  # late: an unpacked image needs none

        servers = [FuseServer() for _ in range(count)]
    if any(operation[0] == "fuse2fs" for operation in mounts):
        from kedge.runtime.mounts.ext3 import serve_images  # late: only for ext3 images

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
    from kedge.runtime.processes.fakeroot_namespaces import FakerootNamespaces  # late: only with --fakeroot

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
        from kedge.runtime.mounts.emulation_files import list_emulation_files  # late: only with --fakeroot

        view = builder.look()
        files = list_emulation_files(view)
        view.close()
    if (builder.refused or files) and layering.is_layered:
        overlay = next(operation for operation in container.performed if operation[0] == "overlay")
        steps.append(builder.plan_inside(lambda view: plan_points(overlay, builder.refused, view, files)))
        perform(steps[-1])
    elif planned.missing and not layering.is_layered and not layering.is_direct:
        from kedge.runtime.mounts.underlay import plan_underlay  # late: only where there is no overlay

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
        from kedge.runtime.devices import plan_devices  # late: most containers ask for no device

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
    from kedge.runtime.environment.bound_view import BoundView  # late: few binds touch scripts

    view = BoundView(image.view, container.binds, container.host.view)
    return ImageFacts(view=view, path=image.path, name=image.name, kind=image.kind, oci_config=image.oci_config)


def asks_devices(options: RunOptions, host: HostFacts) -> bool:
    """Whether devices matter: asked for, or --contain hides them, or the scheduler gave GPUs that nobody asked for."""
    return options.asks_devices or options.contain or is_granted(host.environ)
