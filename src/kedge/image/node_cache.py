# SPDX-License-Identifier: BSD-3-Clause
"""The node cache: images unpacked on this node. Where it is, whether it has an image, and holding one while it is used.

This is the only description of its files; `node_cache_writer` and `unpack_lock` use the names defined here.

    images/IDENTITY/info     what it is; written first and never touched, so that a cleaner of /tmp takes it first
    images/IDENTITY/root/    the root file system
    images/IDENTITY/lock     held (shared) by every container that runs from it; its time is that of the last use
    images/IDENTITY/size     bytes that the root takes
    images/IDENTITY/boot     the boot in which it was unpacked, until all of it is certain to be on the disk
    images/IDENTITY/oci-config.json   of an image made from layers
    images/IDENTITY/owners   owners and modes that the unpacked files do not have (layers/owners.py); older ones lack it
    images/IDENTITY.lock     held by the process that unpacks it
    names/REFERENCE          the identity that a reference had when it was last resolved; its time is when that was
    files/STATE              the identity of a file's content, and the paths under which it was seen in this state
    turns/NAME               held by one of the ranks that wait for an image (`unpack_lock`)

An identity is a digest of contents. Hashing a file takes long, so a start looks for the file's state instead: times and
numbers that every change moves."""

from __future__ import annotations

import errno
import os
import stat
import time

from kedge.system import libc
from kedge.system.settings_lines import read_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.errors import KedgeError
    from kedge.image.image_file import ImageFile


IMAGES, REFERENCES, FILES, LOCKS = "images", "names", "files", "turns"
INFO, ROOT, LOCK, SIZE, BOOT, CONFIG, OWNERS = "info", "root", "lock", "size", "boot", "oci-config.json", "owners"

_VARIABLES = ("KEDGE_NODEDIR", "APPTAINER_NODEDIR", "SINGULARITY_NODEDIR")
_PLACES = ("/var/tmp", "/tmp")  # the first that is on a disk of this node; sticky, and every user has a directory in it
_LEAST_ROOM = 1 << 30
_SETTING = "node_directory"
_LONGEST_NAME = 180
_MOST_ROOTS = 100  # users of a node who are root in containers, each with a directory
_OF_THIS_MACHINE = ("docker-daemon", "dockerd", "podman", "containers-storage", "host")
_HIGH_FILE = 200  # the lock's least number: scripts number their own files, such as `exec 3>log`
_PATIENCE, _PAUSE = 5.0, 0.005  # seconds: how long somebody may look whether an image is in use
_UNKNOWN_OWNER = 65534  # in a container: root of the host, and all whom its user namespace does not know
_WRITTEN_AFTER = 300.0  # seconds; the kernel writes what is 30 seconds old

_NETWORK = (
    libc.NFS_SUPER_MAGIC,
    libc.LUSTRE_SUPER_MAGIC,
    libc.GPFS_SUPER_MAGIC,
    libc.PANFS_SUPER_MAGIC,
    libc.BEEGFS_SUPER_MAGIC,
    libc.SMB2_SUPER_MAGIC,
    libc.CIFS_SUPER_MAGIC,
    libc.V9FS_MAGIC,
    libc.AFS_SUPER_MAGIC,
    libc.CEPH_SUPER_MAGIC,
)
_MEMORY = (libc.TMPFS_MAGIC, libc.RAMFS_MAGIC)


def node_directory(environ: Mapping[str, str]) -> str:
    """The user's directory for images on this node, made where it is missing."""
    place = choose_node_directory(environ)
    try:
        os.makedirs(place, 0o700)
    except FileExistsError:
        pass
    except OSError as problem:
        raise _refuse_place(place, problem.strerror or str(problem)) from None
    _check_owner(place)
    return place


