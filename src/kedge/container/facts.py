# SPDX-License-Identifier: BSD-3-Clause
"""What is known before anything is changed: values of the host, the image and the program; who the user is."""

from __future__ import annotations

import os

from kedge.system.views import DirectoryView

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Mapping

    from kedge.container.image_users import ImageUser
    from kedge.container.options import RunOptions
    from kedge.system.views import View


# What is known before a plan is made: who asks, where, on what host; and what parts of a plan hand to each other.

LIBRARIES = "/.singularity.d/libs"  # where the libraries of the host's drivers are in a container


class HostFacts:
    """The host and the caller; gathered once by `gather`, written down by tests."""

    uid: int = 1000
    gid: int = 1000
    groups: tuple[tuple[int, str], ...] = ()  # supplementary and own groups: (number, name)
    user: str = "user"
    gecos: str = ""  # the user's full name, as passwd has it
    home: str = "/home/user"
    login_shell: str = "/bin/sh"
    cwd: str = "/home/user"
    has_folder: bool = True  # False: the current directory was deleted or may not be read, and `cwd` is `/`
    umask: int = 0o022
    machine: str = "x86_64"
    memory: int = 8 << 30  # bytes that this process may use

    def __init__(self, *, view: View, environ: Mapping[str, str], **facts: object) -> None:
        self.view = view
        self.environ = environ
        for name, value in facts.items():
            if not hasattr(self, name):
                raise TypeError(f"HostFacts has no '{name}'")
            setattr(self, name, value)


class ImageFacts:
    """The image, once its root can be looked into."""

    def __init__(self, *, view: View, path: str, name: str = "", kind: str = "folder", oci_config: bytes = b"") -> None:
        self.view = view
        self.path = path  # absolute path or reference: what APPTAINER_CONTAINER says
        self.name = name or path.rstrip("/").rpartition("/")[2]  # APPTAINER_NAME
        self.kind = kind  # directory, sif, squashfs or ext3
        self.oci_config = oci_config  # the image's OCI config (JSON), empty where there is none


class Bind:  # noqa: PLW1641 - it is changed on its way, so it has no hash
    """One thing of the host that is to appear in the container."""

    __slots__ = (
        *("destination", "image_source", "is_optional", "origin", "outermost", "partition", "readonly", "source"),
    )

    def __init__(
        self,
        source: str,
        destination: str,
        *,
        readonly: bool = False,
        image_source: str = "",
        partition: str = "",
        is_optional: bool = False,
        origin: str = "",
        outermost: bool = False,
    ) -> None:
        self.source = source  # absolute path on the host
        self.destination = destination  # absolute path in the container
        self.readonly = readonly
        self.image_source = image_source  # a path inside the image file `source`
        self.partition = partition  # a SIF descriptor's number inside the image file `source`
        self.is_optional = is_optional  # left out quietly where the source is not there or the mount fails
        self.origin = origin  # what asked for it: '--bind', 'APPTAINER_BIND', '--nv'
        self.outermost = outermost  # not handed on to containers inside this one (`nonested`)

    def __repr__(self) -> str:
        return f"Bind({self.source}:{self.destination}{':ro' if self.readonly else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bind) and all(getattr(self, x) == getattr(other, x) for x in self.__slots__)


class Additions:
    """What devices and fabrics add to a container: `gpu` and `cdi` make it, the plan and the environment use it."""

    def __init__(self) -> None:
        self.libraries: list[tuple[str, str]] = []  # (file on the host, name below /.singularity.d/libs)
        self.binds: list[Bind] = []
        self.devices: list[str] = []  # nodes and directories below /dev that a private /dev must have too
        self.variables: dict[str, str] = {}  # set unless the user sets them
        self.prepend_library_path: list[str] = []  # directories inside the container that go first in LD_LIBRARY_PATH
        self.notes: list[str] = []  # decisions and their reasons, said with --verbose
        self.warnings: list[str] = []  # said always

    def add(self, other: Additions) -> None:
        """Take in all of another's."""
        self.libraries += other.libraries
        self.binds += other.binds
        self.devices += other.devices
        self.variables.update(other.variables)
        self.prepend_library_path += other.prepend_library_path
        self.notes += other.notes
        self.warnings += other.warnings


class Payload:
    """What is started in the container at the end."""

    def __init__(self, argv: list[str], environ: dict[str, str]) -> None:
        self.argv = argv  # argv[0] is an absolute path inside the container, or a word that `search` finds
        self.environ = environ
        self.search: list[str] = []  # directories of the container where a bare word is looked for; empty: not searched
        self.user: ImageUser | None = None  # a step of a build: who runs it
        self.workdir = ""  # the image's WORKDIR, where it is honoured
        self.notes: list[str] = []
        self.warnings: list[str] = []


# Who the caller is: the passwd and group files that say so inside a container, and the home directory there.

_known: dict[int, pwd.struct_passwd | None] = {}  # a look-up may go over the network: once per process


def find_user(uid: int) -> tuple[str, str, str]:
    """Name, home directory and login shell; sensible ones where no database knows the number."""
    entry = _look_up(uid)
    if entry is not None:
        return entry.pw_name, entry.pw_dir or "/", entry.pw_shell or "/bin/sh"
    name = os.environ.get("USER") or os.environ.get("LOGNAME") or ""
    if not name or any(character in name for character in ":\n/") or (name == "root" and uid != 0):
        name = f"user{uid}" if uid else "root"
    home = os.environ.get("HOME", "")
    if not home.startswith("/"):
        home = "/" if uid else "/root"
    shell = os.environ.get("SHELL", "")
    return name, home, shell if shell.startswith("/") else "/bin/sh"


