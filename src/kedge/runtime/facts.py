# SPDX-License-Identifier: BSD-3-Clause
"""What is known before a plan is made: who asks, where, on what host; and what parts of a plan hand to each other."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.posix.views import View
    from kedge.runtime.environment.image_users import ImageUser

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