def own_directory(path: str) -> str:
    """A directory that only this user can write, made where it is missing; raises OSError where it is another's."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        status = os.lstat(path)
        # Whoever may write to it could put another directory in its place while kedge uses it.
        if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
            raise
    return path


def choose_node_directory(environ: Mapping[str, str]) -> str:
    """Where the directory is or would be made; always the same as long as it exists."""
    for name in _VARIABLES:
        if environ.get(name):
            return _require_absolute(environ[name], name)
    configured = _read_setting(environ)
    if configured:
        return configured
    own = _choose_name()
    for folder in _PLACES:
        if os.path.isdir(f"{folder}/{own}/{IMAGES}") and not _is_readonly(f"{folder}/{own}"):
            return f"{folder}/{own}"
    return f"{_choose_default(own)}/{own}"


def _choose_name() -> str:
    """What the directory is called; fake root in a container cannot use what the machine's root has."""
    uid = os.getuid()
    if uid:
        return f"kedge-{uid}"
    names = ["kedge-0", *(f"kedge-0-{number}" for number in range(1, _MOST_ROOTS))]
    return next((name for name in names if not any(_is_foreign(f"{folder}/{name}") for folder in _PLACES)), names[0])


def _is_foreign(path: str) -> bool:
    try:
        return os.lstat(path).st_uid != os.getuid()
    except OSError:
        return False


def describe_storage(path: str) -> str:
    """What a directory is kept on: `disk`, `memory` or `network`; empty when it does not exist."""
    try:
        kind = libc.file_system_type(path)
    except OSError:
        return ""
    return "memory" if kind in _MEMORY else "network" if kind in _NETWORK else "disk"


def find_unpacked(image: ImageFile, environ: Mapping[str, str]) -> str:
    """The root of an image that is unpacked here; empty when it is not, or its file is not as it was."""
    place = choose_node_directory(environ)
    identity = read_identity(place, image) if image.state else ""
    return _find_root(place, identity) if identity else ""


def read_identity(place: str, image: ImageFile) -> str:
    """The identity of what the file held when it was hashed in this state; empty where it never was, at this path.

    A file system that somebody else serves can make up any state, but only at paths of its own.
    """
    try:
        with open(f"{place}/{FILES}/{image.state}", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(65536)
    except OSError:
        return ""
    return text.partition("\n")[0] if f"\n{describe_path(image.path)}\n" in text else ""


def describe_path(path: str) -> str:
    """A path as one line."""
    return path.replace("%", "%25").replace("\n", "%0a")


def find_by_reference(reference: str, machine: str, environ: Mapping[str, str]) -> str:
    """The root of an image that was unpacked here under this reference; empty when there is none."""
    asked = read_resolved(reference, machine, environ)
    return asked.root if asked else ""


class _ResolvedReference:
    """What a reference meant when it was last asked for."""

    def __init__(self, root: str, answer: str, when: float) -> None:
        self.root = root  # empty when that image is not here any more
        self.when = when
        word, _, self.login = answer.strip().partition(" ")
        self.is_unanswered = word == "unanswered"


def read_resolved(reference: str, machine: str, environ: Mapping[str, str]) -> _ResolvedReference | None:
    """What a reference meant, and when that was asked; None when it never was."""
    place = choose_node_directory(environ)
    try:
        with open(reference_path(place, reference, machine), encoding="utf-8", errors="surrogateescape") as file:
            identity, _, record = file.read(65536).partition("\n")
            when = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    name = reference_record(reference, machine)  # long names are cut, so that two may have one file
    if not record.startswith(name):
        return None
    return _ResolvedReference(_find_root(place, identity), record[len(name) :], when)


def is_volatile(reference: str) -> bool:
    """Whether what a reference means must be asked each time, because it names things of this machine."""
    return reference.partition(":")[0].lower() in _OF_THIS_MACHINE


def reference_path(place: str, reference: str, machine: str) -> str:
    """The file that says what a reference means."""
    reference, machine = _settle_name(reference, machine)
    text = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else f"%{ord(letter):02x}"
        for letter in f"{machine}+{reference}"
    )
    return f"{place}/{REFERENCES}/{text[:_LONGEST_NAME]}"


def reference_record(reference: str, machine: str) -> str:
    """What stands in that file behind the identity: the whole name, and for an archive which state of it is meant."""
    state = _describe_archive(reference)
    return " ".join([*_settle_name(reference, machine), state]) + "\n"


def _settle_name(reference: str, machine: str) -> tuple[str, str]:
    """Return a reference without what may be secret, and without saying that it is for this machine."""
    if reference[:6].lower().startswith(("http:", "https:")):
        import hashlib  # late: few images are fetched from an address, which may have a password in it

        reference = hashlib.sha256(reference.encode("utf-8", "surrogateescape")).hexdigest()
    return reference, "" if machine == os.uname().machine else machine


