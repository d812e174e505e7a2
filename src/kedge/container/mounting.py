# SPDX-License-Identifier: BSD-3-Clause
"""The namespaces and mounts of a container: what the plan is, as a pure function, and what asks the kernel for it."""

from __future__ import annotations

import errno
import os
import sys

from kedge.base.frozen import replace
from kedge.container.facts import LIBRARIES, choose_home, is_privileged
from kedge.container.flags import list_names
from kedge.container.mount_operations import (
    DEVICES,
    GUARDED,
    LATER,
    LOWER,
    MAY,
    MUST,
    NEW,
    OLD,
    OPEN_DIRECTORY,
    SESSION,
    WARN,
    BindMount,
    ChangeDirectory,
    ContainerView,
    Enter,
    FilePart,
    Fuse2fs,
    Gocryptfs,
    KernelTree,
    Loop,
    MakeDirectory,
    MakeFile,
    MakeLink,
    Maker,
    MakeReadonly,
    MountPlan,
    Overlay,
    Points,
    Relay,
    RequireSame,
    RestoreOwners,
    SetHostName,
    SetUmask,
    Squashfuse,
    Tmpfs,
    WriteFile,
    describe,
    make_inside,
    make_point,
    name_descriptor,
    open_inside,
)
from kedge.image.node_cache import (
    choose_node_directory,
    describe_storage,
    find_unpacked,
    node_directory,
    own_directory,
)
from kedge.system import libc
from kedge.system.libc import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MNT_DETACH,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    MS_SLAVE,
    MS_UNBINDABLE,
    PR_CAPBSET_DROP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
)
from kedge.system.spawn import ELFMAG, fork_process, replace_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kedge.container.facts import Additions, Bind, HostFacts, ImageFacts, Payload
    from kedge.container.image_users import ImageUser
    from kedge.container.mount_operations import FileMount, Making, Mount, Operation, Policy, Setting
    from kedge.container.mounts.ext3 import ExtServers
    from kedge.container.mounts.overlay_options import OverlayLayer
    from kedge.container.mounts.squashfuse import FuseServer
    from kedge.container.options import RunOptions
    from kedge.container.processes.fakeroot_namespaces import FakerootNamespaces
    from kedge.image.image_file import ImageFile
    from kedge.system.views import View

    HandOver = Callable[[list[str], list[str], dict[str, str]], OSError]


# The namespaces of a container, the host's tree that stays reachable until the end, and the exec that ends a start.

# The way back to the host's tree, for what must be said when a start fails inside the container.
#
# An image chooses names that are looked up there: its working directory, its program. Were the host's root an open
# file,
# /proc/self/fd would lead to it. So it lies in the queue of a socket, which no name leads through. Modules are names
# too: Python would look for one that it still needs in the image, and run what it finds.


class HostRoot:
    """Made while the root is the host's; the next program does not have it."""

    def __init__(self) -> None:
        found = os.stat("/")
        self._root = found.st_dev, found.st_ino
        self._finders = list(sys.meta_path)
        self._stowed = libc.stow_descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def leave(self) -> None:
        """Called just before the root is another's: from here on no module is read from a file."""
        # the finders of that module know what is built into Python; all others look into directories
        sys.meta_path[:] = [finder for finder in self._finders if finder.__module__ == "_frozen_importlib"]

    def restore(self) -> None:
        """Let the host's tree be the root, and modules be found again."""
        root = libc.fetch_descriptor(self._stowed)
        try:
            os.fchdir(root)
            os.chroot(".")
        finally:
            os.close(root)
        sys.meta_path[:] = self._finders

    def restore_if_inside(self) -> None:
        """Restore the root where it is another's now: whoever reports a failure needs modules of the host."""
        found = os.stat("/")
        if (found.st_dev, found.st_ino) != self._root:
            self.restore()
        sys.meta_path[:] = self._finders


def change_directory(path: str) -> None:
    """Go to a directory of the container; one that lies outside is refused, however its name leads there."""
    os.chdir(path)
    try:
        os.getcwd()  # the kernel finds no name for what cannot be reached from the root
    except OSError:
        os.chdir("/")
        raise PermissionError(errno.EPERM, "it is not in the container", path) from None


# Making the namespaces of a container. A refusal is explained by `refusals`, which names the very setting.

ROOT_ALONE = "root only"
SUBORDINATE = "root and the subordinate ids of /etc/subuid"
OTHER_NAMESPACES = "mounts in a user namespace"  # what is refused when the second step is
_RESTRICTION = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def wants_user_namespace(options: RunOptions, uid: int) -> bool:
    """Whether the container gets a user namespace: always for users, for root only where it is asked for."""
    return uid != 0 or options.userns or options.fakeroot


def enter_wanted_namespace(options: RunOptions, host: HostFacts) -> str:
    """The user namespace of a container; returns what it knows. A build by real root gives files to users for real."""
    has_many = options.fakeroot and not options.ignore_subuid if host.uid else options.step is not None
    return enter_user_namespace(
        host, as_root=options.fakeroot or host.uid == 0, has_many=has_many, is_step=options.step is not None
    )


def enter_user_namespace(host: HostFacts, *, as_root: bool, has_many: bool = False, is_step: bool = False) -> str:
    """A new user namespace that knows one user and one group: ours, or root in their place; returns what it knows.

    With `has_many` it knows more, where the host gives this user subordinate ids; root's then knows all that there are.
    That of a step of a build knows the same numbers on every host.
    """
    helpers = None
    if has_many:
        from kedge.container.processes.subordinate_ids import STEP_IDS, IdMapper  # late: only with --fakeroot

        helpers = IdMapper(host, exactly=STEP_IDS - 1 if is_step else 0)
    libc.unshare(CLONE_NEWUSER)
    if helpers is not None and helpers.map():
        return SUBORDINATE if host.uid else "all users of this host"
    uid, gid = host.uid, host.gid
    inside_uid, inside_gid = (0, 0) if as_root else (uid, gid)
    _write("/proc/self/setgroups", "deny")  # the kernel asks for this before it lets a user map groups
    _write("/proc/self/uid_map", f"{inside_uid} {uid} 1\n")
    _write("/proc/self/gid_map", f"{inside_gid} {gid} 1\n")
    return ROOT_ALONE if as_root else "the calling user only"


def is_restricted() -> bool:
    """Whether AppArmor may give us a user namespace with which nothing can be done."""
    try:
        file = os.open(_RESTRICTION, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(file, 8).strip() == b"1"
    finally:
        os.close(file)


def try_namespaces(options: RunOptions, host: HostFacts) -> None:
    """Make the namespaces in a child that ends; raises OSError when they are refused.

    There is no way out of a user namespace, and inside one a setuid runtime is of no use.
    """
    child = fork_process()
    if child == 0:
        number = errno.EPERM
        try:
            enter_user_namespace(host, as_root=False)
            enter_other_namespaces(options)
            if options.pid:
                enter_process_namespace()
            number = 0
        except OSError as problem:
            number = problem.errno or number
        finally:
            os._exit(number)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, os.strerror(number))


