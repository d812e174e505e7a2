# SPDX-License-Identifier: BSD-3-Clause
"""Who the caller is: the passwd and group files that say so inside a container, and the home directory there."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd

    from kedge.runtime.facts import HostFacts
    from kedge.runtime.options import RunOptions

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
