# SPDX-License-Identifier: BSD-3-Clause
"""The operations a plan is made of. `enter` performs them in order; `--dry-run` prints them.

An operation is a tuple of texts and numbers, its kind first and, where it may fail, what then happens last, so that a
plan is flat, comparable and quick to make. Paths begin with the name of the tree they are in: OLD, NEW, LOWER, SESSION.

    tmpfs     target, options, policy          proc, devpts, mqueue   target, policy
    bind      source, target, flags, policy    readonly               target
    directory    path, mode, policy               hostname               name
    file      path, policy                     umask                  number
    write     path, text, mode[, user, group]  chdir                  directories by preference, is_strict
    link      what it says, path               enter                  root
    same      path, device, inode              owners                 layer, directory
    overlay, relay   lowers, upper, work, target, is_written   (lowers and the folders of chdir are joined by newlines)
    squashfuse, gocryptfs, loop, fuse2fs   file, offset, size, target, program or type
"""

from __future__ import annotations

from kedge.posix.constants import MS_RDONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import Payload

    Operation = tuple[str | int, ...]

OLD = "/host"  # the host's tree
NEW = "/root"  # the container's tree
LOWER = "/lower"  # the image's root file system
IMAGE_ROOT = "/rootfs"  # where the image is in the tree of a recipe's script with programs of the host
SESSION = "/session"  # files that are made for this container: passwd, group, upper layers in memory

# what happens when an operation fails
MUST = "must"  # an error that ends the start
WARN = "warn"  # said, and left out
MAY = "may"  # left out; said with --verbose
LATER = "later"  # remembered: mount points that cannot be made come from an underlay of binds

_TEXTS = {
    "tmpfs": "mount an empty tmpfs on {1} ({2})",
    "bind": "bind {1} to {2}{flags}",
    "folder": "create the directory {1}",
    "file": "create the file {1}",
    "write": "write {1} ({size} bytes)",
    "link": "create the symlink {2} -> {1}",
    "owners": "show the files of {1} that have other owners or modes than on this node, from {2}",
    "overlay": "mount an overlay on {4}: lower {1}, upper {2}",
    "relay": "mount the overlay on {4} again, above the mount points that the image lacks",
    "proc": "mount proc on {1}",
    "devpts": "mount devpts on {1}",
    "mqueue": "mount mqueue on {1}",
    "readonly": "make {1} read-only",
    "same": "show {1}, which is not the directory that was chosen",
    "squashfuse": "mount the SquashFS file system in {1} (offset {2}) on {4} with {5}",
    "gocryptfs": "decrypt the file system in {1} (offset {2}) and mount it on {4} with gocryptfs and {5}",
    "loop": "mount the {5} file system in {1} (offset {2}) on {4} with the kernel",
    "fuse2fs": "mount the ext file system in {1} (offset {2}) on {4} ({5})",
    "hostname": "set the host name to {1}",
    "umask": "set the umask to {octal}",
    "enter": "make {1} the root",
    "chdir": "change to {1}",
}


def describe(operation: Operation) -> str:
    """One line for a person."""
    text = _TEXTS[str(operation[0])]
    kind = operation[0]
    parts = [_show_path(part) if isinstance(part, str) else part for part in operation]
    if kind == "chdir":  # its directories are those of the container, and begin with the name of no tree
        parts[1] = str(operation[1]).replace("\n", ", else ")
    elif kind == "overlay":
        parts[1] = " over ".join(map(_show_path, str(operation[1]).split("\n")))
    flags = ", read-only" if kind == "bind" and isinstance(operation[3], int) and operation[3] & MS_RDONLY else ""
    size = len(str(operation[2])) if kind == "write" else 0
    octal = f"{operation[1]:03o}" if kind == "umask" and isinstance(operation[1], int) else ""
    return text.format(*parts, flags=flags, size=size, octal=octal)


def _show_path(path: str) -> str:
    """A path as the user knows it: `host:/home/x`, `container:/data`."""
    for prefix, name in ((OLD, "host:"), (NEW, "container:"), (LOWER, "image:"), (SESSION, "session:")):
        if path == prefix or path.startswith(prefix + "/"):
            return name + (path[len(prefix) :] or "/")
    return path


def kinds() -> tuple[str, ...]:
    """Every kind of operation there is; a test checks that `enter` performs each."""
    return tuple(_TEXTS)


def render_plan(operations: list[Operation], payload: Payload, *, as_json: bool) -> str:
    """What `--dry-run` prints: every operation in order, then the program and its environment, without secrets."""
    import json  # late, all: only a dry run prints a plan
    import shlex

    from kedge.model.secret_text import mask_value, mask_words

    program = mask_words(payload.argv)
    environ = {name: mask_value(name, value) for name, value in payload.environ.items()}
    if as_json:
        described = [
            {"kind": operation[0], "fields": list(operation[1:]), "text": describe(operation)}
            for operation in operations
        ]
        plan = {"operations": described, "program": program, "environment": environ}
        return json.dumps(plan, indent=2)
    lines = [describe(operation) for operation in operations]
    lines.append(f"run {shlex.join(program)}")
    lines += [f"  {name}={_show_value(value)}" for name, value in sorted(environ.items())]
    return "\n".join(lines)


def _show_value(value: str) -> str:
    shown = value.encode("unicode_escape", "surrogateescape").decode("ascii") if not value.isprintable() else value
    return shown if len(shown) <= 200 else f"{shown[:200]}… ({len(value)} characters)"
