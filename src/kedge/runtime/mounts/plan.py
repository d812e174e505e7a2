# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a container: a pure function of options, host and image. It says what `enter` will do, step by step.

`Points` collects what must be mounted; the mount points that the image lacks are made before anything covers them.
"""

from __future__ import annotations

from kedge.posix.constants import MS_NODEV, MS_NOSUID, MS_RDONLY
from kedge.runtime.command_line.flags import list_names
from kedge.runtime.environment.identity import choose_home
from kedge.runtime.facts import LIBRARIES
from kedge.runtime.mounts.operations import MAY, MUST, NEW, OLD, SESSION, WARN
from kedge.runtime.mounts.points import DEVICES, GUARDED, MountPlan, Points, make_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.posix.views import View
    from kedge.runtime.facts import Additions, Bind, HostFacts, ImageFacts, Payload
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.options import RunOptions

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
        from kedge.runtime.mounts.host_script_plan import (  # late: few recipes have one
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
    after: list[Operation] = [] if request.is_writable else [("readonly", NEW)]
    after.append(("umask", 0o022 if options.no_umask else host.umask))
    if options.step is not None:  # a base may name a directory that it does not have
        after.append(("folder", NEW + options.pwd, 0o755, MAY))
    after += [("enter", NEW), plan_start_directory(request)]
    return MountPlan(points, before, after)


def _plan_kernel_trees(request: PlanRequest, points: Points) -> None:
    """/proc and /sys."""
    options = request.options
    if not request.skips("proc"):
        if options.pid:
            points.add(("proc", points.want("/proc", "d", by="bind"), MUST))
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
    points.add(("folder", NEW + "/dev/shm", 0o755, MUST))
    points.add(("tmpfs", NEW + "/dev/shm", f"mode=1777,size={request.private_size}", MUST))
    if request.options.ipc:
        points.add(("folder", NEW + "/dev/mqueue", 0o755, MUST), ("mqueue", NEW + "/dev/mqueue", MAY))
    if not request.skips("devpts"):
        points.add(("folder", NEW + "/dev/pts", 0o755, MUST), ("devpts", NEW + "/dev/pts", MAY))
        points.add(("link", "pts/ptmx", NEW + "/dev/ptmx"))
    wanted = [f"/dev/{name}" for name in DEVICES]
    for path in dict.fromkeys(wanted + request.additions.devices):
        shape = request.host.view.kind(path)
        if not shape:
            continue
        points.add(make_point(path, shape, MAY), ("bind", OLD + path, NEW + path, MS_NOSUID, WARN))
    if request.terminal:
        points.add(("file", NEW + "/dev/console", MAY))
        points.add(("bind", OLD + request.terminal, NEW + "/dev/console", MS_NOSUID, MAY))
    points.add(*(("link", target, f"{NEW}/dev/{name}") for target, name in _DEVICE_LINKS))


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
    policy = MAY if bind.is_optional else MUST
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
        (str(operation[1]).removeprefix(OLD), str(operation[2])[len(NEW) :])
        if operation[0] == "bind"
        else ("", str(operation[1])[len(NEW) :])
        for operation in points.mounts
        if operation[0] in ("bind", "tmpfs")
    ]
    return [cover for cover in found if path == cover[1] or path.startswith(cover[1].rstrip("/") + "/")]


def _protect_store(request: PlanRequest, points: Points) -> None:
    """Images that are unpacked on this node can be looked at, and not be changed, wherever a bind brings them along."""
    store = request.host.view.resolve(request.store) if request.store else ""
    if not store:
        return
    guards: list[Operation] = []
    for number, operation in enumerate(points.mounts):
        if operation[0] != "bind" or not str(operation[1]).startswith(OLD):
            continue
        source = request.host.view.resolve(str(operation[1])[len(OLD) :]).rstrip("/")
        if f"{store}/".startswith(f"{source}/"):
            guards.append(("bind", OLD + store, str(operation[2]) + store[len(source) :], GUARDED | MS_RDONLY, MAY))
        elif source.startswith(f"{store}/") and not source.startswith(f"{store}/session/"):  # where this one is built
            _, origin, target, flags, *policy = operation
            points.mounts[number] = ("bind", origin, target, int(flags) | MS_RDONLY, *policy)
    points.add(*guards)


def is_system_directory(folder: str) -> bool:
    """Whether a directory is a place of the system's, which an image has for itself."""
    return folder in _SYSTEM_FOLDERS or any(folder == tree or folder.startswith(tree + "/") for tree in _SYSTEM_TREES)


