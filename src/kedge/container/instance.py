# SPDX-License-Identifier: BSD-3-Clause
"""Instances: containers with a name that run in the background, until they are stopped."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.container.facts import ImageFacts, gather_host, read_memory
from kedge.container.mounting import HostRoot
from kedge.container.options import CONTAINER_SETTINGS, VENDORS, settle_options
from kedge.container.processes.instance_records import Instance, InstanceDirectory, check_name
from kedge.container.processes.join_namespaces import join_namespaces
from kedge.container.processes.rank_sharing import shapes_container
from kedge.container.processes.supervise import run_supervised
from kedge.container.start import joined_container as inside  # after joining, nothing of the host can be imported
from kedge.container.start_container import add_fakeroot_namespaces, become, choose_restrictions, end_with
from kedge.errors import InstanceProblem, RuntimeUnsuited
from kedge.system.files import explained, write_atomically
from kedge.system.host.cgroups import find_least, read_hierarchies
from kedge.system.host.limits import MEMORY_FILES
from kedge.system.process_tree import Process, count_memory, list_processes
from kedge.system.spawn import start_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kedge.container.options import RunOptions
    from kedge.container.processes.rank_sharing import Sharing

    Say = Callable[[str, str], None]

_SCHEME = "instance://"
_KEPT_OPTIONS = (  # programs that enter later need them too
    *(switch.attribute for vendor in VENDORS for switch in vendor.on),
    *("device", "cdi_dirs", "fakeroot", "contain"),
)
_GLANCE = 0.1  # seconds: a start script that fails at once is said at once


def start_instance(options: RunOptions, name: str, environ: Mapping[str, str], say: Say) -> Instance:
    """Start a container that stays; returns when its program has started."""
    check_name(name)
    if options.is_foreign:
        raise RuntimeUnsuited(
            f"{options.runtime} cannot start instances for kedge",
            context={"runtime": options.runtime},
            hint=f"leave out {options.given.get('runtime', '--runtime')}, or call {options.runtime} directly",
        )
    settle_options(options, environ, CONTAINER_SETTINGS)
    options.instance = name
    folder = InstanceDirectory(environ)
    options.pid = True
    own = os.getpid()
    outputs = folder.logs_of(name)
    instance = Instance(name, own, start_of(own), log_out=str(outputs[0]), log_err=str(outputs[1]))
    folder.claim(instance)
    try:
        return _start_claimed(options, folder, instance, say)
    except BaseException as problem:
        folder.remove(instance)
        _add_log(problem, outputs[1])
        raise


def _start_claimed(options: RunOptions, folder: InstanceDirectory, instance: Instance, say: Say) -> Instance:
    # late, both: commands in an instance need none of it
    from kedge.container.detach import start_detached
    from kedge.container.services import StartServices

    logs = [_open_log(Path(path)) for path in (instance.log_out, instance.log_err)]
    try:
        started = start_detached(options, say, StartServices, logs[0], logs[1])
    finally:
        for log in logs:
            os.close(log)
    running = replace(
        instance,
        pid=started.pid,
        start=start_of(started.pid),
        state="running",
        image=started.image,
        kind=started.kind,
        options={name: getattr(options, name) for name in _KEPT_OPTIONS if getattr(options, name)},
        overlay=_find_overlay(options),
        passing=started.passing,
    )
    try:
        if options.pid_file:
            _write_pid_file(Path(options.pid_file), running)
        folder.write(running)
        _warn_of_failure(running, say)
    except BaseException:
        started.give_up()
        folder.remove(running)
        raise
    started.keep()
    return running


def _find_overlay(options: RunOptions) -> str:
    """The overlay that keeps the instance's changes, for `kedge commit`; empty where there is none."""
    paths = [text.removesuffix(":rw") for text in options.overlay if not text.endswith(":ro")]
    return str(Path(paths[-1]).absolute()) if paths else ""


def _open_log(path: Path) -> int:
    """A fresh log: what an earlier instance of that name said is not this one's."""
    with explained(path):
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _add_log(problem: BaseException, path: Path) -> None:
    said = _read_tail(path)
    if said and hasattr(problem, "context"):
        problem.context.setdefault("log", said)