def read_config(root: str) -> bytes:
    """The OCI config of an image that was unpacked from layers; empty when it has none."""
    try:
        with open(f"{_image_of(root)}/{CONFIG}", "rb") as file:
            return file.read(1 << 22)
    except OSError:
        return b""


def read_owners(root: str) -> bytes:
    """The table of owners and modes beside an unpacked image; empty when it has none, as a user's directory."""
    if not root.endswith(f"/{ROOT}"):
        return b""
    try:
        with open(f"{_image_of(root)}/{OWNERS}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _image_of(root: str) -> str:
    """The image's directory, by its root."""
    return root[: -len(f"/{ROOT}")]


def hold_image(root: str) -> int:
    """Keep the image from being removed as long as the descriptor is open anywhere; -1 when it is gone already.

    The descriptor is inherited, so that the lock lives as long as the container's processes; a program that closes it
    is seen by its mount. Look for the image again after -1.
    """
    import fcntl  # late: an image that is not unpacked is not held

    folder = _image_of(root)
    path = f"{folder}/{LOCK}"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1
    # the one who removes it moves the directory away while it holds the lock
    if not _share_lock(file, path) or not os.path.exists(f"{folder}/{INFO}"):
        os.close(file)
        return -1
    try:
        moved = fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH_FILE)
        os.close(file)
        file = moved
    except OSError:  # no number so high is allowed
        os.set_inheritable(file, True)
    try:
        os.utime(path)
    except OSError:
        return file  # a disk that became read-only still has the image
    return file


def _share_lock(file: int, path: str) -> bool:
    """Whether the file still has that name once it is locked; a file system without locks is used without."""
    import fcntl  # late: an image that is not unpacked is not held

    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:  # somebody looks whether it is in use, or removes it
            is_locked = False
        except OSError:
            is_locked = True
        try:
            is_there = os.path.samestat(os.fstat(file), os.stat(path))
        except OSError:
            is_there = False
        if is_locked or not is_there or time.monotonic() > end:
            return is_locked and is_there
        time.sleep(_PAUSE)


def _find_root(place: str, identity: str) -> str:
    folder = f"{place}/{IMAGES}/{identity}"
    if "/" in identity or not identity or not is_complete(folder):
        return ""
    _check_owner(place)
    return f"{folder}/{ROOT}"


def is_complete(folder: str) -> bool:
    """Whether an image is there and has lost nothing to a cleaner of /tmp or to a crash of the node."""
    if not os.path.exists(f"{folder}/{INFO}"):
        return False
    mark = f"{folder}/{BOOT}"
    try:
        with open(mark, encoding="utf-8", errors="replace") as file:
            if file.read(64) != read_boot():
                return False
            age = time.time() - os.fstat(file.fileno()).st_mtime
        if age > _WRITTEN_AFTER:
            os.unlink(mark)
    except OSError:  # none: the usual case
        pass
    return True


def read_boot() -> str:
    """What the kernel calls this boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read(64)
    except OSError:
        return ""


def _describe_archive(reference: str) -> str:
    """Describe a reference to a file or directory of this machine: its absolute name and its state."""
    scheme, _, path_and_tag = reference.partition(":")
    scheme = scheme.lower()
    if scheme not in ("oci", "oci-archive", "docker-archive"):
        return ""
    path = path_and_tag.removeprefix("//")
    while path and not os.path.lexists(path):  # a tag may follow the path
        path = path.rpartition(":")[0]
    if scheme == "oci":
        path += "/index.json"
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{os.path.abspath(path)} {status.st_size:x}-{status.st_ctime_ns:x}-{status.st_ino:x}"


def _is_readonly(place: str) -> bool:
    """Whether nothing can be kept there: in a container the node's own place is mounted so."""
    try:
        return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _choose_default(own: str) -> str:
    """/var/tmp where it is a disk with room, else /tmp under the same terms, else whichever can be written."""
    usable = [folder for folder in _PLACES if os.access(folder, os.W_OK | os.X_OK)]
    usable = [folder for folder in usable if not _is_readonly(f"{folder}/{own}")]
    for folder in usable:
        status = os.statvfs(folder)
        if describe_storage(folder) == "disk" and status.f_bavail * status.f_frsize >= _LEAST_ROOM:
            return folder
    for folder in usable[::-1]:
        if describe_storage(folder) != "network":
            return folder
    if usable:
        return usable[-1]
    raise _refuse_place(_PLACES[0], "no permission to create a directory there")


