# SPDX-License-Identifier: BSD-3-Clause
"""--device VENDOR/CLASS=NAME: devices as the Container Device Interface describes them in /etc/cdi and /var/run/cdi.

Environment, mounts and device nodes are taken over. Hooks are programs for root; what NVIDIA's do is done here.
"""

from __future__ import annotations

import os

from kedge.container.devices.cdi_hooks import apply_hooks, as_list, as_mappings
from kedge.container.env_scripts import is_name
from kedge.container.facts import Additions, Bind
from kedge.system.private_files import find_foreign_hand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kedge.container.facts import HostFacts, ImageFacts
    from kedge.container.options import RunOptions
    from kedge.system.views import View

FOLDERS = ("/etc/cdi", "/var/run/cdi")
_MAXIMUM_SIZE = 8 << 20
_HONOURED = ("env", "deviceNodes", "mounts", "hooks")
_HINT = "use --cdi-dirs for other directories; 'nvidia-ctk cdi generate' writes a CDI file for NVIDIA GPUs"


class Specification:
    """One file: the devices of one vendor and class."""

    __slots__ = ("devices", "edits", "kind", "path", "rank")

    def __init__(self, path: str, rank: int, content: dict[str, Any]) -> None:
        self.path = path
        self.rank = rank  # directories that come later win
        self.kind = str(content.get("kind") or "")
        self.edits = _as_mapping(content.get("containerEdits"))
        self.devices = {
            str(device["name"]): _as_mapping(device.get("containerEdits"))
            for device in content.get("devices") or []
            if isinstance(device, dict) and device.get("name") is not None
        }


def plan_cdi(options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """What the named devices add; raises DeviceProblem when one is not known."""
    folders = _list_folders(options)
    specifications, problems = read_specifications(host.view, folders)
    names = [name.strip() for words in options.device for name in words.split(",") if name.strip()]
    additions = Additions()
    used: list[Specification] = []
    edits: list[dict[str, Any]] = []
    for name in names:
        specification, edit = _find_device(name, specifications, problems, folders)
        if specification not in used:
            used.append(specification)
            edits.append(specification.edits)
        edits.append(edit)
    additions.notes += [f"{specification.kind} devices come from {specification.path}" for specification in used]
    additions.notes += problems
    for edit in edits:
        _apply_edit(additions, host.view, edit)
    apply_hooks(additions, options, host, image, edits)
    return additions


def _list_folders(options: RunOptions) -> list[str]:
    folders = [folder.strip() for words in options.cdi_dirs for folder in words.split(",") if folder.strip()]
    return folders or list(FOLDERS)


def read_specifications(view: View, folders: list[str]) -> tuple[list[Specification], list[str]]:
    """Return all specifications that can be read, and one sentence for each that cannot."""
    specifications, problems = [], []
    for rank, folder in enumerate(folders):
        for name in _list_files(view, folder):
            path = f"{folder.rstrip('/')}/{name}"
            try:
                content = _parse(view, path)
            except ValueError as problem:
                problems.append(f"{path} cannot be used: {problem}")
                continue
            specifications.append(Specification(path, rank, content))
    return specifications, problems


def refuse_strangers(options: RunOptions, view: View) -> None:
    """Raise DeviceProblem for files that root and the user have not written: what they say, a container gets.

    To be called where the kernel still tells users apart: in a user namespace it shows them all as nobody.
    """
    for folder in _list_folders(options):
        for path in (folder, *(f"{folder.rstrip('/')}/{name}" for name in _list_files(view, folder))):
            try:
                reason = find_foreign_hand(os.stat(view.resolve(path)))
            except (OSError, ValueError):
                continue  # there is none
            if reason:
                from kedge.errors import DeviceProblem  # late: error paths only

                raise DeviceProblem(
                    f"kedge takes no devices from {path}: {reason}",
                    hint="look into it, copy it to a directory of your own, and name that: --cdi-dirs DIRECTORY",
                )


def _list_files(view: View, folder: str) -> list[str]:
    return [name for name in view.names(folder) if name.endswith((".json", ".yaml"))]


def _parse(view: View, path: str) -> dict[str, Any]:
    data = view.read(path, _MAXIMUM_SIZE + 1)
    if data is None:
        raise ValueError("kedge cannot read it")
    if len(data) > _MAXIMUM_SIZE:
        raise ValueError(f"larger than {_MAXIMUM_SIZE >> 20} MiB")
    try:
        text = data.decode()
        if "\\0" in text or "\\u0000" in text or "\0" in text:  # which ends a variable and a path, in the kernel's eyes
            raise ValueError("it has a NUL in a text")
        if path.endswith(".json"):
            import json  # late: --device with JSON only

            content = json.loads(text)
        else:
            from kedge.base.yaml_text import YamlError, parse_yaml  # late: --device with YAML only

            try:
                content = parse_yaml(text)
            except YamlError as problem:
                raise ValueError(str(problem)) from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str) or not content.get("cdiVersion"):
        raise ValueError("not a CDI file (cdiVersion or kind is missing)")
    if not isinstance(content.get("devices") or [], list):
        raise ValueError("'devices' is not a list")
    return content


