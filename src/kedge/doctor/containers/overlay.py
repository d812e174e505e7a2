# SPDX-License-Identifier: BSD-3-Clause
"""Whether an overlay can be put over an image: by the kernel (Linux 5.11 for users), by fuse-overlayfs, or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kedge.doctor.containers.trial import PLACE, WORK, KernelRefusal, cover_place, try_namespaces
from kedge.doctor.finding import NOTE, OK, SKIPPED, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.runtime.mounts.overlay_mount import mount_fuse, mount_kernel

NAME = "overlay"
_DOCS = f"kedge help doctor {NAME}"


def check_overlay(surroundings: Surroundings) -> list[Finding]:
    """Mount one in a child: first the kernel's, then fuse-overlayfs."""
    kernel = try_namespaces(surroundings.environ, lambda: _mount(mount_kernel))
    fuse = try_namespaces(surroundings.environ, lambda: _mount(mount_fuse)) if kernel is not None else None
    return [judge_overlay(kernel, fuse)]


def judge_overlay(kernel: KernelRefusal | None, fuse: KernelRefusal | None) -> Finding:
    """What the two trials mean; None: it worked."""
    if kernel is None:
        return Finding(NAME, OK, "the kernel's works")
    if kernel.step != WORK:
        why = "an overlay is mounted inside of namespaces, and those cannot be made"
        return Finding(NAME, SKIPPED, "cannot be tried", why, "see user-namespaces", _DOCS)
    if fuse is None:
        return Finding(
            NAME,
            NOTE,
            f"the kernel's is refused ({kernel.words}); fuse-overlayfs works and is used",
            "starts take some milliseconds more, and writing into --overlay is slower",
            "none is needed; Linux 5.11 and newer let users mount overlays",
            _DOCS,
        )
    return Finding(
        NAME,
        WARNING,
        f"the kernel's is refused ({kernel.words}), and fuse-overlayfs cannot be used ({fuse.words})",
        "read-only containers run without it (mount points are made by binds), but --overlay and --writable-tmpfs do "
        "not work, nor does installing packages with --fakeroot",
        "install fuse-overlayfs (conda install -c conda-forge fuse-overlayfs, or the administrators), or use a node "
        "with Linux 5.11 or newer",
        _DOCS,
    )


def _mount(mount: Callable[[list[str], str, str, str], None]) -> None:
    cover_place()
    lower, upper, work, target = (f"{PLACE}/{name}" for name in ("lower", "upper", "work", "root"))
    for folder in (lower, upper, work, target):
        Path(folder).mkdir()
    mount([lower], upper, work, target)