def enter_other_namespaces(options: RunOptions) -> None:
    """The mount namespace, and those that were asked for; the one of process ids comes later."""
    flags = CLONE_NEWNS
    for is_wanted, flag in (
        (options.ipc, CLONE_NEWIPC),
        (options.uts, CLONE_NEWUTS),
        (options.net, CLONE_NEWNET),
    ):
        flags |= flag if is_wanted else 0
    libc.unshare(flags)
    if options.net:
        libc.raise_loopback()
    # What the host mounts later still arrives (automounted homes), what we mount stays here.
    libc.mount("none", "/", "", MS_REC | MS_SLAVE)


def enter_process_namespace() -> None:
    """A process-id namespace: it begins with the next child. FUSE servers were started before, and are not in it."""
    libc.unshare(CLONE_NEWPID)


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


# The last step of a start: drop the privileges that the program must not have, and exec it.
#
# The host's tree is gone by then, so everything that this needs is imported before.


class Restrictions:
    """What the program may not do, and what emulates it."""

    def __init__(self, *, is_root: bool) -> None:
        self.capabilities = [] if is_root else list(range(64))  # numbers of those that are dropped; a user has none
        self.emulate: Callable[[], None] | None = None  # fakes success for calls that only real root may make
        self.contain: Callable[[], None] | None = None  # keeps it off the caller's terminal and keys
        self.user: ImageUser | None = None  # whom fake root becomes at the end
        self.fakeroot_namespaces: FakerootNamespaces | None = None  # fake root's own, to be entered last
        self.lets_setuid = False  # programs of the image may be set-user-ID: all whom they can become are fake root's
        self.hand_over: HandOver | None = None  # where the program must not get hold of this interpreter's file

    def prepare(self) -> None:
        """Start what the emulation needs beside the program; to be called while the host's tree is the root."""
        prepare = getattr(self.emulate, "prepare", None)
        if prepare is not None:
            prepare()

    def apply(self) -> None:
        """Apply all of them to this process; there is no way back."""
        if self.fakeroot_namespaces is not None:
            self.fakeroot_namespaces.enter()
        libc.control_process(PR_SET_DUMPABLE, 0)  # nobody looks into this process; the next program is as all are
        if not self.lets_setuid:
            libc.control_process(PR_SET_NO_NEW_PRIVS, 1)
        for number in self.capabilities:
            try:
                libc.control_process(PR_CAPBSET_DROP, number)
            except OSError:
                break  # the numbers ascend, and the kernel knows no more
        if self.emulate is not None:
            self.emulate()
        if self.contain is not None:
            self.contain()
        if self.fakeroot_namespaces is not None:
            self.fakeroot_namespaces.become_user()


def is_own_interpreter() -> bool:
    """Whether the user, and so every program of the user, could change the file of the running interpreter."""
    path = "/proc/self/exe"
    try:
        return os.stat(path).st_uid == os.getuid() or os.access(path, os.W_OK)
    except OSError:
        return False  # no /proc: nothing leads to it


def start_program(payload: Payload, hand_over: HandOver | None = None) -> OSError:
    """Become the program, found along the container's own PATH; returns why it could not be started.

    The problem's `filename` is the file that was there and could not be started, or None where there was none.
    """
    if "PWD" in payload.environ:
        try:
            payload.environ["PWD"] = os.getcwd()
        except OSError:  # somebody removed the directory meanwhile
            del payload.environ["PWD"]
    program, arguments = payload.argv[0], payload.argv[1:]
    paths = [program] if "/" in program else [f"{folder}/{program}" for folder in payload.search]
    if hand_over is not None:
        return hand_over(paths, arguments, payload.environ)
    problem = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in paths:
        found = _try_path(path, arguments, payload)
        if os.path.lexists(path):
            problem, problem.filename = found, path
            if found.errno != errno.EACCES:
                break
    return problem


def _try_path(path: str, arguments: list[str], payload: Payload) -> OSError:
    try:
        replace_process(path, [path, *arguments], payload.environ)
    except ValueError:
        return refuse_text()
    except OSError as problem:
        if problem.errno != errno.ENOEXEC or _is_program(path):
            return problem
    try:
        # a script that names no interpreter: the shell's business, as in every shell
        replace_process("/bin/sh", ["/bin/sh", path, *arguments], payload.environ)
    except OSError as problem:
        return problem


def refuse_text() -> OSError:
    """The error for a NUL or invalid text, which an image's config can contain and no program can be given."""
    return OSError(errno.EINVAL, "an argument or variable contains a NUL character or invalid text")


def _is_program(path: str) -> bool:
    """Whether a file is a program, maybe for another CPU; one that cannot be read is no script either."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == ELFMAG
    except OSError:
        return True


# The mounts of a container: the image or its layers, the plan as a pure function, and what performs it.

# How kedge gets at an image's files: as a directory, mounted (squashfuse, gocryptfs, fuse2fs, kernel), or unpacked.
#
# Without FUSE, a SquashFS or SIF image is unpacked once on this node; root lets the kernel mount it.

UNPACK_LIMIT = 4 << 30  # bytes: a larger SquashFS is not unpacked at its first use where squashfuse can mount it


class Root:
    """The chosen way; `unpack` means that the image must be unpacked on this node first."""

    def __init__(self, way: str, reason: str, folder: str = "", program: str = "") -> None:
        self.way = way  # directory, squashfuse, gocryptfs, loop, fuse2fs or unpack
        self.reason = reason
        self.folder = folder
        self.program = program
        self.secret = ""  # what opens an encrypted image
        self.is_temporary = False  # unpacked for this container alone, and to be removed after it


def choose_root(image: ImageFile, options: RunOptions, environ: Mapping[str, str], uid: int) -> Root:
    """The best way that works on this node; --root-from demands one."""
    if image.kind == "folder":
        return Root("folder", "the image is a directory", image.path)
    if image.file_system == "gocryptfs":
        from kedge.container.mounts.encrypted import require_programs  # late: few images are encrypted

        program = require_programs(image, find_usable_squashfuse())
        return Root("gocryptfs", f"encrypted: mounted by gocryptfs and {program}", program=program)
    if image.file_system != "squashfs":
        return Root("fuse2fs", "ext3 image: mounted by the kernel for root, else by fuse2fs")
    try:
        return _choose_for_squashfs(image, options, environ, uid)
    except _file_problem() as problem:  # the node has no place to unpack to
        program = find_usable_squashfuse()[0] if options.root == "auto" else ""
        if not program:
            raise
        return Root("squashfuse", f"{problem}: mounted by {program}", program=program)


def _file_problem() -> type[Exception]:
    """Python asks for it only once something was raised: success needs no errors."""
    from kedge.errors import FileProblem  # late: as said

    return FileProblem


def _choose_for_squashfs(image: ImageFile, options: RunOptions, environ: Mapping[str, str], uid: int) -> Root:
    wanted = options.root
    unpacked = find_unpacked(image, environ) if wanted in ("auto", "unpack") else ""
    if unpacked:
        return Root("folder", f"already unpacked on this node: {unpacked}", unpacked)
    if wanted == "unpack":
        return Root("unpack", "--root-from unpack")
    if wanted == "kernel" or (wanted == "auto" and uid == 0 and not options.userns and not options.fakeroot):
        refusal = check_kernel_mount()
        if not refusal:
            return Root("loop", "mounted by the kernel, which root may ask for")
        if wanted == "kernel":
            raise _refuse("kernel", refusal)
    return _choose_for_user(image, options, environ)


def _choose_for_user(image: ImageFile, options: RunOptions, environ: Mapping[str, str]) -> Root:
    """Mount it with squashfuse, or unpack it on this node."""
    program, refusal = find_usable_squashfuse()
    if not program and options.root == "squashfuse":
        raise _refuse("squashfuse", refusal)
    if not program:
        return Root("unpack", f"{refusal}: unpacked once on this node")
    if wants_layers_above(options) and not allows_layers_above(program):
        reason = f"{program} shows another owner of the files, so no layer above them could be written"
        unpacked = find_unpacked(image, environ)
        return Root("folder" if unpacked else "unpack", reason, unpacked)
    if options.root == "squashfuse" or _prefers_mount(image, environ):
        return Root("squashfuse", f"mounted by {program}", program=program)
    return Root("unpack", f"{image.size >> 20} MiB, unpacked once on this node")


def choose_overlay(image: ImageFile, options: RunOptions, environ: Mapping[str, str], *, is_written: bool) -> Root:
    """How to use a SquashFS overlay: mounted where that works, else unpacked on this node."""
    unpacked = find_unpacked(image, environ)
    if unpacked:
        return Root("folder", f"already unpacked on this node: {unpacked}", unpacked)
    program, refusal = find_usable_squashfuse()
    if program and (not is_written or allows_layers_above(program)):
        return Root("squashfuse", f"mounted by {program}", program=program)
    if os.getuid() == 0 and not options.userns and not options.fakeroot and not check_kernel_mount():
        return Root("loop", "mounted by the kernel, which root may ask for")
    return Root("unpack", refusal or "a layer above squashfuse could not be written")


def choose_bound(image: ImageFile, options: RunOptions, environ: Mapping[str, str]) -> Root:
    """How to use a SquashFS file that is bound: mounted where that works, else unpacked; a large one never is."""
    program, _ = find_usable_squashfuse()
    if program or image.size > _unpack_limit(environ):
        return Root("squashfuse", "mounted, or refused", program=program)
    return choose_overlay(image, options, environ, is_written=False)


def wants_layers_above(options: RunOptions) -> bool:
    """Whether what is in the image may be changed in a layer above it."""
    return options.writable_tmpfs or options.fakeroot or any(":ro" not in overlay for overlay in options.overlay)


def allows_layers_above(program: str) -> bool:
    """Whether a layer above what squashfuse shows can be written to; the kernel asks who owns the directories."""
    from kedge.container.mounts.squashfuse import shows_owner  # late: an unpacked image needs no FUSE

    return shows_owner(program)


def _prefers_mount(image: ImageFile, environ: Mapping[str, str]) -> bool:
    """Whether an image is better mounted than unpacked: it is large, or the node's place is no disk."""
    place = choose_node_directory(environ)
    while not os.path.isdir(place):  # it may not be made yet
        place = os.path.dirname(place)
    kept_on = describe_storage(place)
    return image.size > _unpack_limit(environ) or kept_on in ("memory", "network")


