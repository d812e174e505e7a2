# SPDX-License-Identifier: BSD-3-Clause
"""Whether this host allows the namespaces of a container, and what forbids them if not."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, SKIPPED, WARNING, Finding, Surroundings
from kedge.base.frozen import frozen
from kedge.container.facts import HostFacts, find_user, is_privileged
from kedge.container.fuse_program import find_program
from kedge.container.mount_operations import mount_fuse, mount_kernel
from kedge.container.mounting import OTHER_NAMESPACES, check_kernel_mount, enter_other_namespaces, enter_user_namespace
from kedge.container.mounts.ext3 import needs_servers
from kedge.container.mounts.squashfuse import can_use_fuse, find_squashfuse
from kedge.container.options import RunOptions
from kedge.container.processes.fakeroot_emulation import prepare_emulation
from kedge.container.processes.subordinate_ids import STEP_IDS, find_helper, find_range, plan_maps
from kedge.container.start.start_errors import explain_refusal
from kedge.errors import LimitReached, ProgramFailed, UsageError
from kedge.system import libc
from kedge.system.bounded_children import ANSWERED, REFUSED, BoundedTask, run_bounded
from kedge.system.libc import MS_NODEV, MS_NOSUID
from kedge.system.views import DirectoryView

USER_NAMESPACES = "user-namespaces"
_MARKS = (".dockerenv", "run/.containerenv", ".singularity.d")
_VARIABLES = ("KEDGE_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def check_user_namespaces(surroundings: Surroundings) -> list[Finding]:
    """Create in a child what every container has: a user namespace, its map of users, a mount namespace."""
    return [judge_namespaces(try_namespaces(surroundings.environ), os.getuid(), Path(surroundings.root))]


def judge_namespaces(refused: KernelRefusal | None, uid: int, root: Path) -> Finding:
    """Explain the result of the trial."""
    if refused is None:
        return Finding(USER_NAMESPACES, OK, "allowed" if uid else "allowed (root's containers need no user namespace)")
    explained = explain_refusal(refused.problem, refused.step, root)
    cause = explained.message.partition(": ")[2]
    return Finding(
        USER_NAMESPACES,
        FAIL,
        f"not allowed: {cause} (kernel: {refused.words})",
        why="every container needs namespaces; kedge cannot start one without them",
        fix=f"{explained.hint}. Login nodes are often stricter than compute nodes: run 'kedge doctor' in a job, too",
        docs=f"kedge help doctor {USER_NAMESPACES}",
    )


def check_outer_container(surroundings: Surroundings) -> list[Finding]:
    """Check whether this shell runs inside a container, whose rules apply to nested containers."""
    root = Path(surroundings.root)
    name = "outer-container"
    variable = next((variable for variable in _VARIABLES if surroundings.environ.get(variable)), "")
    mark = next((path for path in _MARKS if (root / path).exists()), "")
    if not variable and not mark:
        return [Finding(name, OK, "none: this shell is not inside a container")]
    sign = f"/{mark} exists" if mark else f"{variable} is set"
    return [
        Finding(
            name,
            NOTE,
            f"this shell is inside a container ({sign})",
            why="the outer container's rules, mounts and limits apply, and programs of the host are not visible: the "
            "other findings are about the container, not the host",
            fix="to check the host, leave the container and run 'kedge doctor' again",
            docs=f"kedge help doctor {name}",
        )
    ]


# FUSE: whether a user can mount image files, and what kedge does if not.

_DEVICE = "/dev/fuse"
_INSTALL = "conda install -c conda-forge {0}, or ask the administrators for the package {0}"


def check_fuse(surroundings: Surroundings) -> list[Finding]:
    """Check /dev/fuse and squashfuse, and try a mount."""
    if is_privileged() and not check_kernel_mount():
        return [Finding("fuse", OK, "the kernel mounts SquashFS files for root")]
    refusal = can_use_fuse()
    refused = None if refusal else try_namespaces(surroundings.environ, _mount)
    return [judge_fuse(refusal, refused, find_squashfuse(dict(surroundings.environ))[0])]


def judge_fuse(refusal: str, refused: KernelRefusal | None, program: str) -> Finding:
    """Explain what does not work without FUSE."""
    if not refusal and (refused is None or refused.step != WORK):
        return Finding("fuse", OK, f"{_DEVICE} is usable; {program} mounts image files")
    reason = refusal or f"the kernel refuses the mount: {refused.words if refused else ''}"
    fix = "an administrator can load the module fuse and open /dev/fuse to all users (mode 0666)"
    if "squashfuse" in refusal:
        fix = _INSTALL.format("squashfuse")
    return Finding(
        "fuse",
        NOTE,
        f"image files cannot be mounted: {reason}",
        why="containers still run: kedge unpacks an image file on the node at its first use, which takes time and disk "
        "space; directories and images that are already unpacked are not affected",
        fix=f"unpack before the job's ranks start: kedge unpack IMAGE. To mount image files: {fix}",
        docs="kedge help doctor fuse",
    )


def check_overlay_files(surroundings: Surroundings) -> list[Finding]:
    """Check ext3 images as overlays: the kernel mounts them for root, fuse2fs for users."""
    del surroundings
    if not needs_servers():
        return [Finding("overlay-files", OK, "the kernel mounts ext3 images for root")]
    return [judge_overlay_files(find_program("fuse2fs"), has_device=os.access(_DEVICE, os.R_OK | os.W_OK))]


def judge_overlay_files(program: str, *, has_device: bool) -> Finding:
    """Explain what does not work without fuse2fs."""
    if program and has_device:
        return Finding("overlay-files", OK, f"{program} mounts ext3 images")
    return Finding(
        "overlay-files",
        NOTE,
        "ext3 images cannot be mounted: " + ("fuse2fs is not installed" if not program else f"no {_DEVICE}"),
        why="--overlay FILE.img does not work, the way to keep changes on Lustre, NFS and other network file systems; "
        "everything else works",
        fix="use a directory on the node's own disk: --overlay DIRECTORY. "
        "To mount ext3 images, install fuse2fs (in e2fsprogs; Debian: the package fuse2fs)",
        docs="kedge help doctor overlay-files",
    )


def _mount() -> None:
    """Mount FUSE on a directory without a server: only the kernel's permission matters."""
    cover_place()
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc.mount("kedge", PLACE, "fuse.kedge", MS_NOSUID | MS_NODEV, options)


