# SPDX-License-Identifier: BSD-3-Clause
"""What a user's work leaves on virtual hosts: processes, mounts, and files in /tmp, /dev/shm and on the local disk.

with leaving_no_trace(hosts, uid): …     # fails where something is there afterwards that was not there before
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.cluster.daemons import wait_until
from tests.cluster.virtual_hosts import VirtualHosts

# kedge's own notes, a few bytes each, that the next start of this user removes
_NOTES = re.compile(r"/dev/shm/kedge-[0-9]+(/.*)?")
# directories of other tests, which may run at the same time: all hosts share the machine's /tmp
_OTHERS = re.compile(r"/tmp/(kedge-[a-z]+-[a-z0-9_]{8}|pytest-of-[^/]+|torchelastic_[a-z0-9_]+|tmp[a-z0-9_]{8})(/.*)?")
_LOOK = 'cut -d" " -f5 /proc/self/mountinfo; find /dev/shm /tmp "$1" -xdev -user "$2" -maxdepth 3 2>/dev/null; true'


def list_processes(hosts: VirtualHosts, name: str, uid: int | None = None) -> list[int]:
    """The processes on a host, of all users or of one; the one that holds the host is not among them."""
    network, found = os.stat(f"/proc/{hosts.find_pid(name)}/ns/net").st_ino, []  # noqa: PTH116
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_here = (place / "ns/net").stat().st_ino == network and int(place.name) != hosts.find_pid(name)
            if is_here and uid in (None, place.stat().st_uid):
                found.append(int(place.name))
    return found


def kill_host(hosts: VirtualHosts, name: str) -> None:
    """What happens when a node dies: nothing runs there any more."""
    for _ in range(3):  # what was just being started
        for pid in list_processes(hosts, name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def leaving_no_trace(hosts: VirtualHosts, uid: int, *, seconds: float = 15) -> Iterator[set[str]]:
    """A body after which all hosts are soon as they were before, except those that it adds to the set: they died."""
    before = {name: _look(hosts, name, uid) for name in hosts.names}
    dead: set[str] = set()
    yield dead
    for name in set(hosts.names) - dead:
        wait_until(f"no process on {name}", partial(_is_idle, hosts, name, uid), timeout=seconds)
        left: set[str] = set()
        is_clean = partial(_is_clean, left, hosts, name, uid, before[name])
        with contextlib.suppress(AssertionError):  # the scheduler removes its own files a little later
            wait_until(f"no file on {name}", is_clean, timeout=seconds)
        assert not left, f"left on {name}: {sorted(left)}"


def _is_clean(left: set[str], hosts: VirtualHosts, name: str, uid: int, before: set[str]) -> bool:
    """Whether nothing is there that was not before; what is there is put into `left`."""
    left.clear()
    left |= _look(hosts, name, uid) - before
    return not left


def _is_idle(hosts: VirtualHosts, name: str, uid: int) -> bool:
    """Zombies do not count: they have ended, and whoever started them has not looked yet."""
    for pid in list_processes(hosts, name, uid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
    return True


def _look(hosts: VirtualHosts, name: str, uid: int) -> set[str]:
    lines = hosts.run(name, "sh", "-c", _LOOK, "look", str(hosts.local_disk), str(uid)).splitlines()
    own = f"{hosts.local_disk}/"
    return {
        line for line in lines if not _NOTES.fullmatch(line) and (line.startswith(own) or not _OTHERS.fullmatch(line))
    }