def _warn_of_failure(instance: Instance, say: Say) -> None:
    """The instance stays when its script has ended, but one that ended with complaints is worth a word."""
    time.sleep(_GLANCE)
    said = _read_tail(Path(instance.log_err))
    if said and not _has_children(instance.pid):
        say("warn", f"the script of instance '{instance.name}' has already ended; its last output:\n{said}")


def _read_tail(path: Path, limit: int = 1000) -> str:
    """The end of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read(limit).decode(errors="replace").strip()
    except OSError:
        return ""


def _write_pid_file(path: Path, instance: Instance) -> None:
    """The number of the first process, for whoever watches it."""
    write_atomically(path, f"{instance.pid}\n".encode())  # in place of a link that another user left in /tmp


def run_in_instance(options: RunOptions, say: Say) -> int:
    """Become a program in a running instance."""
    settle_options(options, os.environ, ("keep",))
    instance = _find_any(options.image.removeprefix(_SCHEME))
    for name, flag in options.given.items():
        if shapes_container(name) and name not in _KEPT_OPTIONS:
            say("warn", f"{flag} is ignored: instance '{instance.name}' keeps the options it was started with")
    for name, value in instance.options.items():
        setattr(options, name, value)
    if options.dry_run:
        say("out", f"enter instance '{instance.name}' of {instance.image} (process {instance.pid})")
        return 0
    options.instance = instance.name
    joined = _Joined(instance, options)
    try:
        if join_namespaces(instance.pid, start=instance.start):
            joined.enter()
            run_supervised(lambda: end_with(joined.start(options, say)), with_init=False)
        joined.enter()
        return joined.start(options, say)
    except BaseException:
        joined.host_root.restore_if_inside()
        raise


def _find_any(name: str) -> Instance:
    """The instance of this name; `pid:NUMBER` is the container that a process is in."""
    number = name.removeprefix("pid:")
    if number == name or not number.isdecimal():
        return InstanceDirectory(os.environ).find(name)
    start = start_of(int(number))
    if start <= 0:
        raise InstanceProblem(f"there is no process {number}", hint="to list running containers: enroot list --fancy")
    return Instance(name, int(number), start, image=name)


class _Joined:
    """This process on its way into an instance; made before it joins."""

    def __init__(self, instance: Instance, options: RunOptions) -> None:
        self.instance = instance
        self.host = gather_host(os.environ)
        self.host_root = HostRoot()
        self.sharing: Sharing | None = None
        self.restrictions = choose_restrictions(options, self.host)
        self._inside: inside.JoinedContainer | None = None

    def enter(self) -> None:
        """Remember the container's root, and look out of it."""
        self._inside = inside.JoinedContainer(self.host_root)

    def start(self, options: RunOptions, say: Say) -> int:
        """Become the program."""
        assert self._inside is not None
        if options.fakeroot:
            add_fakeroot_namespaces(self)
        image = ImageFacts(view=self.host.view, path=self.instance.image, kind=self.instance.kind)
        payload = self._inside.plan(options, self.host, image, say)
        self.restrictions.emulate = self._inside.emulate
        return become(self, payload)


def find_instance(environ: Mapping[str, str], name: str) -> Instance:
    """Return an instance that runs; raises InstanceProblem where there is none."""
    return InstanceDirectory(environ).find(name)


def list_instances(environ: Mapping[str, str], pattern: str = "*") -> list[Instance]:
    """Return the instances that run on this host, by name."""
    return InstanceDirectory(environ).list(pattern)


def stop_instances(
    environ: Mapping[str, str], pattern: str, *, number: int = signal.SIGINT, patience: float = 10
) -> list[tuple[Instance, bool]]:
    """Ask them to end, and end them when they do not; returns each with whether it had to be killed."""
    folder = InstanceDirectory(environ)
    found = folder.list(pattern)
    if not found:
        others = ", ".join(instance.name for instance in folder.list()) or "none"
        which = "instance" if pattern == "*" else f"instance '{pattern}'"
        raise InstanceProblem(f"no {which} runs on {os.uname().nodename}", hint=f"running instances: {others}")
    for instance in found:
        _send(instance, number)
    end = time.monotonic() + patience
    for instance in found:
        if number == signal.SIGINT and not _wait_for_end(instance, time.monotonic() + _GLANCE) and _is_deaf(instance):
            _send(instance, signal.SIGTERM)
    stopped = []
    for instance in found:
        was_killed = not _wait_for_end(instance, end)
        if was_killed:
            _send(instance, signal.SIGKILL)
            _wait_for_end(instance, time.monotonic() + 10)
        _forget(folder, instance)
        stopped.append((instance, was_killed and number != signal.SIGKILL))
    return stopped