# The kernel's version, which limits what containers can use.

_KERNEL_DOCS = "kedge help doctor kernel"


def check_kernel(surroundings: Surroundings) -> list[Finding]:
    """Check for old kernels: no overlay for users before 5.11, no usable user namespaces before 3.10."""
    del surroundings
    return [judge_kernel(os.uname().release)]


def judge_kernel(release: str) -> Finding:
    """Explain what this kernel lacks. Distributions backport features, so the other checks try them."""
    version = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if len(version) < 2:
        what, why = f"{release}: version unknown", "the other checks try the kernel's features and need no version"
        return Finding("kernel", NOTE, what, why=why, fix="no action needed", docs=_KERNEL_DOCS)
    if version < (3, 10):
        return Finding(
            "kernel",
            WARNING,
            release,
            why="kernels before 3.10 have no usable user namespaces, so containers need a setuid runtime",
            fix="use another node, or --runtime apptainer if it is installed",
            docs=_KERNEL_DOCS,
        )
    if version < (5, 11):
        return Finding(
            "kernel",
            OK,
            f"{release} (before 5.11: overlays without root need fuse-overlayfs or a backport of the distribution)",
        )
    return Finding("kernel", OK, release)


# Restrictions on processes: seccomp filters, and no_new_privs, which disables setuid programs.

_ACTIONS = "proc/sys/kernel/seccomp/actions_avail"


def check_seccomp(surroundings: Surroundings) -> list[Finding]:
    """Check whether --fakeroot can use a filter for users without subordinate ids."""
    root = Path(surroundings.root)
    mode = read_status(root, "Seccomp")
    with contextlib.suppress(OSError):
        if "errno" not in (root / _ACTIONS).read_text(errors="replace").split():
            mode = ""
    if not mode:
        return [_refuse("the kernel offers no seccomp filters")]
    if prepare_emulation(os.uname().machine) is None:
        return [_refuse(f"kedge has no filter for {os.uname().machine}")]
    outer = " (an outer container or service already filters this shell)" if mode == "2" else ""
    return [Finding("seccomp", OK, f"filters are usable{outer}")]


def _refuse(reason: str) -> Finding:
    return Finding(
        "seccomp",
        NOTE,
        f"filters are not usable: {reason}",
        why="--fakeroot without subordinate ids cannot emulate 'chown' and similar calls, so apt, dnf and tar fail; "
        "everything else works",
        fix="ask the administrators for subordinate ids (see the check 'subordinate-ids')",
        docs="kedge help doctor seccomp",
    )


