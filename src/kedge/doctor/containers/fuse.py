# SPDX-License-Identifier: BSD-3-Clause
"""FUSE: whether image files can be mounted by a user, and what is done instead."""

from __future__ import annotations

import os

from kedge.doctor.containers.trial import PLACE, WORK, KernelRefusal, cover_place, try_namespaces
from kedge.doctor.finding import NOTE, OK, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.posix import libc
from kedge.posix.constants import MS_NODEV, MS_NOSUID
from kedge.runtime.images.mount_or_unpack import check_kernel_mount
from kedge.runtime.mounts.ext3 import needs_servers
from kedge.runtime.mounts.fuse_program import find_program, is_privileged
from kedge.runtime.mounts.squashfuse import can_use_fuse, find_squashfuse

_DEVICE = "/dev/fuse"
_INSTALL = "conda install -c conda-forge {0}, or ask the administrators for the package {0}"


def check_fuse(surroundings: Surroundings) -> list[Finding]:
    """/dev/fuse, squashfuse, and a mount with them by trying."""
    if is_privileged() and not check_kernel_mount():
        return [Finding("fuse", OK, "the kernel mounts SquashFS files for root")]
    refusal = can_use_fuse()
    refused = None if refusal else try_namespaces(surroundings.environ, _mount)
    return [judge_fuse(refusal, refused, find_squashfuse(dict(surroundings.environ))[0])]


def judge_fuse(refusal: str, refused: KernelRefusal | None, program: str) -> Finding:
    """What it means that FUSE cannot be had."""
    if not refusal and (refused is None or refused.step != WORK):
        return Finding("fuse", OK, f"{_DEVICE} can be used; {program} mounts image files")
    reason = refusal or f"mounting is refused: {refused.words if refused else ''}"
    fix = "an administrator can load the module fuse and give everybody /dev/fuse (mode 0666)"
    if "squashfuse" in refusal:
        fix = _INSTALL.format("squashfuse")
    return Finding(
        "fuse",
        NOTE,
        f"image files cannot be mounted: {reason}",
        "containers run all the same: an image file is unpacked on the node at its first use, which takes time and "
        "room there; a directory, or an image that is unpacked already, needs nothing",
        f"unpack before the job's ranks start: kedge unpack IMAGE. To mount them: {fix}",
        "kedge help doctor fuse",
    )


def check_overlay_files(surroundings: Surroundings) -> list[Finding]:
    """ext3 images as layers: the kernel mounts them for root, fuse2fs for users."""
    del surroundings
    if not needs_servers():
        return [Finding("overlay-files", OK, "the kernel mounts ext3 images for root")]
    return [judge_overlay_files(find_program("fuse2fs"), has_device=os.access(_DEVICE, os.R_OK | os.W_OK))]


def judge_overlay_files(program: str, *, has_device: bool) -> Finding:
    """What it means that fuse2fs cannot be had."""
    if program and has_device:
        return Finding("overlay-files", OK, f"{program} mounts ext3 images")
    return Finding(
        "overlay-files",
        NOTE,
        "ext3 images cannot be mounted: " + ("fuse2fs is not installed" if not program else f"no {_DEVICE}"),
        "--overlay FILE.img does not work, which is how changes are kept on Lustre, NFS and their kind; everything "
        "else does",
        "use a directory on the node's own disk as overlay: --overlay FOLDER. "
        "fuse2fs is in e2fsprogs (Debian: the package fuse2fs)",
        "kedge help doctor overlay-files",
    )


def _mount() -> None:
    """FUSE on a directory, served by nobody: the kernel's yes or no is all that is asked."""
    cover_place()
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc.mount("kedge", PLACE, "fuse.kedge", MS_NOSUID | MS_NODEV, options)