def find_gecos(uid: int) -> str:
    """The user's full name as the database has it; empty where it knows none."""
    entry = _look_up(uid)
    return entry.pw_gecos if entry is not None else ""


def find_groups(gid: int) -> tuple[tuple[int, str], ...]:
    """The caller's groups with their names, the supplementary ones first; groups without a name are left out."""
    import grp  # late: a start that makes no group file needs none

    numbers = os.getgroups()
    if gid not in numbers:
        numbers.append(gid)
    groups = []
    for number in numbers:
        try:
            groups.append((number, grp.getgrgid(number).gr_name))
        except (KeyError, OSError):
            continue
    return tuple(groups)


def make_passwd(text: bytes | None, host: HostFacts, home: str, *, fakeroot: bool = False) -> bytes | None:
    """The image's passwd with the caller in it: a line with the same number gets the home folder, else one is added."""
    if text is None:
        return None
    uid = 0 if fakeroot else host.uid
    lines = text.decode(errors="surrogateescape").replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines):
        fields = line.split(":")
        if len(fields) == 7 and fields[2] == str(uid):
            lines[number] = ":".join([fields[0], "x", *fields[2:5], home, fields[6]])
            break
    else:
        lines.append(_make_line(host, home, fakeroot=fakeroot))
    return "\n".join([*lines, ""]).encode(errors="surrogateescape")


def make_group(text: bytes | None, host: HostFacts) -> bytes | None:
    """The image's group with a line for each group of the caller."""
    if text is None:
        return None
    if text and not text.endswith(b"\n"):
        text += b"\n"
    lines = dict.fromkeys(f"{name}:x:{number}:{host.user}\n" for number, name in host.groups)
    return text + "".join(lines).encode(errors="surrogateescape")


def _make_line(host: HostFacts, home: str, *, fakeroot: bool) -> str:
    if fakeroot:
        return f"root:x:0:0:root:{home}:/bin/sh"
    gecos = host.gecos.replace(":", " ").replace("\n", " ")
    return f"{host.user}:x:{host.uid}:{host.gid}:{gecos}:{home}:{host.login_shell}"


def _look_up(uid: int) -> pwd.struct_passwd | None:
    if uid not in _known:
        import pwd  # late: only the first time

        try:
            _known[uid] = pwd.getpwuid(uid)
        except (KeyError, OSError):
            _known[uid] = None
    return _known[uid]


def choose_home(options: RunOptions, host: HostFacts) -> tuple[str, str]:
    """Source and destination: the user's own, or what --home SOURCE[:DESTINATION] says."""
    source, _, destination = options.home.partition(":")
    if not source:
        return host.home, "/root" if options.fakeroot else host.home
    if not (destination or source).startswith("/"):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"--home {options.home}: the path in the container must be absolute",
            hint=f"for example --home {source}:/home/{host.user}",
        )
    return os.path.normpath(os.path.join(host.cwd, source)), destination or source


# Gathers the facts about the host and the caller that a plan needs.


def gather_host(environ: Mapping[str, str]) -> HostFacts:
    """The host as this process sees it."""
    uid, gid = os.getuid(), os.getgid()
    user, home, login_shell = find_user(uid)
    cwd = _find_folder(environ)
    umask = os.umask(0)
    os.umask(umask)
    return HostFacts(
        view=DirectoryView("/", is_still=True),
        environ=copy_environ(environ),
        uid=uid,
        gid=gid,
        groups=find_groups(gid),
        user=user,
        gecos=find_gecos(uid),
        home=home,
        login_shell=login_shell,
        cwd=cwd or "/",
        has_folder=bool(cwd),
        umask=umask,
        machine=os.uname().machine,
    )


def copy_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables, without LC_CTYPE where it is Python that set it at its start (PEP 538)."""
    copied = dict(environ)
    if copied.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8") and not copied.get("LC_ALL"):
        try:
            with open("/proc/self/environ", "rb") as stream:
                given = b"\0" + stream.read()
        except OSError:
            return copied
        if b"\0LC_CTYPE=" not in given:
            del copied["LC_CTYPE"]
    return copied


def _find_folder(environ: Mapping[str, str]) -> str:
    """The current directory as the shell calls it, with its links; empty when it was deleted or may not be read."""
    try:
        real = os.getcwd()
    except OSError:
        return ""
    shown = environ.get("PWD", "")
    if shown == real or not shown.startswith("/") or ".." in shown.split("/"):
        return real
    try:
        return shown if os.path.samestat(os.stat(shown), os.stat(".")) else real
    except OSError:
        return real


def read_memory(root: str = "") -> int:
    """Return the bytes of memory that this process may use: the machine's, or what its control groups leave of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _read_text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            base, name = f"{root}/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        elif not controllers:
            base, name = f"{root}/sys/fs/cgroup", "memory.max"
        else:
            continue
        while True:  # a limit of every group above holds too
            limit = _read_text(f"{base}{path}/{name}").strip()
            memory = min(memory, int(limit)) if limit.isdigit() else memory
            if path in ("", "/"):
                break
            path = path.rpartition("/")[0]
    return memory


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def find_terminal() -> str:
    """The terminal that is our standard input; one of another container has no name here."""
    try:
        return os.ttyname(0)
    except OSError:
        return ""


def is_privileged() -> bool:
    """Whether we are root of the whole machine, not of a user namespace only."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == ["0", "0", "4294967295"]
    except OSError:
        return True  # a kernel without user namespaces