def _check_owner(place: str) -> None:
    """Refuse a directory that another user made or could change: kedge runs its contents unchecked."""
    try:
        status = os.lstat(place)
    except OSError as problem:
        raise _refuse_place(place, problem.strerror or str(problem)) from None
    if stat.S_ISLNK(status.st_mode):
        raise _refuse_place(place, "it is a symlink")
    if not stat.S_ISDIR(status.st_mode):
        raise _refuse_place(place, os.strerror(errno.ENOTDIR))
    if status.st_uid != os.getuid():
        raise _refuse_place(place, f"it belongs to user {status.st_uid}")
    if status.st_mode & 0o022:
        raise _refuse_place(place, "others may write to it", f"remove the permission: chmod go-w {place}")
    _check_above(place)


def _check_above(place: str) -> None:
    """Refuse a directory for which others could put another one in its place, between this look and its use.

    Stricter than `posix.private`, whose directories are opened and looked at again: this one is mounted by its name.
    """
    folder = place
    while len(folder) > 1:
        folder = folder.rpartition("/")[0] or "/"
        status = os.stat(folder)
        if status.st_uid not in (0, _UNKNOWN_OWNER, os.getuid()):
            raise _refuse_place(place, f"{folder} belongs to user {status.st_uid}, who could replace it")
        if status.st_mode & (0o002 | stat.S_ISVTX) == 0o002:
            raise _refuse_place(place, f"anybody could replace it: {folder} is world-writable and not sticky")
        # root's own group has root alone, and many systems give each user a group with the user's number
        is_private = status.st_gid == 0 or status.st_uid == status.st_gid == os.getuid()
        if status.st_mode & (0o020 | stat.S_ISVTX) == 0o020 and not is_private:
            raise _refuse_place(place, f"its group could replace it: {folder} is group-writable and not sticky")


def _refuse_place(place: str, reason: str, remedy: str = "") -> KedgeError:
    from kedge.errors import FileProblem  # late: only for an error

    return FileProblem(
        f"cannot unpack images to {place}: {reason}",
        context={"path": place},
        hint=remedy or "choose a directory of your own on a local disk of this node: KEDGE_NODEDIR=DIRECTORY",
    )


def _require_absolute(path: str, origin: str) -> str:
    if path.startswith("/"):
        return path.rstrip("/") or "/"
    from kedge.errors import InvalidSetting  # late: only for an error

    raise InvalidSetting(f"{origin}={path} is not an absolute path", hint=f"for example {origin}=/local/$USER")


def _read_setting(environ: Mapping[str, str]) -> str:
    """The configured directory; the settings module is loaded only where its line in a file is not plain."""
    lines = read_lines(_SETTING, environ)
    return (_read_plain(lines, environ) or _load_setting(environ)) if lines else ""


def _read_plain(lines: list[str], environ: Mapping[str, str]) -> str:
    """The value of one line `node_directory = "/local/$USER"`; empty when it takes more to read it."""
    key, _, value = lines[0].partition("=")
    value = value.strip()
    user = environ.get("USER", "")
    if len(lines) > 1 or key.strip() != _SETTING or len(value) < 3 or value[0] != value[-1] or value[0] not in "\"'":
        return ""
    path = value[1:-1].replace("${USER}", "$USER").replace("$USER/", user + "/") if user else value[1:-1]
    if user and path.endswith("$USER"):
        path = path[: -len("$USER")] + user
    is_plain = path.startswith("/") and not any(letter in path for letter in "$\\\"'")
    return path.rstrip("/") if is_plain else ""


def _load_setting(environ: Mapping[str, str]) -> str:
    from kedge.system.settings import Settings  # late: dataclasses and TOML cost more than a container's start

    configured = Settings.load({}, environ).node_directory
    return str(configured) if configured else ""
