# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pull [OUTPUT] REFERENCE`: from the name of an image to a file that runs."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_dry_run, add_settings, add_verify
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.pull import Pulled

FORMS = ("sif", "squashfs", "sandbox", "oci", "oci-archive", "docker-archive")

_ONLY_REFERENCES = ("host", "docker-daemon", "containers-storage", "library")  # schemes that no output has
_ENDINGS = (".sif", ".sqsh", ".squashfs")  # of files that a pull writes, and of no name in a registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Apptainer's options, and the formats that only kedge writes."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[OUTPUT] REFERENCE",
        help="OUTPUT is a file name or FORMAT:PATH[:TAG]; REFERENCE without a scheme is docker://",
    )
    parser.add_argument("--format", choices=FORMS, help="output format (default: as OUTPUT says, else sif)")
    parser.add_argument("--sandbox", action="store_const", const="sandbox", dest="format", help="write a directory")
    parser.add_argument("--name", help="output name, the same as OUTPUT")
    parser.add_argument("-F", "--force", action="store_true", help="replace an existing output")
    parser.add_argument("--fix-perms", action="store_true", help="give the owner rwX on everything in the image")
    add_verify(parser)
    parser.add_argument("--if-missing", action="store_true", help="do nothing if the output exists")
    parser.add_argument("--offline", action="store_true", help="use the cache only, no network")
    parser.add_argument(
        "-U", "--allow-unsigned", "--allow-unauthenticated", action="store_true", help=argparse.SUPPRESS
    )
    parser.add_argument("--plain-name", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--last-wins", action="store_true", help=argparse.SUPPRESS)
    add_login(parser)
    add_settings(
        parser, "architecture", "pull_directory", "compression", "threads", "disable_cache", "cache_directory",
        "temporary_directory", "no_https", "library_url", "ca_bundle", "download_connections", "retries",
        "stall_timeout", "minimum_speed", "cache_limit",
        "link_mode",
    )  # fmt: skip
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Pull, and report the result."""
    from kedge.base.image_format import ImageFormat
    from kedge.base.reference import Reference
    from kedge.image.output_name import ImageOutput, read_output
    from kedge.image.pull import PullRequest, pull
    from kedge.image.workplace import Workplace

    if len(arguments.words) > 2:
        raise UsageError("pull takes one reference, and an output before it", hint="kedge pull [OUTPUT] REFERENCE")
    if len(arguments.words) == 2:
        _refuse_swapped(*arguments.words)
    reference = Reference.parse(arguments.words[-1])
    output = arguments.words[0] if len(arguments.words) == 2 else arguments.name
    form = ImageFormat(arguments.format) if arguments.format else None
    target = read_output(output, form) if output else ImageOutput(Path(), form)
    request = PullRequest(
        reference=reference,
        output=target.path if output else None,
        form=target.form or ImageFormat.SIF,
        force=arguments.force,
        offline=arguments.offline,
        tag=target.tag,
        if_missing=arguments.if_missing,
        last_wins=arguments.last_wins,
        plain_name=arguments.plain_name,
    )
    access = read_access(arguments, console, reference)
    workplace = Workplace(console.settings, console.progress, access, arguments.fix_perms, arguments.verify)
    pulled = pull(request, workplace, dry_run=console.dry_run)
    if console.json:
        console.print_json(pulled.as_dict())
    else:
        _say(pulled, console)
    return 0


def _refuse_swapped(first: str, second: str) -> None:
    """Refuse a reference in the place of the output; `oci:PATH` and its kind are outputs, too."""
    is_reference = "://" in first or first.partition(":")[0].lower() in _ONLY_REFERENCES
    is_missing = second.endswith(_ENDINGS) and "://" not in second and not Path(second).exists()
    if not is_reference and (first.endswith(_ENDINGS) or not is_missing):
        return
    is_swapped = "://" not in second and second.partition(":")[0].lower() not in _ONLY_REFERENCES
    raise UsageError(
        f"'{first}' is given as the output, but it is a reference",
        hint=f"the output comes first: kedge pull {shlex.quote(second)} {first}"
        if is_swapped
        else "pull one image at a time: kedge pull [OUTPUT] REFERENCE",
    )


def _say(pulled: Pulled, console: Console) -> None:
    from kedge.base.size import format_size

    if not console.dry_run:
        size = f", {format_size(pulled.size)}" if pulled.size else ""
        console.progress.note(f"{pulled.output} ({pulled.how}{size})")
        return
    console.print(f"reference  {pulled.reference}")
    console.print(f"digest     {pulled.digest or 'unknown until it is downloaded'}")
    console.print(f"platform   {pulled.platform or 'this host'}")
    for digest, length in pulled.layers:
        console.print(f"layer      {digest[:19]}  {format_size(length)}")
    console.print(f"download   {format_size(pulled.download)}")
    console.print(f"output     {pulled.output} ({pulled.form}, {pulled.how})")