def find_usable_squashfuse() -> tuple[str, str]:
    """A squashfuse that can be used here, or the empty string and why there is none."""
    from kedge.container.mounts.squashfuse import can_use_fuse, find_squashfuse  # late: an unpacked image needs no FUSE

    refusal = can_use_fuse()
    return ("", refusal) if refusal else (find_squashfuse()[0], "")


def _unpack_limit(environ: Mapping[str, str]) -> int:
    """Bytes of SquashFS up to which an image is unpacked at its first use."""
    text = environ.get("KEDGE_UNPACK_LIMIT", "")
    return int(text) << 20 if text.isdigit() else UNPACK_LIMIT


def check_kernel_mount() -> str:
    """Why the kernel cannot mount SquashFS through a loop device here; the empty string when it can."""
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "no access to /dev/loop-control"
    try:
        with open("/proc/filesystems", encoding="ascii") as file:
            known = file.read()
    except OSError:
        return "cannot read /proc/filesystems"
    return "" if "\tsquashfs\n" in known else "the kernel has no SquashFS module loaded"


def plan_root(image: ImageFile, root: Root, *, is_writable: bool = False) -> list[Operation]:
    """What puts the image's file system in its place; `is_writable`: the image itself is changed."""
    if root.way == "folder":
        return [BindMount(OLD + root.folder, LOWER, MS_NOSUID | MS_NODEV)]
    part = FilePart(OLD + image.path, image.offset, image.size, LOWER)
    if root.way == "squashfuse":
        return [Squashfuse(part, root.program)]
    if root.way == "gocryptfs":
        return [Gocryptfs(part, root.program)]
    if root.way == "loop":
        return [Loop(part, "squashfs")]
    return [Fuse2fs(part, "rw" if is_writable else "ro")]


def _refuse(way: str, refusal: str) -> Exception:
    from kedge.errors import MountFailed  # late: success needs no errors

    return MountFailed(
        f"--root-from {way} does not work on this node: {refusal}",
        hint="leave out --root-from, and kedge chooses what works here; --root-from unpack works everywhere",
    )


# How the root is put together above the image: which overlays, what takes the changes, and what happens without.
#
# A read-only container has a layer too, in memory: the mount points that the image lacks are made there.


class Layering:
    """The layers of one container."""

    def __init__(self, layers: list[OverlayLayer], options: RunOptions, size: int) -> None:
        self.layers = layers
        self.private_size = size
        self.has_users = False  # a step of a build that knows the image's users
        self.owned: tuple[str, ...] = ()  # its base and layers as far as their owners are to be seen, "" for the others
        self.is_direct = options.writable and not any(layer.writable for layer in layers)  # the image itself
        self.has_tmpfs = options.writable_tmpfs and not options.writable
        self.is_writable = self.is_direct or self.has_tmpfs or any(layer.writable for layer in layers)
        self.must_overlay = bool(layers) or self.has_tmpfs
        self.is_layered = not self.is_direct and (self.must_overlay or not options.underlay)

    @property
    def keeps_changes(self) -> bool:
        """Whether what is written stays in a layer of the user's, where mount points have no business."""
        return any(layer.writable for layer in self.layers)

    def use_binds(self) -> None:
        """Go on without an overlay."""
        self.is_layered = False


