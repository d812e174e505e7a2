# SPDX-License-Identifier: BSD-3-Clause
"""Many users in one namespace: --fakeroot with the subordinate ids of /etc/subuid, mapped by newuidmap and newgidmap.

The two programs are set-user-ID and belong to the host. Without them, or without ids, root is the only user there is.
Real root needs no program: its namespace can know all users of the host.
"""

from __future__ import annotations

import os

from kedge.system.spawn import fork_process, run_attached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.container.facts import HostFacts
    from kedge.system.views import View

_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin")
_OWN_MAPS = ("uid_map", "gid_map")
_FEWEST = 1000  # ids: with fewer a distribution's system users have no place
STEP_IDS = 65536  # in a step of a build, on every host: all that images usually name, `nobody` too


class IdMapper:
    """A child outside of the namespace that maps ids into it, once it is told to."""

    def __init__(self, host: HostFacts, *, exactly: int = 0) -> None:
        self.commands = plan_maps(host, os.getpid(), exactly=exactly) if host.uid else []
        self.maps = plan_own_maps(host.view, os.getpid()) if host.uid == 0 else []
        self._child = 0
        if self.commands or self.maps:
            self._read, self._write = os.pipe()
            self._child = fork_process()
            if self._child == 0:
                os.close(self._write)
                self._wait_and_map(host)

    def _wait_and_map(self, host: HostFacts) -> None:
        try:
            if os.read(self._read, 1):
                failures = any(run_attached(command, host.environ, quiet=True) for command in self.commands)
                for path, text in self.maps:
                    _write_map(path, text)
                os._exit(1 if failures else 0)
        finally:
            os._exit(2)

    def map(self) -> bool:
        """Called inside the new namespace: have the ids mapped; False where one map has to do."""
        if not self._child:
            return False
        os.close(self._read)
        os.write(self._write, b"m")
        os.close(self._write)
        return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1]) == 0


def plan_maps(host: HostFacts, process: int, *, exactly: int = 0) -> list[list[str]]:
    """The two command lines; none where the host gives this user no ids or lacks the programs.

    With `exactly` there are so many ids beside root, however many more the host gives.
    """
    commands = []
    for program, table, own in (("newuidmap", "/etc/subuid", host.uid), ("newgidmap", "/etc/subgid", host.gid)):
        path = find_helper(program, host.view.is_executable)
        start, count = find_range(host.view.read(table) or b"", host)
        if not path or count < (exactly or _FEWEST):
            return []
        commands.append([path, str(process), "0", str(own), "1", "1", str(start), str(exactly or count)])
    return commands


def plan_own_maps(view: View, process: int) -> list[tuple[str, bytes]]:
    """The files to write and their texts, so that every id that is known here is known inside as itself.

    None where there is only one user here, as in a container of a user who is root there.
    """
    if not knows_others(view):
        return []
    maps = []
    for name in _OWN_MAPS:
        lines = [line.split() for line in (view.read(f"/proc/self/{name}") or b"").splitlines()]
        text = b"".join(_map_to_itself(int(line[0]), int(line[2])) for line in lines)
        maps.append((f"/proc/{process}/{name}", text))
    return maps


def knows_others(view: View) -> bool:
    """Whether the namespace that we are in has users beside us."""
    tables = [(view.read(f"/proc/self/{name}") or b"").splitlines() for name in _OWN_MAPS]
    return all(sum(int(line.split()[2]) for line in lines) >= _FEWEST for lines in tables)


def _map_to_itself(start: int, count: int) -> bytes:
    """Return one line of a map, or two: a namespace that looks like the host's own would be taken for it."""
    if start or count == 1:
        return b"%d %d %d\n" % (start, start, count)
    return b"0 0 1\n1 1 %d\n" % (count - 1)


def _write_map(path: str, text: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text)
    finally:
        os.close(file)


def find_helper(program: str, is_executable: Callable[[str], bool]) -> str:
    """The program's path, or the empty string."""
    return next((f"{folder}/{program}" for folder in _FOLDERS if is_executable(f"{folder}/{program}")), "")


def find_range(table: bytes, host: HostFacts) -> tuple[int, int]:
    """The first range of ids that the table gives the user, by name or number: its start and length."""
    for line in table.decode(errors="replace").splitlines():
        name, _, numbers = line.strip().partition(":")
        start, _, count = numbers.partition(":")
        if name in (host.user, str(host.uid)) and start.isdigit() and count.isdigit():
            return int(start), int(count)
    return 0, 0
