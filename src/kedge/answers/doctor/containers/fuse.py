# SPDX-License-Identifier: BSD-3-Clause
"""FUSE: whether a user can mount image files, and what kedge does if not."""

from __future__ import annotations

import os

from kedge.answers.doctor.containers.trial import PLACE, WORK, KernelRefusal, cover_place, try_namespaces
from kedge.answers.doctor.finding import NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.facts import is_privileged
from kedge.container.fuse_program import find_program
from kedge.container.mounting import check_kernel_mount
from kedge.container.mounts.ext3 import needs_servers
from kedge.container.mounts.squashfuse import can_use_fuse, find_squashfuse
from kedge.system import libc
from kedge.system.libc import MS_NODEV, MS_NOSUID

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