def choose_layering(options: RunOptions, host: HostFacts, image: ImageFile) -> Layering:
    """What the options ask for; refuses what cannot be."""
    if options.step is not None:
        from kedge.container.mounts.overlay_options import plan_step_layers  # late: only builds have steps

        return Layering(plan_step_layers(options.step), options, host.memory // 2)
    asked = options.overlay or options.writable or options.writable_tmpfs or options.contain or options.scratch
    if not asked and not image.overlays:
        return Layering([], options, 0)
    # late: most containers have no layer that anybody asked for
    from kedge.container.mounts.overlay_options import check_writable, choose_tmpfs_size, plan_overlays

    check_writable(options)
    layers = (
        plan_overlays(options, host, "" if image.kind == "folder" else image.path)
        if _has_layers(options, image)
        else []
    )
    if options.writable and not _can_change(image) and not any(layer.writable for layer in layers):
        from kedge.container.mounts.overlay_options import explain_readonly_image  # late: only for an error

        raise explain_readonly_image(image.path, image.kind)
    size = choose_tmpfs_size(options, host) if options.writable_tmpfs or options.contain or options.scratch else 0
    return Layering(layers, options, size)


def _can_change(image: ImageFile) -> bool:
    """Whether the image itself can be written to."""
    return image.kind == "folder" or (image.kind == "ext3" and os.access(image.path, os.W_OK))


def _has_layers(options: RunOptions, image: ImageFile) -> bool:
    return bool(options.overlay or image.overlays)


def plan_layers(layering: Layering) -> list[Operation]:
    """What puts the layers over the image; at the end the container's root is at NEW."""
    if layering.is_direct:
        return [BindMount(LOWER, NEW, 0)]
    if not layering.is_layered:
        return [BindMount(LOWER, NEW, MS_RDONLY)]
    operations: list[Operation] = []
    lowers = [LOWER]
    _plan_owners(layering, 0, operations, lowers)
    upper, work = f"{SESSION}/upper", f"{SESSION}/work"
    for number, layer in enumerate(layering.layers):
        place = _plan_layer(layer, number, operations)
        if layer.writable:
            upper, work = f"{place}/upper", f"{place}/work"
        else:
            lowers.insert(0, f"{place}/{layer.folder}" if layer.folder else place)
            _plan_owners(layering, number + 1, operations, lowers)
    if layering.has_tmpfs:
        memory = f"{SESSION}/memory"
        operations.append(MakeDirectory(memory))
        operations.append(Tmpfs(memory, f"mode=755,size={layering.private_size}"))
        upper, work = f"{memory}/upper", f"{memory}/work"
    operations += [MakeDirectory(upper), MakeDirectory(work)]
    operations.append(Overlay(tuple(lowers), upper, work, NEW, layering.is_writable))
    return operations


def _plan_owners(layering: Layering, number: int, operations: list[Operation], lowers: list[str]) -> None:
    """Put files of a layer whose owners and modes are others in the image into one more layer above it."""
    level = layering.owned[number] if number < len(layering.owned) else ""
    if level:
        place = f"{SESSION}/owners{number}"
        operations += [MakeDirectory(place), RestoreOwners(OLD + level, place)]
        lowers.insert(0, place)


def plan_points(
    overlay: Overlay, points: list[tuple[str, str]], view: View, files: tuple[tuple[str, str], ...] = ()
) -> list[Operation]:
    """Put the overlay on again with one more layer, the lowest, which has the mount points and `files`, if any.

    For layers that do not take them, and for those that should not: a user's, where they would stay.
    """
    operations: list[Operation] = []
    for path, shape in points:
        where = f"{SESSION}/points{view.resolve(path)}"
        operations.append(MakeDirectory(where, policy=MAY) if shape == "d" else MakeFile(where, MAY))
    for path, text in files:
        where = f"{SESSION}/points{view.resolve(path)}"
        operations += [MakeDirectory(where.rpartition("/")[0]), WriteFile(where, text)]
    return [*operations, Relay(replace(overlay, lowers=(*overlay.lowers, f"{SESSION}/points")))]


def plan_squashfs(path: str, part: FilePart) -> Operation:
    """Mount a SquashFS file other than the image, which is at `path` on the host."""
    program, refusal = find_usable_squashfuse()
    if program:
        return Squashfuse(part, program)
    if is_privileged() and not check_kernel_mount():
        return Loop(part, "squashfs")
    from kedge.errors import MountFailed  # late: only for an error

    raise MountFailed(
        f"cannot mount the SquashFS file {path}: {refusal}",
        hint="it needs squashfuse and /dev/fuse; or unpack it ('kedge convert --data FILE DIRECTORY') and use the "
        "directory; kedge itself unpacks up to 4 GiB, or KEDGE_UNPACK_LIMIT MiB",
    )


def _plan_layer(layer: OverlayLayer, number: int, operations: list[Operation]) -> str:
    """Mount one layer; where it then is."""
    if layer.kind == "folder":
        return OLD + layer.path
    place = f"{SESSION}/layer{number}"
    operations.append(MakeDirectory(place))
    part = FilePart(OLD + layer.path, layer.offset, layer.size, place)
    if layer.kind == "squashfs":
        operations.append(plan_squashfs(layer.path, part))
    else:
        operations.append(Fuse2fs(part, "rw" if layer.writable else "ro"))
    return place


# The plan of a container: a pure function of options, host and image. It says what `enter` will do, step by step.
#
# `Points` collects what must be mounted; the mount points that the image lacks are made before anything covers them.

# A current directory that is one of these, or below one of the second, is the image's business.
_SYSTEM_FOLDERS = ("/", "/etc", "/bin", "/mnt", "/usr", "/var", "/opt", "/sbin", "/lib", "/lib64")
_STEP_HOST_NAME = "localhost"  # in a step of a build: it says nothing of this host, and programs can look it up
_SYSTEM_TREES = ("/sys", "/proc", "/dev")
_DEVICE_LINKS = (("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr"))


class PlanRequest:
    """Everything a plan is made from."""

    def __init__(
        self, options: RunOptions, host: HostFacts, image: ImageFacts, additions: Additions, payload: Payload
    ) -> None:
        self.options = options
        self.host = host
        self.image = image
        self.additions = additions
        self.payload = payload
        self.binds: list[Bind] = []  # --bind, --mount, --scratch and their variables
        self.scratch: list[str] = []  # places of --scratch that are in memory
        self.is_writable = False  # whether the root stays writable
        self.is_direct = False  # whether the root is the user's own directory, in which no mount point is made
        self.private_size = 0  # bytes that a private tmp, home and /dev/shm may hold
        self.passwd: bytes | None = None
        self.group: bytes | None = None
        self.store = ""  # the node's place with the unpacked images
        self.home = choose_home(options, host)  # on the host, and in the container
        self.terminal = ""  # the terminal's path on the host, for a private /dev/console

    def skips(self, name: str) -> bool:
        """Whether --no-mount names it."""
        return name in list_names(self.options.no_mount)


def plan_container(request: PlanRequest) -> MountPlan:
    """The operations after the root is in its place, up to the start of the payload."""
    options, host = request.options, request.host
    if options.step is not None and options.step.context:
        from kedge.container.mounts.host_script_plan import (  # late: few recipes have one
            HostScriptRequest,
            plan_host_script,
        )

        views = host.view, request.image.view
        return plan_host_script(HostScriptRequest(options.step, *views, request.binds, request.private_size))
    points = Points(request.image.view)
    before: list[Operation] = []
    _plan_kernel_trees(request, points)
    plan_devices(request, points)
    _plan_host_files(request, points)
    _plan_tmp(request, points)
    _plan_home(request, points)
    for place in request.scratch:
        points.tmpfs(place, request.private_size, "755")
    for path, size, mode in options.step.tmpfs if options.step is not None else ():
        points.tmpfs(path, int(size or 0), mode)
    _plan_identity(request, points, before)
    # A directory before what lies in it, whatever the order of the options.
    for bind in sorted(request.binds, key=lambda bind: bind.destination.rstrip("/").count("/")):
        _plan_bind(request, points, bind)
    if options.step is not None and options.step.files:
        user = request.payload.user
        _plan_step_files(options.step.files, points, before, (user.uid, user.gid) if user is not None else (0, 0))
    _plan_current_folder(request, points)
    _protect_store(request, points)
    _plan_libraries(request, points, before)
    after: list[Operation] = [] if request.is_writable else [MakeReadonly(NEW)]
    after.append(SetUmask(0o022 if options.no_umask else host.umask))
    if options.step is not None:  # a base may name a directory that it does not have
        after.append(MakeDirectory(NEW + options.pwd, policy=MAY))
    after += [Enter(NEW), plan_start_directory(request)]
    return MountPlan(points, before, after)


def _plan_kernel_trees(request: PlanRequest, points: Points) -> None:
    """/proc and /sys."""
    options = request.options
    if not request.skips("proc"):
        if options.pid:
            points.add(KernelTree("proc", points.want("/proc", "d", by="bind")))
        else:
            points.bind("/proc", "/proc", "d", flags=MS_NOSUID, policy=WARN if request.is_direct else MUST)
    if not request.skips("sys"):
        flags = MS_NOSUID | (MS_RDONLY if options.contain else 0)
        points.bind("/sys", "/sys", "d", flags=flags, policy=WARN)


def plan_devices(request: PlanRequest, points: Points) -> None:
    """/dev: the host's, or with --contain a small one that still has GPUs and fabrics."""
    if request.skips("dev"):
        return
    if not request.options.contain:
        points.bind("/dev", "/dev", "d", flags=MS_NOSUID, policy=WARN if request.is_direct else MUST)
        return
    points.tmpfs("/dev", 4 << 20, "755")
    points.add(MakeDirectory(NEW + "/dev/shm"))
    points.add(Tmpfs(NEW + "/dev/shm", f"mode=1777,size={request.private_size}"))
    if request.options.ipc:
        points.add(MakeDirectory(NEW + "/dev/mqueue"), KernelTree("mqueue", NEW + "/dev/mqueue", MAY))
    if not request.skips("devpts"):
        points.add(MakeDirectory(NEW + "/dev/pts"), KernelTree("devpts", NEW + "/dev/pts", MAY))
        points.add(MakeLink("pts/ptmx", NEW + "/dev/ptmx"))
    wanted = [f"/dev/{name}" for name in DEVICES]
    for path in dict.fromkeys(wanted + request.additions.devices):
        shape = request.host.view.kind(path)
        if not shape:
            continue
        points.add(make_point(path, shape, MAY), BindMount(OLD + path, NEW + path, MS_NOSUID, WARN))
    if request.terminal:
        points.add(MakeFile(NEW + "/dev/console", MAY))
        points.add(BindMount(OLD + request.terminal, NEW + "/dev/console", MS_NOSUID, MAY))
    points.add(*(MakeLink(target, f"{NEW}/dev/{name}") for target, name in _DEVICE_LINKS))


def _plan_host_files(request: PlanRequest, points: Points) -> None:
    """Small files of the host that programs expect to fit the host: time zone, hosts, name servers."""
    for path in ("/etc/localtime", "/etc/hosts", "/etc/resolv.conf"):
        if request.skips(path) or (path != "/etc/resolv.conf" and request.skips("bind-paths")):
            continue
        if path == "/etc/resolv.conf" and request.options.dns:
            continue
        if request.host.view.kind(path) == "f":
            points.bind(request.host.view.resolve(path), path, "f", flags=GUARDED | MS_RDONLY, policy=MAY)


def _plan_tmp(request: PlanRequest, points: Points) -> None:
    """/tmp and /var/tmp: the host's, or private ones."""
    options = request.options
    if request.skips("tmp"):
        return
    for path, name in (("/tmp", "tmp"), ("/var/tmp", "var_tmp")):
        if path == "/var/tmp" and _is_same_place(request.image.view, path, "/tmp"):
            continue  # one is a link to the other: it would cover what is mounted there
        if not options.contain:
            points.bind(path, path, "d", policy=WARN)
        elif options.workdir:
            points.bind(f"{options.workdir}/{name}", path, "d")
        else:
            points.tmpfs(path, request.private_size, "1777")


def _is_same_place(view: View, path: str, other: str) -> bool:
    """Whether two names lead to one place in the image."""
    try:
        return view.resolve(path) == view.resolve(other)
    except OSError:  # links that go round
        return False


def _plan_home(request: PlanRequest, points: Points) -> None:
    """The home directory: the host's, or a private one."""
    options, size = request.options, request.private_size
    source, destination = request.home
    if options.no_home or request.skips("home") or destination == "/":
        return
    parent = destination.rpartition("/")[0]
    if request.is_direct and parent and not request.image.view.kind(destination):
        points.tmpfs(parent, 0, "755")  # nothing is made in the user's own directory, so what is above covers it
    if options.contain and not options.home:
        if options.workdir:
            points.bind(f"{options.workdir}/home", destination, "d")
        else:
            points.tmpfs(destination, size, "755")
        return
    if request.host.view.kind(source) == "d":
        points.bind(source, destination, "d", policy=MUST if options.home else WARN)
    elif not options.home:
        points.tmpfs(destination, size, "755")


def _plan_bind(request: PlanRequest, points: Points, bind: Bind) -> None:
    """A bind that somebody asked for."""
    shape = request.host.view.kind(bind.source)
    if not shape and not bind.is_optional:
        from kedge.errors import FileProblem  # late: only for an error

        raise FileProblem(
            f"cannot bind {bind.source} to {bind.destination}: it does not exist on this host",
            context={"option": bind.origin or "--bind"},
            hint="create it, or check the spelling; on a cluster, check that its file system is mounted on this node",
        )
    policy: Policy = MAY if bind.is_optional else MUST
    flags = GUARDED | (MS_RDONLY if bind.readonly else 0)
    if bind.source == "/dev" or bind.source.startswith("/dev/"):
        flags &= ~MS_NODEV  # a device that somebody asks for is to be used
    points.bind(bind.source, bind.destination, "d" if shape == "d" else "f", flags=flags, policy=policy)


def _plan_current_folder(request: PlanRequest, points: Points) -> None:
    """Bind the current directory, unless it is a system directory or something else was asked for there."""
    options, cwd = request.options, request.host.cwd
    if options.contain or request.skips("cwd") or is_system_directory(cwd):
        return
    covers = _list_covers(points, cwd)
    source, above = covers[-1] if covers else ("", "/")
    if source == above or any(destination == cwd for _, destination in covers):
        return  # it is shown already, at its own place; or something else was asked for there
    if any(bind.source == source for bind in request.binds) and not request.host.view.kind(source + cwd[len(above) :]):
        return  # nothing is made in a directory that the user binds
    points.bind(cwd, cwd, "d", policy=MAY)


def _list_covers(points: Points, path: str) -> list[tuple[str, str]]:
    """Source (empty where it is not the host's) and destination of all mounts at a path and above it."""
    found = [
        (operation.source.removeprefix(OLD) if isinstance(operation, BindMount) else "", operation.target[len(NEW) :])
        for operation in points.mounts
        if isinstance(operation, BindMount | Tmpfs)
    ]
    return [cover for cover in found if path == cover[1] or path.startswith(cover[1].rstrip("/") + "/")]


def _protect_store(request: PlanRequest, points: Points) -> None:
    """Images that are unpacked on this node can be looked at, and not be changed, wherever a bind brings them along."""
    store = request.host.view.resolve(request.store) if request.store else ""
    if not store:
        return
    guards: list[Operation] = []
    for number, operation in enumerate(points.mounts):
        if not isinstance(operation, BindMount) or not operation.source.startswith(OLD):
            continue
        source = request.host.view.resolve(operation.source[len(OLD) :]).rstrip("/")
        if f"{store}/".startswith(f"{source}/"):
            guards.append(BindMount(OLD + store, operation.target + store[len(source) :], GUARDED | MS_RDONLY, MAY))
        elif source.startswith(f"{store}/") and not source.startswith(f"{store}/session/"):  # where this one is built
            points.mounts[number] = replace(operation, flags=operation.flags | MS_RDONLY)
    points.add(*guards)


def is_system_directory(folder: str) -> bool:
    """Whether a directory is a place of the system's, which an image has for itself."""
    return folder in _SYSTEM_FOLDERS or any(folder == tree or folder.startswith(tree + "/") for tree in _SYSTEM_TREES)


def _plan_libraries(request: PlanRequest, points: Points, before: list[Operation]) -> None:
    """Driver libraries below /.singularity.d/libs, and what else devices bring."""
    if request.additions.libraries:
        before.append(MakeDirectory(f"{SESSION}/libs"))
        bound: dict[str, str] = {}  # file: the name that is bound; its other names are links
        for name, file in {name: file for file, name in request.additions.libraries}.items():
            if file in bound:
                before.append(MakeLink(bound[file], f"{SESSION}/libs/{name}"))
                continue
            bound[file] = name
            before.append(MakeFile(f"{SESSION}/libs/{name}"))
            before.append(BindMount(OLD + file, f"{SESSION}/libs/{name}", GUARDED | MS_RDONLY, WARN))
        points.add(BindMount(f"{SESSION}/libs", points.want(LIBRARIES, "d", by="bind"), 0))
    for bind in request.additions.binds:
        _plan_bind(request, points, bind)


def _plan_identity(request: PlanRequest, points: Points, before: list[Operation]) -> None:
    """Files that say who and where we are."""
    options = request.options
    for name, text in (("passwd", request.passwd), ("group", request.group)):
        if text is not None:
            before.append(WriteFile(f"{SESSION}/{name}", text.decode(errors="surrogateescape")))
            points.bind_session(name, f"/etc/{name}")
    if options.step is not None:
        points.add(SetHostName(_STEP_HOST_NAME))
    elif options.hostname:
        before.append(WriteFile(f"{SESSION}/hostname", options.hostname + "\n"))
        points.bind_session("hostname", "/etc/hostname")
        points.add(SetHostName(options.hostname))
    if options.dns:
        servers = "".join(f"nameserver {server}\n" for server in _list_servers(options.dns))
        before.append(WriteFile(f"{SESSION}/resolv.conf", servers))
        points.bind_session("resolv.conf", "/etc/resolv.conf")


def _plan_step_files(files: list[list[str]], points: Points, before: list[Operation], owner: tuple[int, int]) -> None:
    """Files of a build's step, which are nowhere on the host: secrets. They are its user's."""
    for number, (path, text, mode) in enumerate(files):
        name = f"{SESSION}/step-file-{number}"
        before.append(WriteFile(name, text, int(mode, 8), *owner))
        points.add(BindMount(name, points.want(path, "f", by="bind"), GUARDED | MS_RDONLY))


def _list_servers(text: str) -> list[str]:
    """The name servers of --dns, which are addresses."""
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        is_address = server.count(".") == 3 and all(part.isdigit() and int(part) < 256 for part in server.split("."))
        if not is_address and not (":" in server and all(letter in "0123456789abcdefABCDEF:." for letter in server)):
            from kedge.errors import UsageError  # late: only for an error

            raise UsageError(f"--dns: '{server}' is not an IP address", hint="for example --dns 10.0.0.1,10.0.0.2")
    return servers


def plan_start_directory(request: PlanRequest) -> ChangeDirectory:
    """Where the program starts: --pwd, the image's WORKDIR, the current directory, home, or the root."""
    options = request.options
    if options.pwd:
        return ChangeDirectory((options.pwd,), is_strict=True)
    home = request.home[1]
    first = [request.payload.workdir] if request.payload.workdir else []
    if not options.contain and request.host.has_folder:
        first.append(request.host.cwd)
    return ChangeDirectory((*first, home, "/"), is_strict=False)


# Performs the operations of a plan, one after the other, in the namespaces of the new container.
#
# While a container is built the host's tree stays where it is; everything new stands below one directory, the base,
# on
# which a file system in memory was put that only this process sees. What is inside the container is opened there, and
# used as it was opened: an image cannot make us mount or write outside, even if somebody changes it meanwhile.

_ATTRIBUTES = ((MS_RDONLY, MOUNT_ATTR_RDONLY), (MS_NOSUID, MOUNT_ATTR_NOSUID), (MS_NODEV, MOUNT_ATTR_NODEV))
_KEPT_FLAGS = (MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME)  # as ST_* of statvfs
_EMPTY_DIRECTORIES = ("/mnt", "/media", "/srv", "/var/empty", "/var/opt")  # their content is covered meanwhile
_ST_RELATIME = 4096  # which has another number
_HINTS = {
    "tmpfs": "the mount point must be a directory, in the image or below a bind",
    "proc": "add a directory /proc to the image, or use --no-mount proc",
    "squashfuse": "--root-from unpack needs no squashfuse",
    "gocryptfs": "check the passphrase or key",
    "loop": "--root-from unpack needs no mount by the kernel",
    "write": "check the file size limit (ulimit -f) and the free memory, which holds this file",
    "hostname": "leave out --hostname",
}


class Builder:
    """Builds one container below `base`; `say(level, text)` hears what was left out and which way was taken."""

    def __init__(
        self,
        base: str,
        say: Callable[[str, str], None],
        servers: list[FuseServer] | None = None,
        host_root: HostRoot | None = None,
    ) -> None:
        self.base = base
        self.say = say
        self.host_root = host_root  # for when something fails after the root was entered
        self.servers = servers or []
        self.secret = ""  # what opens an encrypted image
        self.lets_setuid = False  # programs of the image may be set-user-ID
        self.ext_servers: ExtServers | None = None
        # Where an image that is a directory lies on the host: an overlay names it, so that it can be seen to be in use.
        self.image_folder = ""
        self.refused: list[tuple[str, str]] = []  # mount points that could not be made, and their shape

    def prepare(self) -> None:
        """Put the file system in memory on the base and make the directories of the trees.

        It cannot be bound: a bind of the directory that the base is in (/var/tmp) must not bring all this along. What
        is made for the container is bound, so it has a file system of its own.
        """
        libc.mount("kedge", self.base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
        libc.mount("none", self.base, "", MS_UNBINDABLE)
        for tree in (NEW, LOWER, SESSION):
            os.mkdir(self.base + tree)
        libc.mount("kedge", self.base + SESSION, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")

    def perform(self, operations: list[Operation]) -> None:
        """Do them all; raises MountFailed for the first that had to succeed and did not."""
        for operation in operations:
            try:
                self._execute(operation)
            except (OSError, ValueError) as found:
                # what no path can hold, such as a NUL, Python refuses by itself
                problem = found if isinstance(found, OSError) else OSError(errno.EINVAL, os.strerror(errno.EINVAL))
                if operation.policy == MUST:
                    self._look_out()
                    raise self._explain(operation, problem) from problem
                if isinstance(operation, MakeDirectory | MakeFile) and operation.policy == LATER:
                    self.refused.append((operation.path[len(NEW) :], "d" if operation.kind == "folder" else "f"))
                    continue
                reason = problem.strerror or str(problem)
                self.say("warn" if operation.policy == WARN else "note", f"skipped: {describe(operation)}: {reason}")

    def _execute(self, operation: Operation) -> None:
        match operation:
            case BindMount() | Tmpfs() | KernelTree() | Overlay() | Relay() | MakeReadonly():
                self._mount(operation)
            case MakeDirectory() | MakeFile() | WriteFile() | MakeLink() | RestoreOwners():
                self._make(operation)
            case SetUmask() | SetHostName() | RequireSame() | Enter() | ChangeDirectory():
                self._set(operation)
            case Squashfuse() | Gocryptfs() | Loop() | Fuse2fs():
                self._mount_file(operation)

    def _mount(self, operation: Mount) -> None:
        match operation:
            case BindMount():
                self._bind(operation)
            case Tmpfs():
                self._mount_tmpfs(operation)
            case KernelTree():
                self._mount_kernel_tree(operation)
            case Overlay():
                self.say("note", f"root: {self._mount_overlay(operation)}")
            case Relay():
                libc.unmount(self.place(operation.overlay.target), MNT_DETACH)
                self._mount_overlay(operation.overlay)  # the same way: it is not said again
            case MakeReadonly():
                self._make_readonly(operation)

    def _make(self, operation: Making) -> None:
        match operation:
            case MakeDirectory():
                self._make_point(operation, Maker("d", operation.mode, is_exact=_is_ours(operation)))
            case MakeFile():
                self._make_point(operation, Maker("f", is_exact=_is_ours(operation)))
            case WriteFile():
                self._write(operation)
            case MakeLink():
                self._make_link(operation)
            case RestoreOwners():
                self._restore_owners(operation)

    def _set(self, operation: Setting) -> None:
        match operation:
            case RequireSame():
                self._require_same(operation)
            case SetHostName():
                libc.set_host_name(operation.name)
            case SetUmask():
                os.umask(operation.mask)
            case Enter():
                self._enter(operation)
            case ChangeDirectory():
                self._change_directory(operation)

    def _mount_file(self, operation: FileMount) -> None:
        match operation:
            case Squashfuse():
                self._mount_squashfuse(operation)
            case Gocryptfs():
                self._mount_gocryptfs(operation)
            case Loop():
                self._mount_loop(operation)
            case Fuse2fs():
                self._mount_fuse2fs(operation)

    def place(self, path: str) -> str:
        """Where a path of the plan is now, of those that are not in a tree which others may change."""
        return path[len(OLD) :] or "/" if path.startswith(OLD) else self.base + path

    def open_place(self, path: str) -> int:
        """A descriptor of what a path of the plan leads to inside its tree; raises OSError."""
        root, inside = self._open_tree(path)
        try:
            found = open_inside(root, inside)
            if (
                path.startswith(NEW)
                and os.path.sameopenfile(root, found)
                and ContainerView(root).resolve(inside) == "/"
            ):
                os.close(found)  # an image whose /tmp is a link to / would vanish below it
                raise OSError(errno.ELOOP, "it leads to the root of the container", path)
            return found
        finally:
            os.close(root)

    def look(self) -> ContainerView:
        """A look into the container as it is now."""
        return ContainerView(os.open(self.base + NEW, OPEN_DIRECTORY))

    def plan_inside(self, make_plan: Callable[[ContainerView], list[Operation]]) -> list[Operation]:
        """A plan made from a look into the container."""
        view = self.look()
        try:
            return make_plan(view)
        finally:
            view.close()

    def _open_tree(self, path: str) -> tuple[int, str]:
        """The tree that a path is in, open, and the path in it; on the host the tree is the parent directory."""
        if path.startswith(OLD):
            tree, _, inside = path.rpartition("/")
        else:
            name, _, inside = path[1:].partition("/")
            tree = "/" + name
        return os.open(self.place(tree), OPEN_DIRECTORY), "/" + inside

    # -- operations

    def _mount_tmpfs(self, operation: Tmpfs) -> None:
        with _OpenPlace(self, operation.target) as target:
            libc.mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, operation.options)

    def _bind(self, operation: BindMount) -> None:
        flags = operation.flags
        with _OpenPlace(self, operation.source) as source:
            with _OpenPlace(self, operation.target) as target:
                if flags and _bind_restricted(source, target, flags):
                    return
                # Recursive always: the kernel refuses to uncover what is below a directory of another user namespace.
                libc.mount(source, target, "", MS_BIND | MS_REC)
            if flags:
                self._restrict(operation, source, flags)

    def _restrict(self, operation: BindMount, source: str, flags: int) -> None:
        """Add flags to what was just mounted (before Linux 5.12)."""
        with _OpenPlace(self, operation.target) as target:
            if not os.path.samefile(source, target):
                raise OSError(errno.ESTALE, "the image was changed meanwhile", operation.target)
            _remount_tree(target, flags)

    def _make_point(self, operation: MakeDirectory | MakeFile, maker: Maker) -> None:
        root, inside = self._open_tree(operation.path)
        try:
            make_inside(root, inside, maker)
        finally:
            os.close(root)

    def _write(self, operation: WriteFile) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self.place(operation.path), flags, operation.mode)
        try:
            os.fchmod(file, operation.mode)  # whatever the umask is
            data = os.fsencode(operation.content)
            while data:
                data = data[os.write(file, data) :]
            if operation.user or operation.group:
                _give_if_known(file, operation.user or 0, operation.group or 0)
        finally:
            os.close(file)

    def _make_link(self, operation: MakeLink) -> None:
        root, inside = self._open_tree(operation.path)
        parent, _, name = inside.rpartition("/")
        try:
            folder = open_inside(root, parent or "/")
        finally:
            os.close(root)
        try:
            os.symlink(operation.content, name, dir_fd=folder)  # the last name is not followed
        finally:
            os.close(folder)

    def _restore_owners(self, operation: RestoreOwners) -> None:
        from kedge.container.mounts.level_owners import restore_owners  # late: only builds have steps

        restore_owners(self.place(operation.layer), self.place(operation.directory))

    def _mount_overlay(self, operation: Overlay) -> str:
        from kedge.container.mount_operations import mount_overlay  # late: a sandbox that is written to has none

        lowers = [
            self.image_folder if lower == LOWER and self.image_folder else self.place(lower)
            for lower in operation.lowers
        ]
        upper, work, target = (self.place(path) for path in (operation.upper, operation.work, operation.target))
        return mount_overlay(lowers, upper, work, target, is_written=operation.is_written, lets_setuid=self.lets_setuid)

    def _mount_kernel_tree(self, operation: KernelTree) -> None:
        kind = operation.kind
        flags = MS_NOSUID | MS_NOEXEC | (MS_NODEV if kind != "devpts" else 0)
        data = "newinstance,ptmxmode=0666,mode=0620" if kind == "devpts" else ""
        with _OpenPlace(self, operation.target) as target:
            try:
                libc.mount(kind, target, kind, flags, data)
            except PermissionError:
                if kind != "proc":
                    raise
                # A host that hides parts of /proc (another container) lets nobody mount a fresh one: the old one does.
                libc.mount("/proc", target, "", MS_BIND | MS_REC)
                self.say("note", "using the host's /proc: this host does not allow mounting a new one")

    def _make_readonly(self, operation: MakeReadonly) -> None:
        with _OpenPlace(self, operation.target) as target:
            remount(target, MS_RDONLY)

    def _require_same(self, operation: RequireSame) -> None:
        """Whoever may exchange directories of the host for links does not choose what is shown."""
        found = os.stat(self.place(operation.path))
        if (found.st_dev, found.st_ino) != (operation.device, operation.inode):
            raise OSError(errno.ESTALE, "somebody exchanged it meanwhile", operation.path)

    def _mount_squashfuse(self, operation: Squashfuse) -> None:
        from kedge.container.mounts.squashfuse import mount_squashfuse  # late: an unpacked image needs none

        part = operation.part
        server = self.servers.pop(0) if self.servers else None
        mount_squashfuse(self.place(part.file), part.offset, self.place(part.target), operation.program, server)

    def _mount_gocryptfs(self, operation: Gocryptfs) -> None:
        from kedge.container.mounts.encrypted import mount_encrypted  # late: few images are encrypted

        part = operation.part
        place = (self.place(part.file), part.offset, self.place(part.target))
        mount_encrypted(place, operation.program, self.servers.pop(0), self.base, self.secret)

    def _mount_loop(self, operation: Loop) -> None:
        from kedge.container.mounts.loop_device import mount_loop  # late: only for root

        part = operation.part
        mount_loop(self.place(part.file), part.offset, part.size, self.place(part.target), operation.file_system)

    def _mount_fuse2fs(self, operation: Fuse2fs) -> None:
        from kedge.container.mounts.ext3 import mount_ext  # late: only for ext3 images

        part = operation.part
        file, target = self.place(part.file), self.place(part.target)
        is_writable = operation.mode == "rw"
        mount_ext(file, part.offset, part.size, target, writable=is_writable, servers=self.ext_servers)

    def _enter(self, operation: Enter) -> None:
        root = self.place(operation.root)
        if self.host_root is not None:
            self.host_root.leave()
        libc.enter_root(root)

    def _change_directory(self, operation: ChangeDirectory) -> None:
        for directory in operation.directories:
            try:
                change_directory(directory)
                return
            except (OSError, ValueError) as problem:
                if operation.is_strict:
                    raise
                self.say("note", f"cannot change to {directory}: {getattr(problem, 'strerror', problem)}")

    def _look_out(self) -> None:
        """Let the host's tree be the root: errors are explained with what is there."""
        if self.host_root is not None:
            self.host_root.restore()

    def _explain(self, operation: Operation, problem: OSError) -> Exception:
        from kedge.container.missing_proc import explain_missing_proc
        from kedge.errors import MountFailed  # late: success needs no errors

        return explain_missing_proc() or MountFailed(
            f"cannot {describe(operation)}: {problem.strerror or problem}",
            context={"errno": errno.errorcode.get(problem.errno or 0, "")},
            hint=_find_hint(operation, problem),
        )


def _is_ours(operation: MakeDirectory | MakeFile) -> bool:
    """Whether what is made is gone with the container: then the user's umask says nothing about it."""
    return operation.path.startswith(SESSION + "/") or operation.policy == LATER


def _give_if_known(file: int, uid: int, gid: int) -> None:
    """Give a file to a user; where there is only one, it is that one's already."""
    try:
        os.fchown(file, uid, gid)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise


class _OpenPlace:
    """A path of the plan while something is done to it: in the container and in the image an open file, which stays
    the same whatever links are put on its way meanwhile.
    """

    def __init__(self, builder: Builder, path: str) -> None:
        self._builder = builder
        self._path = path
        self._file = -1

    def __enter__(self) -> str:
        """A path for calls that mount."""
        if not self._path.startswith((NEW + "/", LOWER + "/")):
            return self._builder.place(self._path)
        self._file = self._builder.open_place(self._path)
        return name_descriptor(self._file)

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)


