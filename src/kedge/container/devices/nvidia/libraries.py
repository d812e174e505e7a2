# SPDX-License-Identifier: BSD-3-Clause
"""Finds the driver's libraries on the host: those whose file name ends in the running driver's version, no others.

So neither leftovers of another driver nor vendor-neutral loaders (libGL, libEGL, libOpenCL), which need the host's own
C library, are ever taken. A library that is not listed here is taken with the compute ones: lists grow old.
"""

from __future__ import annotations

from kedge.base.versions import is_driver_version, split_library_name
from kedge.container.facts import LIBRARIES
from kedge.system.ld_cache import MAXIMUM_SIZE, read_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts
    from kedge.system.views import View

_PREFIXES = (
    *("libcuda", "libnv", "libvdpau_nvidia"),
    *("libGLX_nvidia", "libEGL_nvidia", "libGLESv1_CM_nvidia", "libGLESv2_nvidia"),
)
_CACHE_PREFIXES = tuple(prefix.encode() for prefix in _PREFIXES)
_NESTED = LIBRARIES  # we may run in a container ourselves, and its libraries have no version in their names

_UTILITY = ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq", "libnvidia-sandboxutils")
_VIDEO = ("libnvcuvid", "libnvidia-encode", "libnvidia-opticalflow", "libvdpau_nvidia")
_GRAPHICS = (
    *("libnvidia-eglcore", "libnvidia-glcore", "libnvidia-tls", "libnvidia-glsi", "libnvidia-fbc", "libnvidia-ifr"),
    *("libnvidia-rtcore", "libnvoptix", "libGLX_nvidia", "libEGL_nvidia", "libGLESv1_CM_nvidia", "libGLESv2_nvidia"),
    *("libnvidia-glvkspirv", "libnvidia-cbl", "libnvidia-vulkan-producer", "libnvidia-present"),
    *("libnvidia-wayland-client", "libnvidia-vksc-core", "libnvidia-api", "libnvidia-raytracing"),
)
_NEVER = (
    "libnvidia-gtk2",
    "libnvidia-gtk3",
    "libnvidia-wfb",
    "libnvidia-vgpu",
    "libnvidia-vgxcfg",
    "libnvidia-container",
)
_UNVERSIONED = "libnvidia-egl-"  # EGL's platforms are released apart from the driver

# the number in a library's soname where it is not 1, for hosts on which nobody ran ldconfig
_SONAMES = {
    "libnvidia-nvvm": "4",
    "libnvidia-nvvm70": "4",
    "libnvidia-nscq": "2",
    "libGLX_nvidia": "0",
    "libEGL_nvidia": "0",
    "libGLESv2_nvidia": "2",
}
_PLAIN = ("libcuda", "libnvidia-ml", "libnvcuvid", "libnvidia-encode", "libnvidia-opticalflow")  # opened as X.so too
_BOTH = ("libcuda", "libnvidia-ml")

_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "ppc64le": "powerpc64le-linux-gnu"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "i686": "386"}


class Libraries:
    """What was found: `names` by real file, and versions of the driver whose files are here too."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.names: dict[str, list[str]] = {}  # file on the host: names it has
        self.others: list[str] = []
        self.folders: list[str] = []  # where they were found, for messages

    def take(self, name: str, path: str) -> None:
        """Take one name of the real file `path`, if the file is this driver's."""
        stem, suffix = split_library_name(path.rpartition("/")[2])
        # without any driver nothing is taken: libraries of the CUDA toolkit have no version either
        if not self.version or (suffix != self.version and not stem.startswith(_UNVERSIONED)):
            if is_driver_version(suffix) and int(suffix.partition(".")[0]) >= 300 and suffix not in self.others:
                self.others.append(suffix)
            return
        names = self.names.setdefault(path, [path.rpartition("/")[2]])
        if name not in names:
            names.append(name)

    def has(self, stem: str) -> bool:
        """Whether a library is there, by its name without `.so`."""
        return bool(self.find(stem))

    def find(self, stem: str) -> str:
        """The file of a library, by its name without `.so`; empty where it is not there."""
        paths = (path for path in self.names if split_library_name(path.rpartition("/")[2])[0] == stem)
        return next(paths, "")

    def list_for(self, capabilities: set[str]) -> list[tuple[str, str]]:
        """(file on the host, name): the real name of each file first, then the names that lead to it."""
        chosen, taken = [], set()
        has_links = any(
            split_library_name(name)[1] not in ("", self.version) for names in self.names.values() for name in names
        )
        for path, names in self.names.items():
            stem = split_library_name(names[0])[0]
            if stem in _NEVER or stem in taken or not capabilities & _groups_of(stem):
                continue
            taken.add(stem)  # the loader takes the first of two as well
            chosen += [(path, name) for name in _complete_names(stem, names, has_links)]
        return chosen