def _forget(folder: InstanceDirectory, instance: Instance) -> None:
    """Remove what was made for an instance that has ended."""
    if instance.passing:
        from kedge.container.start.temporary_image import remove_temporary_image  # late: only with --disable-cache

        remove_temporary_image(instance.passing)
    folder.remove(instance)


def _is_deaf(instance: Instance) -> bool:
    """Whether all that still runs in it ignores SIGINT, as whatever a script starts in the background does."""
    masks = []
    try:
        children = _list_children(instance.pid)
    except OSError:
        return False
    for child in children:
        try:
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
        except OSError:
            continue  # it has just ended
        masks += [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")]
    return bool(masks) and all(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


def _wait_for_end(instance: Instance, end: float) -> bool:
    """Whether an instance ended in time. Its first process stays when its program is gone: then it is ended."""
    while instance.lives:
        if not _has_children(instance.pid):
            _send(instance, signal.SIGKILL)
        elif time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _send(instance: Instance, number: int) -> None:
    """Send a signal to the first process, and to no other that has its number now."""
    try:
        process = os.pidfd_open(instance.pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError):  # older than Linux 5.3, or a Python that was built on one
        if instance.lives:
            os.kill(instance.pid, number)
        return
    try:
        if instance.lives:
            signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return
    finally:
        os.close(process)


def _has_children(pid: int) -> bool:
    try:
        return bool(_list_children(pid))
    except FileNotFoundError:
        return start_of(pid) > 0  # a kernel that does not tell: only time does
    except OSError:
        return False


def _list_children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def find_logs(environ: Mapping[str, str], name: str) -> tuple[Path, Path]:
    """The logs of an instance, standard output first; it may have ended."""
    paths = InstanceDirectory(environ).logs_of(check_name(name))
    if not all(path.is_file() for path in paths):
        raise InstanceProblem(
            f"no logs of instance '{name}' on {os.uname().nodename}",
            hint="list running instances: kedge instance list",
        )
    return paths


# What an instance uses: counted over its processes, so that no control group is needed.

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class InstanceUsage:
    """One look at an instance."""

    when: float
    cpu: float  # seconds since the instance began, of processes that live and those they waited for
    memory: int  # bytes, with what processes share counted once
    limit: int  # bytes that it may use
    read: int  # bytes from disks, of living processes
    written: int
    processes: int

    def cpu_share(self, before: InstanceUsage) -> float:
        """How many processors were busy since an earlier look, in percent of one."""
        return 100 * max(0.0, self.cpu - before.cpu) / max(1e-3, self.when - before.when)


def measure(instance: Instance) -> InstanceUsage:
    """Look at all processes of an instance now."""
    family = _list_members(instance.pid)
    blocks = [_read_blocks(process.pid) for process in family]
    return InstanceUsage(
        when=time.monotonic(),
        cpu=sum(_read_seconds(process.pid) for process in family),
        memory=count_memory(family),
        limit=_find_limit(instance.pid),
        read=sum(block[0] for block in blocks),
        written=sum(block[1] for block in blocks),
        processes=len(family),
    )


def _list_members(first: int) -> list[Process]:
    """Return all processes in a process-id namespace: programs that entered later descend from who sent them."""
    space = _find_space(first)
    alive = [process for process in list_processes() if not process.is_dead]
    return [process for process in alive if space and _find_space(process.pid) == space]


def _find_space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""  # it ended meanwhile, or is another user's


def _read_seconds(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS  # own and waited-for, user and system
    except (OSError, ValueError):
        return 0.0  # it ended meanwhile


def _read_blocks(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
        return int(fields[b"read_bytes"]), int(fields[b"write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0, 0  # the kernel does not tell others, as for programs of other users


def _find_limit(pid: int) -> int:
    """The least of what control groups allow the instance and what the host has."""
    least = find_least(read_hierarchies(process=str(pid)), MEMORY_FILES, "memory")
    return min(least[0], read_memory()) if least else read_memory()