def _bind_restricted(source: str, target: str, flags: int) -> bool:
    """Bind a tree that has its flags before it is anywhere; whether that can be done here."""
    attributes = 0
    for flag, attribute in _ATTRIBUTES:
        attributes |= attribute if flags & flag else 0
    copy = -1
    try:
        copy = libc.copy_mounts(source)
        libc.set_mount_attributes(copy, attributes)
        libc.place_mounts(copy, target)
    except OSError as problem:
        # before Linux 5.12; mount(2) has better reasons where it is refused for good
        if problem.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return False
        raise
    finally:
        if copy >= 0:
            os.close(copy)
    return True


def _remount_tree(target: str, flags: int) -> None:
    """Add flags to a mount and to all below it."""
    remount(target, flags)
    top = os.fsencode(os.readlink(target) if os.path.islink(target) else target).rstrip(b"/") + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        places = [line.split()[4].decode("unicode_escape").encode("latin-1") for line in file]  # a space is \040
    for place in places:
        if place.startswith(top):
            try:
                remount(os.fsdecode(place), flags)
            except OSError as problem:
                if problem.errno == errno.EPERM:  # else it cannot be reached, by nobody
                    raise


def remount(target: str, flags: int) -> None:
    """Add flags to one mount; those that the host gave it must be said again, or the kernel refuses."""
    found = os.statvfs(target).f_flag
    kept = flags | MS_BIND | MS_REMOUNT
    for flag in _KEPT_FLAGS:
        kept |= found & flag
    if found & _ST_RELATIME:
        kept |= MS_RELATIME
    libc.mount("none", target, "", kept)