def find_libraries(host: HostFacts, version: str) -> Libraries:
    """The driver's libraries; `version` may be empty, then that of the first libcuda or libnvidia-ml found counts."""
    view = host.view
    cached = read_cache(view.read("/etc/ld.so.cache", MAXIMUM_SIZE) or b"", host.machine, _CACHE_PREFIXES)
    resolved = [(name, follow_links(view, path)) for name, path in cached]
    # the cache may be older than the driver that it describes
    there = {path for path in {path for _, path in resolved} if view.kind(path) == "f"}
    entries = [(name, path) for name, path in resolved if path in there]
    libraries = _take_all(entries, version)
    if all(libraries.has(stem) for stem in _BOTH):
        return libraries
    for folder in _list_folders(host):
        more = [(name, follow_links(view, f"{folder}/{name}")) for name in view.names(folder) if _is_wanted(name)]
        entries += [(name, path) for name, path in more if _fits_machine(view, path, host.machine)]
        if not more:
            continue
        libraries = _take_all(entries, version)
        if folder == _NESTED and not libraries.names:
            libraries = _take_nested(entries, version)
        if all(libraries.has(stem) for stem in _BOTH):
            break
    return libraries


def _take_all(entries: list[tuple[str, str]], version: str) -> Libraries:
    for stem in _BOTH:
        for _, path in entries:
            name, suffix = split_library_name(path.rpartition("/")[2])
            if not version and name == stem and is_driver_version(suffix) and int(suffix.partition(".")[0]) >= 300:
                version = suffix
    libraries = Libraries(version)
    for name, path in entries:
        libraries.take(name, path)
    libraries.folders = sorted({path.rpartition("/")[0] for path in libraries.names})
    return libraries


def _take_nested(entries: list[tuple[str, str]], version: str) -> Libraries:
    libraries = Libraries(version)
    for name, path in entries:
        if path.startswith(_NESTED + "/"):
            libraries.names[path] = [name]
    libraries.folders = [_NESTED]
    return libraries


def _list_folders(host: HostFacts) -> list[str]:
    """Where a driver's libraries lie when the cache does not know them."""
    multiarch = _MULTIARCH.get(host.machine, f"{host.machine}-linux-gnu")
    folders = [
        *("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"),  # device plugins of Kubernetes mount them there
        *(f"/usr/lib/{multiarch}", f"/usr/lib/{multiarch}/nvidia/current", "/usr/lib64", "/usr/lib64/nvidia"),
        *("/usr/lib", "/usr/lib/nvidia", "/usr/local/lib", "/run/opengl-driver/lib"),
        *("/home/kubernetes/bin/nvidia/lib64", "/opt/nvidia/lib64"),
    ]
    folders += [folder for folder in host.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    return list(dict.fromkeys([*folders, _NESTED]))


def follow_links(view: View, path: str) -> str:
    """The file that a path means; the path itself where its links go in a circle."""
    try:
        return view.resolve(path)
    except OSError:
        return path


def _groups_of(stem: str) -> set[str]:
    """The capabilities that bring a library."""
    if stem in _UTILITY:
        return {"utility"}
    if stem in _VIDEO:
        return {"video"}
    if stem.startswith("libnvidia-ngx"):
        return {"ngx"}
    if stem in _GRAPHICS or stem.startswith(_UNVERSIONED):
        return {"graphics", "display"}
    if stem == "libnvidia-gpucomp":
        return {"compute", "graphics", "display", "video"}
    return {"compute"}


def _complete_names(stem: str, names: list[str], has_links: bool = True) -> list[str]:
    """A library's names with those that programs open and that the host may lack; a bare directory has no soname's."""
    complete = list(names)
    if not has_links:
        complete.append(f"{stem}.so.{_SONAMES.get(stem, '1')}")
    if stem in _PLAIN:
        complete.append(f"{stem}.so")
    if stem == "libGLX_nvidia":
        complete.append("libGLX_indirect.so.0")
    return list(dict.fromkeys(complete))


def _is_wanted(name: str) -> bool:
    return name.startswith(_PREFIXES) and ".so" in name


def _fits_machine(view: View, path: str, machine: str) -> bool:
    """Whether a file is not a library of another kind of machine: /usr/lib may hold the 32-bit ones."""
    from kedge.system.elf import identify_machine  # late: only where ldconfig's cache lacks the driver

    head = view.read(path, 20)
    if head is None:
        return False
    architecture = identify_machine(head)
    return not architecture or machine not in _ARCHITECTURES or architecture == _ARCHITECTURES[machine]
