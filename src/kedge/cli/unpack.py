# SPDX-License-Identifier: BSD-3-Clause
"""`kedge unpack IMAGE...`: unpack images on this node, so that containers start from a directory on its disk."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kedge.base.setting_values import PULL_POLICIES
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options; `kedge exec` passes them on."""
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="a SIF or SquashFS file, docker://NAME, oci:PATH …")
    parser.add_argument(
        "--pull",
        choices=PULL_POLICIES,
        default="auto",
        help="when to ask the registry: auto (default; for tags, at most every two minutes), missing (if the image "
        "is not on this node), newer (now), always (and unpack again), never",
    )
    # not for users: a start gives a descriptor, and reads from it what to mount if nothing can be unpacked
    parser.add_argument("--or-mount", type=int, metavar="FD", help=argparse.SUPPRESS)
    parser.add_argument("--once", default="", metavar="NAME", help=argparse.SUPPRESS)  # as above: for one start alone
    add_login(parser)
    add_settings(
        parser, "architecture", "threads", "disable_cache", "cache_directory", "temporary_directory", "node_directory",
        "node_limit", "no_https", "library_url", "ca_bundle", "download_connections", "retries",
        "stall_timeout", "minimum_speed",
    )  # fmt: skip


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Unpack one after the other; standard output stays empty without --json."""
    from kedge.base.reference import Reference
    from kedge.image.unpack import unpack
    from kedge.image.workplace import Workplace

    if arguments.or_mount is not None:
        return _unpack_or_mount(arguments, console)
    done = []
    for text in arguments.images:
        access = read_access(arguments, console, Reference.parse(text))
        workplace = Workplace(console.settings, console.progress, access)
        unpacked = unpack(text, workplace, policy=arguments.pull, once=arguments.once)
        done.append(unpacked)
        how = f"unpacked in {unpacked.seconds:.1f} s" if unpacked.is_new else "already there"
        console.progress.detail(f"{unpacked.reference}: {unpacked.root} ({how})")
    if console.json:
        console.print_json([image.as_dict() for image in done])
    return 0


def _unpack_or_mount(arguments: argparse.Namespace, console: Console) -> int:
    """Unpack one image for a start, or name the file that squashfuse can mount instead."""
    from kedge.base.reference import Reference
    from kedge.errors import FileProblem, NoSpace
    from kedge.image.unpack import unpack
    from kedge.image.workplace import Workplace

    (text,) = arguments.images
    access = read_access(arguments, console, Reference.parse(text))
    workplace = Workplace(console.settings, console.progress, access)
    try:
        unpack(text, workplace, policy=arguments.pull)
    except (NoSpace, FileProblem) as problem:
        from kedge.image.unpack import find_mountable

        path = find_mountable(text, workplace, problem, policy=arguments.pull)
        os.write(arguments.or_mount, os.fsencode(path))
    return 0
