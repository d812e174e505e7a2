# SPDX-License-Identifier: BSD-3-Clause
"""`kedge unpack IMAGE...`: make images ready on this node, so that containers start from a folder on its disk."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console

POLICIES = ("missing", "newer", "always", "never")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options that a run passes on, too."""
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="a SIF or SquashFS file, docker://NAME, oci:PATH …")
    parser.add_argument(
        "--pull",
        choices=POLICIES,
        default="missing",
        help="ask the registry: when the image is missing here, whether it is newer there, always (and unpack it "
        "again), or never",
    )
    add_login(parser)
    add_settings(
        parser, "architecture", "threads", "disable_cache", "cache_directory", "temporary_directory", "node_directory",
        "node_limit", "no_https", "library_url", "ca_bundle", "download_connections", "retries",
        "stall_timeout", "minimum_speed",
    )  # fmt: skip


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Unpack one after the other; standard output stays empty without --json."""
    from kedge.model.reference import Reference
    from kedge.ops.unpack import unpack
    from kedge.ops.workplace import Workplace

    done = []
    for text in arguments.images:
        access = read_access(arguments, console, Reference.parse(text))
        workplace = Workplace(console.settings, console.progress, access)
        unpacked = unpack(text, workplace, policy=arguments.pull)
        done.append(unpacked)
        how = f"unpacked in {unpacked.seconds:.1f} s" if unpacked.is_new else "is there"
        console.progress.detail(f"{unpacked.reference}: {unpacked.root} ({how})")
    if console.json:
        console.print_json([each.as_dict() for each in done])
    return 0
