# SPDX-License-Identifier: BSD-3-Clause
"""The driver libraries that many images carry for hosts with older drivers (`cuda-compat`), and what they say of
themselves: the host branches they run on stand in an ELF note."""

from __future__ import annotations

from kedge.base.versions import is_driver_version, split_library_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.system.views import View

_PLACES = ("/usr/local/cuda/compat", "/usr/local/cuda/compat/lib.real", "/usr/local/cuda/compat/lib")
_TOOLKITS = "/usr/local"
_SECTION, _OWNER = ".note.cuda.fwd_compatibility", "NVIDIA Corporation"


class CarriedDriver:
    """The driver libraries inside an image."""

    __slots__ = ("branches", "cuda", "folder", "version")

    def __init__(self, folder: str, version: str) -> None:
        self.folder = folder
        self.version = version
        self.branches: list[int] | None = None  # host branches it runs on; None: it does not say
        self.cuda = ""


def find_carried(view: View) -> CarriedDriver | None:
    """The compat libraries of an image, of the toolkit that /usr/local/cuda means first."""
    toolkits = [name for name in view.names(_TOOLKITS) if name.startswith("cuda-")]
    places = [*_PLACES, *(f"{_TOOLKITS}/{name}/compat" for name in reversed(toolkits))]
    for folder in places:
        for name in view.names(folder):
            stem, suffix = split_library_name(name)
            if stem == "libcuda" and is_driver_version(suffix) and view.kind(f"{folder}/{name}") == "f":
                return CarriedDriver(folder, suffix)
    return None


def read_branches(view: View, carried: CarriedDriver) -> None:
    """Fill in what the library says about itself, if it says anything that can be read."""
    import json  # late: only where the image's driver is newer than the host's

    from kedge.system.elf import ElfDamage, ElfFile

    path = f"{carried.folder}/libcuda.so.{carried.version}"
    try:
        text = ElfFile(lambda size, offset: view.read(path, size, offset) or b"").read_note(_SECTION, _OWNER)
        content = json.loads(text) if text else None
    except (ElfDamage, ValueError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    facts = {key.lower(): value for key, value in content.items()}
    branches, cuda = facts.get("driver"), facts.get("cuda version")
    if isinstance(branches, list) and branches and all(type(branch) is int for branch in branches):
        carried.branches = branches[:64]
    carried.cuda = cuda[:16] if isinstance(cuda, str) else ""