def _find_hint(operation: Operation, problem: OSError) -> str | None:
    """The remedy for the failures that users meet."""
    if isinstance(operation, ChangeDirectory):
        return "the directory must exist inside the container: bind it with -B, or choose another --pwd"
    if isinstance(operation, BindMount):
        if problem.errno == errno.ENOENT:
            inside = operation.target.removeprefix(NEW)
            return f"--writable creates no mount points: run mkdir -p IMAGE{inside} first, or use --overlay"
        if problem.errno == errno.ENOTDIR:
            return "bind a file to a file, and a directory to a directory"
        if problem.errno in (errno.EACCES, errno.EPERM):
            return "you cannot read it, or its file system does not allow binds: use another path"
    if problem.errno == errno.ELOOP:
        return "symlinks in the image form a loop or lead to its root: the image is broken or malicious"
    return _HINTS.get(operation.kind)


def choose_base(environ: Mapping[str, str]) -> str:
    """The directory on which a container is built: one of ours, or where nothing can be written one that is empty."""
    for find_directory in (node_directory, _memory_directory):
        try:
            return own_directory(find_directory(environ) + "/session")
        except _list_refusals():
            continue
    for folder in _EMPTY_DIRECTORIES:
        try:
            if not os.listdir(folder):
                return folder
        except OSError:
            continue
    return "/tmp"


def _memory_directory(_: Mapping[str, str]) -> str:
    return own_directory(f"/dev/shm/kedge-{os.getuid()}")


def _list_refusals() -> tuple[type[Exception], ...]:
    """What a directory that cannot be used raises; Python evaluates this only once something was raised."""
    from kedge.errors import FileProblem, InvalidSetting, NoSpace  # late: success needs no errors

    return OSError, FileProblem, InvalidSetting, NoSpace
