# SPDX-License-Identifier: BSD-3-Clause
"""Whether this host can mount an overlay: with the kernel (Linux 5.11 for users) or with fuse-overlayfs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kedge.answers.doctor.containers.trial import PLACE, WORK, KernelRefusal, cover_place, try_namespaces
from kedge.answers.doctor.finding import NOTE, OK, SKIPPED, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.mount_operations import mount_fuse, mount_kernel

NAME = "overlay"
_DOCS = f"kedge help doctor {NAME}"


def check_overlay(surroundings: Surroundings) -> list[Finding]:
    """Mount an overlay in a child: first with the kernel, then with fuse-overlayfs."""
    kernel = try_namespaces(surroundings.environ, lambda: _mount(mount_kernel))
    fuse = try_namespaces(surroundings.environ, lambda: _mount(mount_fuse)) if kernel is not None else None
    return [judge_overlay(kernel, fuse)]


def judge_overlay(kernel: KernelRefusal | None, fuse: KernelRefusal | None) -> Finding:
    """Explain the results of the two trials; None: it worked."""
    if kernel is None:
        return Finding(NAME, OK, "the kernel mounts overlays")
    if kernel.step != WORK:
        why = "overlays are mounted inside namespaces, and this host does not allow those"
        return Finding(NAME, SKIPPED, "cannot be tried", why=why, fix="see the check 'user-namespaces'", docs=_DOCS)
    if fuse is None:
        return Finding(
            NAME,
            NOTE,
            f"the kernel refuses overlays ({kernel.words}); kedge uses fuse-overlayfs, which works",
            why="containers start some milliseconds later, and writing to --overlay is slower",
            fix="no action needed; Linux 5.11 and newer let users mount overlays",
            docs=_DOCS,
        )
    return Finding(
        NAME,
        WARNING,
        f"the kernel refuses overlays ({kernel.words}), and fuse-overlayfs does not work ({fuse.words})",
        why="read-only containers run without overlays, but --overlay, --writable-tmpfs and installing packages with "
        "--fakeroot do not work",
        fix="install fuse-overlayfs (conda install -c conda-forge fuse-overlayfs, or ask the administrators), or use a "
        "node with Linux 5.11 or newer",
        docs=_DOCS,
    )


def _mount(mount: Callable[[list[str], str, str, str], None]) -> None:
    cover_place()
    lower, upper, work, target = (f"{PLACE}/{name}" for name in ("lower", "upper", "work", "root"))
    for directory in (lower, upper, work, target):
        Path(directory).mkdir()
    mount([lower], upper, work, target)