def check_new_privileges(surroundings: Surroundings) -> list[Finding]:
    """Check no_new_privs: services and containers set it, and child processes cannot clear it."""
    if read_status(Path(surroundings.root), "NoNewPrivs") != "1":
        return [Finding("setuid-programs", OK, "setuid programs work")]
    return [
        Finding(
            "setuid-programs",
            NOTE,
            "setuid programs do not work in this shell (no_new_privs is set)",
            why="newuidmap (--fakeroot with many users), fusermount, sudo and a setuid Apptainer fail; kedge's own "
            "containers do not need them",
            fix="it cannot be cleared: use a shell started another way (ssh, not a service or a container)",
            docs="kedge help doctor setuid-programs",
        )
    ]


def read_status(root: Path, name: str) -> str:
    """Read a line of /proc/self/status; empty if there is none."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/status").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
    return ""


# Tries in a child process what a container would do, so that nothing of it remains.

USER_NAMESPACE = "a user namespace"
WORK = "the work itself"
PLACE = "/tmp"  # covered by memory in the child's own mount namespace: any directory that every machine has
_SECONDS = 5.0  # the check that tries has a deadline of its own, which is earlier


@frozen
class KernelRefusal:
    """The step that the kernel refused, and its error."""

    step: str
    number: int
    words: str

    @property
    def problem(self) -> OSError:
        """The refusal as the error of a container's start."""
        return OSError(self.number, self.words)


def try_namespaces(environ: Mapping[str, str], work: Callable[[], None] | None = None) -> KernelRefusal | None:
    """Create the namespaces of this user's containers and do `work` in them; None: it worked.

    An OSError of `work` is a refusal too. Raises if the trial itself was not possible.
    """
    outcome = run_bounded([BoundedTask("trial", partial(_try, environ, work), _SECONDS)], seconds=_SECONDS)["trial"]
    if outcome.state == ANSWERED:
        step, number, words = outcome.answer.decode(errors="replace").rstrip("\n").split("\t")
        return KernelRefusal(step, int(number), words) if step else None
    if outcome.state == REFUSED:
        raise LimitReached("cannot start another process for the check")
    raise ProgramFailed("the process of the check gave no answer")