def _plan_libraries(request: PlanRequest, points: Points, before: list[Operation]) -> None:
    """Driver libraries below /.singularity.d/libs, and what else devices bring."""
    if request.additions.libraries:
        before.append(("folder", f"{SESSION}/libs", 0o755, MUST))
        bound: dict[str, str] = {}  # file: the name that is bound; its other names are links
        for name, file in {name: file for file, name in request.additions.libraries}.items():
            if file in bound:
                before.append(("link", bound[file], f"{SESSION}/libs/{name}"))
                continue
            bound[file] = name
            before.append(("file", f"{SESSION}/libs/{name}", MUST))
            before.append(("bind", OLD + file, f"{SESSION}/libs/{name}", GUARDED | MS_RDONLY, WARN))
        points.add(("bind", f"{SESSION}/libs", points.want(LIBRARIES, "d", by="bind"), 0, MUST))
    for bind in request.additions.binds:
        _plan_bind(request, points, bind)


def _plan_identity(request: PlanRequest, points: Points, before: list[Operation]) -> None:
    """Files that say who and where we are."""
    options = request.options
    for name, text in (("passwd", request.passwd), ("group", request.group)):
        if text is not None:
            before.append(("write", f"{SESSION}/{name}", text.decode(errors="surrogateescape"), 0o644))
            points.bind_session(name, f"/etc/{name}")
    if options.step is not None:
        points.add(("hostname", _STEP_HOST_NAME))
    elif options.hostname:
        before.append(("write", f"{SESSION}/hostname", options.hostname + "\n", 0o644))
        points.bind_session("hostname", "/etc/hostname")
        points.add(("hostname", options.hostname))
    if options.dns:
        servers = "".join(f"nameserver {server}\n" for server in _list_servers(options.dns))
        before.append(("write", f"{SESSION}/resolv.conf", servers, 0o644))
        points.bind_session("resolv.conf", "/etc/resolv.conf")


def _plan_step_files(files: list[list[str]], points: Points, before: list[Operation], owner: tuple[int, int]) -> None:
    """Files of a build's step, which are nowhere on the host: secrets. They are its user's."""
    for number, (path, text, mode) in enumerate(files):
        name = f"{SESSION}/step-file-{number}"
        before.append(("write", name, text, int(mode, 8), *owner))
        points.add(("bind", name, points.want(path, "f", by="bind"), GUARDED | MS_RDONLY, MUST))


def _list_servers(text: str) -> list[str]:
    """The name servers of --dns, which are addresses."""
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        is_address = server.count(".") == 3 and all(part.isdigit() and int(part) < 256 for part in server.split("."))
        if not is_address and not (":" in server and all(letter in "0123456789abcdefABCDEF:." for letter in server)):
            from kedge.errors import UsageError  # late: only for an error

            raise UsageError(f"--dns: '{server}' is not an IP address", hint="for example --dns 10.0.0.1,10.0.0.2")
    return servers


def plan_start_directory(request: PlanRequest) -> Operation:
    """Where the program starts: --pwd, the image's WORKDIR, the current directory, home, or the root."""
    options = request.options
    if options.pwd:
        return ("chdir", options.pwd, 1)
    home = request.home[1]
    first = [request.payload.workdir] if request.payload.workdir else []
    if not options.contain and request.host.has_folder:
        first.append(request.host.cwd)
    return ("chdir", "\n".join([*first, home, "/"]), 0)
