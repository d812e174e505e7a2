# SPDX-License-Identifier: BSD-3-Clause
"""The three files by which Enroot knows an image: /etc/environment, /etc/fstab and /etc/rc, made from an OCI config.

https://github.com/NVIDIA/enroot/blob/master/doc/image-format.md
An image of layers may bring files of these names that say something else (Ubuntu's /etc/environment, Debian's
/etc/fstab); like Enroot itself, ours take their place.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import TYPE_CHECKING, Any

from kedge.base.tree import ContentSink, Node, find
from kedge.image.formats.singularityd.decorate_tree import TreeEditor

if TYPE_CHECKING:
    from kedge.system.views import View

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
_QUOTES = re.compile(r"^([^=]*=)([\"'])(.*)\2$")  # around a whole value
_LONGEST_NAME = 255  # bytes


def add_enroot_files(
    root: Node, sink: ContentSink, section: dict[str, Any], *, mtime: int = 0, source: str = ""
) -> list[str]:
    """Put the files, the working directory and volumes into the tree; returns what could not be carried over."""
    editor = TreeEditor(root, sink, mtime)
    environment, warnings = render_environment(section.get("Env") or [])
    for path, text in (
        (b"etc/environment", environment),
        (b"etc/fstab", render_fstab(section.get("Volumes") or {})),
        (b"etc/rc", render_rc(section, source)),
    ):
        editor.write(path, text.encode("utf-8", "surrogateescape"), 0o644)
    # Enroot itself makes missing ones so that nobody may enter them
    for folder in (section.get("WorkingDir") or "", *sorted(section.get("Volumes") or {})):
        path = posixpath.normpath(f"/{folder}").encode("utf-8", "surrogateescape").strip(b"/")
        if path and b"\0" not in path and all(len(part) <= _LONGEST_NAME for part in path.split(b"/")):
            editor.make_folder(path)
    return [*warnings, *editor.warnings]


def has_enroot_files(root: Node) -> bool:
    """Whether the tree was made for Enroot: its command script is there."""
    return find(root, b"etc/rc") is not None


def read_section(view: View) -> dict[str, Any]:
    """The `config` part for an image that Enroot made: its variables, and its command script as the entrypoint."""
    if view.kind("/etc/rc") != "f" or view.resolve("/etc/rc") != "/etc/rc" or view.kind("/etc/environment") != "f":
        return {}
    text = (view.read("/etc/environment") or b"").decode(errors="surrogateescape")
    variables = [line for line in text.splitlines() if _VARIABLE.match(line)]
    return {"Env": [_QUOTES.sub(r"\1\3", line) for line in variables], "Entrypoint": ["/bin/sh", "/etc/rc"]}


def render_environment(entries: list[str]) -> tuple[str, list[str]]:
    """Return one variable a line, and warnings of values of several lines, which have no place there."""
    lines, warnings = [], []
    for entry in entries:
        if not _VARIABLE.match(entry):
            continue
        if "\n" in entry or "\r" in entry:
            name = entry.partition("=")[0]
            warnings.append(f"the variable {name} has a value of several lines, which Enroot cannot hold: left out")
            continue
        lines.append(entry + "\n")
    return "".join(lines), warnings


def render_fstab(volumes: dict[str, Any]) -> str:
    """Every volume is its own directory, bound where it can be written although the rest cannot."""
    lines = []
    for volume in sorted(volumes):
        whole = posixpath.normpath(f"/{volume}").lstrip("/")
        path = "".join(f"\\{ord(character):03o}" if character in " \t\n\\" else character for character in "/" + whole)
        if path != "/" and "${" not in path:
            lines.append(f"${{ENROOT_ROOTFS}}{path} {path} none x-create=dir,bind,rw,nosuid,nodev\n")
    return "".join(lines)


def render_rc(section: dict[str, Any], source: str = "") -> str:
    """The command script: go to the working directory, then be the entrypoint with the user's words or the default."""
    workdir = shlex.quote(str(section.get("WorkingDir") or "/"))
    entrypoint = [str(word) for word in section.get("Entrypoint") or []]
    command = [str(word) for word in section.get("Cmd") or []]
    if not entrypoint and not command:
        command = ["/bin/sh"]
    comments = [f"made from {source}"] if source else []
    comments += [f"{name} {value}" for name, value in sorted((section.get("Labels") or {}).items())]
    head = "".join(f"# {' '.join(text.split())}\n" for text in comments)
    start = "".join(f" {shlex.quote(word)}" for word in entrypoint)
    default = "".join(f" {shlex.quote(word)}" for word in command)
    return (
        f"{head}\n"
        f"mkdir -p {workdir} 2>/dev/null\n"
        f"cd {workdir} || exit 1\n"
        "unset OLDPWD\n"
        "[ ! -s /etc/rc.local ] || . /etc/rc.local\n"
        f'[ $# -eq 0 ] || exec{start} "$@"\n'
        f"exec{start}{default}\n"
    )