def cover_place() -> None:
    """Mount an empty tmpfs on PLACE, inside the namespaces."""
    libc.mount("kedge", PLACE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")


def _try(environ: Mapping[str, str], work: Callable[[], None] | None) -> bytes:
    step = USER_NAMESPACE
    try:
        if os.getuid() != 0:  # root's containers have none
            host = HostFacts(view=DirectoryView("/"), environ=environ, uid=os.getuid(), gid=os.getgid())
            enter_user_namespace(host, as_root=False)
        step = OTHER_NAMESPACES
        enter_other_namespaces(RunOptions())
        step = WORK
        if work is not None:
            work()
    except OSError as problem:
        words = (problem.strerror or str(problem)).replace("\t", " ").replace("\n", " ")
        return f"{step}\t{problem.errno or errno.EIO}\t{words}".encode()
    return b"\t0\t"


# Whether --fakeroot works for a user of this host, and the command that administrators can run for more.


def advise(user: str, environ: Mapping[str, str], root: str = "/") -> Finding:
    """The doctor's finding about subordinate ids, for any user of this host."""
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError:
        raise UsageError(f"this host has no user '{user or os.getuid()}'", hint="list users: getent passwd") from None
    host = HostFacts(view=DirectoryView(root), environ=environ, uid=entry.pw_uid, gid=entry.pw_gid, user=entry.pw_name)
    return judge_subordinate_ids(host)


# Whether this host can mount an overlay: with the kernel (Linux 5.11 for users) or with fuse-overlayfs.

OVERLAY = "overlay"
_OVERLAY_DOCS = f"kedge help doctor {OVERLAY}"


def check_overlay(surroundings: Surroundings) -> list[Finding]:
    """Mount an overlay in a child: first with the kernel, then with fuse-overlayfs."""
    kernel = try_namespaces(surroundings.environ, lambda: _try_overlay(mount_kernel))
    fuse = try_namespaces(surroundings.environ, lambda: _try_overlay(mount_fuse)) if kernel is not None else None
    return [judge_overlay(kernel, fuse)]


def judge_overlay(kernel: KernelRefusal | None, fuse: KernelRefusal | None) -> Finding:
    """Explain the results of the two trials; None: it worked."""
    if kernel is None:
        return Finding(OVERLAY, OK, "the kernel mounts overlays")
    if kernel.step != WORK:
        why = "overlays are mounted inside namespaces, and this host does not allow those"
        return Finding(
            OVERLAY, SKIPPED, "cannot be tried", why=why, fix="see the check 'user-namespaces'", docs=_OVERLAY_DOCS
        )
    if fuse is None:
        return Finding(
            OVERLAY,
            NOTE,
            f"the kernel refuses overlays ({kernel.words}); kedge uses fuse-overlayfs, which works",
            why="containers start some milliseconds later, and writing to --overlay is slower",
            fix="no action needed; Linux 5.11 and newer let users mount overlays",
            docs=_OVERLAY_DOCS,
        )
    return Finding(
        OVERLAY,
        WARNING,
        f"the kernel refuses overlays ({kernel.words}), and fuse-overlayfs does not work ({fuse.words})",
        why="read-only containers run without overlays, but --overlay, --writable-tmpfs and installing packages with "
        "--fakeroot do not work",
        fix="install fuse-overlayfs (conda install -c conda-forge fuse-overlayfs, or ask the administrators), or use a "
        "node with Linux 5.11 or newer",
        docs=_OVERLAY_DOCS,
    )


def _try_overlay(mount: Callable[[list[str], str, str, str], None]) -> None:
    cover_place()
    lower, upper, work, target = (f"{PLACE}/{name}" for name in ("lower", "upper", "work", "root"))
    for directory in (lower, upper, work, target):
        Path(directory).mkdir()
    mount([lower], upper, work, target)


# Subordinate ids: whether --fakeroot and the steps of builds have all users of an image, or root alone.

SUBORDINATE_IDS = "subordinate-ids"
_FIRST, _COUNT = 100000, 65536  # as useradd gives them


def check_subordinate_ids(surroundings: Surroundings) -> list[Finding]:
    """Check newuidmap, newgidmap, and the user's lines in /etc/subuid and /etc/subgid."""
    uid = os.getuid()
    view = DirectoryView(surroundings.root)
    host = HostFacts(view=view, environ=surroundings.environ, uid=uid, gid=os.getgid(), user=find_user(uid)[0])
    return [judge_subordinate_ids(host)]


def _find_free_range(host: HostFacts) -> str:
    """The first 65536 ids after all ranges in /etc/subuid and /etc/subgid, as usermod takes them."""
    ends = [_FIRST]
    for table in ("/etc/subuid", "/etc/subgid"):
        for line in (host.view.read(table) or b"").decode(errors="replace").splitlines():
            start, _, count = line.partition(":")[2].partition(":")
            if start.isdigit() and count.isdigit():
                ends.append(int(start) + int(count))
    return f"{max(ends)}-{max(ends) + _COUNT - 1}"


def judge_subordinate_ids(host: HostFacts) -> Finding:
    """Explain what --fakeroot offers this user."""
    if host.uid == 0:
        return Finding(SUBORDINATE_IDS, OK, "root needs none")
    if plan_maps(host, 0):
        count = find_range(host.view.read("/etc/subuid") or b"", host)[1]
        who = "--fakeroot and builds have all users of an image"
        if not plan_maps(host, 0, exactly=STEP_IDS - 1):
            who = f"--fakeroot has the users of an image; builds need {STEP_IDS - 1} ids, and emulate users"
        return Finding(SUBORDINATE_IDS, OK, f"{count} ids for {host.user}: {who}")
    missing = [name for name in ("newuidmap", "newgidmap") if not find_helper(name, host.view.is_executable)]
    if missing:
        reason = f"{' and '.join(missing)} are not installed" if missing[1:] else f"{missing[0]} is not installed"
        fix = "install the package uidmap (Debian, Ubuntu) or shadow-utils (RHEL, SUSE)"
    else:
        reason = f"/etc/subuid or /etc/subgid has no range of 1000 or more for {host.user}"
        free = _find_free_range(host)
        fix = f"an administrator can assign a free range: usermod --add-subuids {free} --add-subgids {free} {host.user}"
    return Finding(
        SUBORDINATE_IDS,
        NOTE,
        f"none: {reason}",
        why="--fakeroot has root as its only user; apt, dnf and tar still work, because kedge lets 'chown' and similar "
        "calls succeed without effect",
        fix=f"no action needed to run images. To install packages with all their users: {fix}",
        docs=f"kedge help doctor {SUBORDINATE_IDS}",
    )
