# SPDX-License-Identifier: BSD-3-Clause
"""Run: from options to a program in a container. This is the path that every start takes, so it imports little.

One process does it all and becomes the program, so exit status and signals need no help; only a process-id namespace
needs a second one. What must be pulled or unpacked first is done by a child, because a process that makes a user
namespace may have one thread only.
"""

from __future__ import annotations

import os

from kedge.launch.rank_variables import COUNTED
from kedge.runtime.command_line.config_files import CONTAINER_SETTINGS, settle_options
from kedge.runtime.facts import ImageFacts
from kedge.runtime.mounts.operations import render_plan
from kedge.runtime.start.container_root import Container, add_fakeroot_namespaces, begin, complete, make_servers
from kedge.runtime.start.exec_program import start_program
from kedge.runtime.start.namespaces import (
    OTHER_NAMESPACES,
    ROOT_ALONE,
    SUBORDINATE,
    enter_other_namespaces,
    enter_process_namespace,
    enter_wanted_namespace,
    is_restricted,
    try_namespaces,
    wants_user_namespace,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import HostFacts, Payload
    from kedge.runtime.mounts.squashfuse import FuseServer
    from kedge.runtime.options import RunOptions
    from kedge.runtime.start.container_root import BuiltRoot, Starting
    from kedge.runtime.start.services import FindServices, Say


def run_container(options: RunOptions, say: Say, services: FindServices) -> int:
    """Start the container and become its program; returns only after a dry run, and raises where it fails.

    `say(level, text)` hears warnings, notes and, at level `out`, the plan of a dry run.
    """
    settle_options(options, os.environ, ("runtime", *CONTAINER_SETTINGS))
    if options.is_foreign:
        return services().run_elsewhere(options, say)
    container = Container(options, say, services)
    try:
        if container.located.root.is_temporary:
            from kedge.runtime.start.temporary_image import run_and_remove  # late: only with --disable-cache

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
        from kedge.runtime.devices.cdi import refuse_strangers  # late: few name devices

        refuse_strangers(options, container.host.view)
    built = begin(container, enter_namespaces(container))
    if options.pid:
        # late: only a process-id namespace needs a second process
        from kedge.runtime.processes.supervise import end_with_parent, run_supervised

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
    from kedge.host.resource_group import enter_limits  # late, both: few ask for limits
    from kedge.host.resource_request import read_request

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
    from kedge.runtime.processes.rank_sharing import has_companions  # late: only below a launcher

    return has_companions(host.environ)  # in user namespaces of their own they could not reach each other's memory


def share(container: Container) -> bool:
    """Join the container that another rank of the same launch has built; else this one builds it for the others."""
    import kedge.runtime.start.joined_container  # noqa: F401 - while the host's tree is still there
    from kedge.runtime.processes.rank_sharing import Sharing, make_key  # late: only ranks share

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
    from kedge.runtime.start.joined_container import JoinedContainer  # late: as above

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
        from kedge.runtime.processes.supervise import run_supervised  # late: only where it has one

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
                from kedge.runtime.start.mapped_step import MappedStep  # late: only builds have steps

                mapped = MappedStep(options, options.step)
            known = enter_wanted_namespace(options, host)
            container.say("note", f"users in the container: {known}")
            container.is_root_alone = known == ROOT_ALONE and options.fakeroot
            if container.is_root_alone or options.step is not None:
                from kedge.runtime.start.emulation import choose_emulation  # late: only with --fakeroot

                container.restrictions.emulate = choose_emulation(
                    options, host.machine, container.is_root_alone, is_mapped=known == SUBORDINATE
                )
            if mapped is not None and known == SUBORDINATE:
                mapped.go_on_inside(container.layering)
        servers = make_servers(container)
        refused = OTHER_NAMESPACES
        enter_other_namespaces(options)
    except OSError as problem:
        from kedge.runtime.start.start_errors import leave_to_other_runtime  # late: only where this machine refuses

        leave_to_other_runtime(options, problem, container.say, refused, container.services())
    return servers


def enter_pid_namespace(container: Container) -> None:
    """A process-id namespace for the next child and all its children."""
    try:
        enter_process_namespace()
    except OSError as problem:
        from kedge.runtime.start.start_errors import leave_to_other_runtime  # late: only where this machine refuses

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
    from kedge.runtime.start.start_errors import explain_start  # late: only where the program cannot be started

    raise explain_start(payload.argv[0], problem, container.host.machine)