def _find_device(
    name: str, specifications: list[Specification], problems: list[str], folders: list[str]
) -> tuple[Specification, dict[str, Any]]:
    """The specification that has a device, and the device's own edits; the directory that comes last wins."""
    from kedge.errors import DeviceProblem  # late: error paths only, and the one place that raises here

    kind, equals, device = name.partition("=")
    if not equals or "/" not in kind or not device:
        raise DeviceProblem(
            f"'{name}' is not a device name", hint="write VENDOR/CLASS=NAME, as in '--device nvidia.com/gpu=0'"
        )
    where = " and ".join(folders)
    context = {f"problem {number}": text for number, text in enumerate(problems, 1)}
    if not specifications:
        if problems:
            raise DeviceProblem(f"kedge cannot read any CDI file in {where}", context=context, hint=_HINT)
        raise DeviceProblem(f"no device '{name}': no CDI files in {where}", hint=_HINT)
    holders = [
        specification
        for specification in specifications
        if specification.kind == kind and device in specification.devices
    ]
    if not holders:
        known = [
            f"{specification.kind}={name_in_file}"
            for specification in specifications
            for name_in_file in specification.devices
        ]
        context = {"known": ", ".join(known[:64]) or "none", **context}
        raise DeviceProblem(f"no device '{name}' in {where}", context=context, hint=_HINT)
    best = max(holder.rank for holder in holders)
    chosen = [holder for holder in holders if holder.rank == best]
    if len(chosen) > 1:
        raise DeviceProblem(
            f"two CDI files describe '{name}'",
            context={"files": f"{chosen[0].path}, {chosen[1].path}"},
            hint="remove one",
        )
    return chosen[0], chosen[0].devices[device]


def _apply_edit(additions: Additions, view: View, edit: dict[str, Any]) -> None:
    for text in as_list(edit.get("env")):
        name, equals, value = str(text).partition("=")
        if equals and is_name(name):
            additions.variables[name] = value
    for node in as_mappings(edit.get("deviceNodes")):
        path = str(node.get("path") or "")
        source = str(node.get("hostPath") or path)
        if not path.startswith("/") or not view.kind(source):
            additions.warnings.append(f"--device: {source or 'a device without a path'} does not exist: ignored")
        elif not view.resolve(source).startswith("/dev/"):
            additions.warnings.append(f"--device: {source} is not a device: ignored")
        elif source == path and path.startswith("/dev/"):
            additions.devices.append(path)
        else:
            additions.binds.append(Bind(source, path, origin="--device"))
    for mount in as_mappings(edit.get("mounts")):
        _apply_mount(additions, view, mount)
    for name, value in edit.items():
        if name not in _HONOURED and value:
            additions.warnings.append(f"--device: '{name}' of the CDI file needs root: ignored")


def _apply_mount(additions: Additions, view: View, mount: dict[str, Any]) -> None:
    source, destination = str(mount.get("hostPath") or ""), str(mount.get("containerPath") or "")
    kind = str(mount.get("type") or "bind")
    if not source.startswith("/") or not destination.startswith("/") or kind not in ("bind", "none"):
        additions.warnings.append(f"--device: mount of '{source}' at '{destination}' ({kind}) is ignored")
        return
    if not view.kind(source):
        additions.warnings.append(
            f"--device: {source} does not exist: the CDI file is older than the driver; renew it with "
            "'nvidia-ctk cdi generate'"
        )
        return
    options = [str(option) for option in as_list(mount.get("options"))]
    additions.binds.append(Bind(view.resolve(source), destination, readonly="ro" in options, origin="--device"))


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
