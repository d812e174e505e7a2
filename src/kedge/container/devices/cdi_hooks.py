# SPDX-License-Identifier: BSD-3-Clause
"""What the hooks in NVIDIA's device specifications do, done without root and without starting them.

They make links to libraries, tell the loader about directories and choose libcuda: names below /.singularity.d/libs and
directories in LD_LIBRARY_PATH do the same.
"""

from __future__ import annotations

from kedge.container.devices.nvidia.libraries import follow_links
from kedge.container.facts import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kedge.container.facts import Additions, HostFacts, ImageFacts
    from kedge.container.options import RunOptions
    from kedge.system.views import View

_PROGRAMS = ("nvidia-ctk", "nvidia-cdi-hook", "hook")  # words before the hook's own name
_NEEDLESS = ("chmod", "disable-device-node-modification")  # modes are the host's; the driver makes no nodes here
_LOADED = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")  # and directories below: the loader knows them


def apply_hooks(
    additions: Additions, options: RunOptions, host: HostFacts, image: ImageFacts, edits: list[dict[str, Any]]
) -> None:
    """Do all hooks of the chosen devices; those that are not known are named in a warning."""
    folders: list[str] = []
    links: list[tuple[str, str]] = []
    version: str | None = None
    for words in _iterate_hooks(edits):
        name = next((word for word in words if word.rpartition("/")[2] not in _PROGRAMS), words[0])
        if name in ("update-ldcache", "create-soname-symlinks"):
            folders += _list_values(words, "folder")
        elif name == "create-symlinks":
            pairs = [value.partition("::") for value in _list_values(words, "link")]
            links += [(target, path) for target, separator, path in pairs if separator]
        elif name == "enable-cuda-compat":
            version = next(iter(_list_values(words, "host-driver-version")), "")
        elif name not in _NEEDLESS:
            additions.warnings.append(f"--device: hook '{name}' of the CDI file is not run (it needs root)")
    files = {bind.destination: bind.source for bind in additions.binds}
    _add_folders(additions, host.view, files, dict.fromkeys(folders))
    _add_links(additions, files, links)
    if version is not None or any(name == "libcuda.so.1" for _, name in additions.libraries):
        _choose_libcuda(additions, options, host, image, version or "")


def _iterate_hooks(edits: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The arguments of each hook, the program's own name first."""
    for edit in edits:
        for hook in as_mappings(edit.get("hooks")):
            words = [str(word) for word in as_list(hook.get("args"))]
            yield words or [str(hook.get("path") or "?")]


def as_list(value: Any) -> list[Any]:
    """The value if it is a list; specifications are not trusted to be well formed."""
    return value if isinstance(value, list) else []


def as_mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings in a list."""
    return [entry for entry in as_list(value) if isinstance(entry, dict)]


def _list_values(words: list[str], option: str) -> list[str]:
    """The values of `--option value` and `--option=value`."""
    values = [word[len(option) + 3 :] for word in words if word.startswith(f"--{option}=")]
    return values + [words[at + 1] for at, word in enumerate(words[:-1]) if word == f"--{option}"]


def _add_folders(additions: Additions, view: View, files: dict[str, str], folders: dict[str, None]) -> None:
    for destination, source in files.items():
        folder, _, name = destination.rpartition("/")
        if folder not in folders or ".so" not in name:
            continue
        # ldconfig would make the soname's link; the host's own directory shows what it is
        place, stem = source.rpartition("/")[0], name.partition(".so")[0]
        siblings = [sibling for sibling in view.names(place) if sibling.startswith(stem + ".so")]
        names = [name, *(sibling for sibling in siblings if follow_links(view, f"{place}/{sibling}") == source)]
        additions.libraries += [(source, library) for library in dict.fromkeys(names)]
    for folder in folders:
        if not any(folder == known or folder.startswith(known + "/") for known in _LOADED):
            additions.prepend_library_path.append(folder)


def _add_links(additions: Additions, files: dict[str, str], links: list[tuple[str, str]]) -> None:
    for target, path in links:
        folder, _, name = path.rpartition("/")
        wanted = target if target.startswith("/") else _join(folder, target)
        source = files.get(wanted)
        if source is None:
            # links to links: libcuda.so -> libcuda.so.1, whose name the libraries have already
            last = wanted.rpartition("/")[2]
            source = next((file for file, known in additions.libraries if known == last), None)
        if source is None:
            additions.notes.append(f"--device: link {path} -> {target} is ignored: its target is not mounted")
        elif ".so" in name and folder in {file.rpartition("/")[0] for file in files}:
            additions.libraries.append((source, name))
        else:
            additions.binds.append(Bind(source, path, readonly=True, is_optional=True, origin="--device"))
    additions.libraries = list(dict.fromkeys(additions.libraries))


def _join(folder: str, target: str) -> str:
    parts = folder.split("/")
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _choose_libcuda(
    additions: Additions, options: RunOptions, host: HostFacts, image: ImageFacts, version: str
) -> None:
    from kedge.container.devices.image_variables import read_image_variable
    from kedge.container.devices.nvidia.driver import Driver
    from kedge.container.devices.nvidia.libcuda import decide_libcuda  # late: only where NVIDIA's driver was named
    from kedge.container.devices.nvidia.start_check import check_start

    driver = Driver(host.view)
    path = read_image_variable(image, "LD_LIBRARY_PATH")
    decision = decide_libcuda(image.view, version or driver.version, driver.usable, path)
    additions.prepend_library_path += decision.prepend
    additions.notes += [decision.note] if decision.note else []
    check_start(options, image, additions, decision, (version or driver.version, driver.usable))
