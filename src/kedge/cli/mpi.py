# SPDX-License-Identifier: BSD-3-Clause
"""`kedge mpi`: which MPI an image and this host have, and which ways to start ranks in containers work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cluster.mpi import MODES, MpiFacts
from kedge.errors import LaunchRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kedge.cli.console import Console
    from kedge.cluster.mpi import MpiHost, MpiImage
    from kedge.compat.check_mpi import MpiCheck

_ALL = "all"
_IMAGE = "SIF file, directory or reference; of a reference only the config is read"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    show = commands.add_parser("show", help="Show the MPIs of an image, or of this host")
    show.add_argument("image", metavar="IMAGE", nargs="?", help=f"{_IMAGE} (default: this host)")
    show.add_argument("--run", action="store_true", help="also ask the library itself, in a container")
    check = commands.add_parser("check", help="Check how ranks of an image can be started from this host")
    check.add_argument("image", metavar="IMAGE", help=_IMAGE)
    check.add_argument(
        "--mode",
        choices=(*MODES, _ALL),
        default=_ALL,
        help="check one way: the host's mpirun (hybrid), the host's MPI in the container (bind), srun alone (pmi), "
        f"the image's mpirun on one node (contained); exit with {LaunchRefused.exit_code} if it fails (default: all)",
    )
    check.add_argument("--nodes", metavar="N", type=int, help="number of nodes of the launch")
    for command in (show, check):
        command.add_argument(
            "--program", metavar="PROGRAM", default="", help="the MPI that this program of the image uses"
        )
        command.add_argument("--offline", action="store_true", help="use the cache and the built-in tables only")
        add_login(command)
        add_settings(command, "architecture", "no_https", "ca_bundle", "library_url", "cache_directory", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    return {"show": _show, "check": _check}[arguments.command](arguments, console)


def _show(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.compat.mpi_of_host import read_host_mpi

    if not arguments.image:
        host = read_host_mpi(console.environ)
        if console.json:
            console.print_json(host.as_dict())
        else:
            console.print_table(("MPI of this host", ""), _list_host(host))
        return 0
    image = _read_image(arguments, console)
    stated = _ask_library(arguments, image, console) if arguments.run else ""
    if console.json:
        console.print_json(image.as_dict() | ({"library_version": stated} if arguments.run else {}))
        return 0
    if not image.mpis:
        console.print(
            "The image has no MPI library." if image.is_searched else "The image's config does not name an MPI."
        )
    for mpi in image.mpis:
        console.print_table((mpi.title, ""), _list_facts(mpi))
    if stated:
        console.print(f"Its own words: {stated}")
    _note(image, console)
    return 0


def _check(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.compat.check_mpi import check_mpi
    from kedge.compat.mpi_of_host import read_host_mpi

    image = _read_image(arguments, console)
    found = check_mpi(image, read_host_mpi(console.environ), nodes=arguments.nodes)
    wanted = MODES if arguments.mode == _ALL else (arguments.mode,)
    if console.json:
        console.print_json(found.as_dict())
    else:
        _print_check(found, wanted, console)
    is_usable = any(found.find(mode).is_usable for mode in wanted)
    return 0 if is_usable else LaunchRefused.exit_code


def _print_check(found: MpiCheck, wanted: Iterable[str], console: Console) -> None:
    inside, outside = found.image.mpi, found.host.mpi
    console.print(f"Image: {_describe(inside) if inside else 'no MPI found'}")
    console.print(f"Host:  {_describe(outside) if outside else 'no MPI found'}")
    plugins = ", ".join(found.host.plugins or ()) or ("unknown" if found.host.has_slurm else "no Slurm")
    console.print(f"srun --mpi: {plugins}")
    rows = []
    for mode in wanted:
        verdict = found.find(mode)
        remedy = f". {verdict.remedy[:1].upper()}{verdict.remedy[1:]}" if verdict.remedy else ""
        rows.append((mode, verdict.level, f"{verdict.reason}{remedy}"))
    console.print_table(("way", "verdict", "reason"), rows)
    if found.chosen:
        console.print(f"kedge launch takes: {found.chosen}")
    _note(found.image, console)


def _read_image(arguments: argparse.Namespace, console: Console) -> MpiImage:
    from kedge.base.reference import Reference
    from kedge.compat.known_tables import load_known_tables
    from kedge.compat.mpi_of_image import read_image_mpi
    from kedge.image.workplace import Workplace

    reference = Reference.parse(arguments.image)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    tables = load_known_tables(console.environ, console.progress)
    return read_image_mpi(reference, workplace, tables, program=arguments.program, offline=arguments.offline)


def _ask_library(arguments: argparse.Namespace, image: MpiImage, console: Console) -> str:
    from kedge.launch.ask_library import ask_library

    return ask_library(arguments.image, image, console.environ)


def _describe(mpi: MpiFacts) -> str:
    pmi = ", ".join(mpi.pmi) if mpi.pmi else "none" if mpi.pmi == () else "unknown"
    fabrics = ", ".join(mpi.fabrics) if mpi.fabrics else "none" if mpi.fabrics == () else "unknown"
    build = f" ({mpi.build})" if mpi.build else ""
    return f"{mpi.title}{build}; PMI: {pmi}; fabrics: {fabrics}"


def _list_facts(mpi: MpiFacts) -> list[tuple[str, str]]:
    pmi = ", ".join(mpi.pmi) if mpi.pmi else "none" if mpi.pmi == () else ""
    rows = [
        ("build", mpi.build),
        ("PMI", f"{pmi} (PMIx {mpi.pmix_version})" if mpi.pmix_version else pmi),
        (
            "fabrics",
            ", ".join(mpi.fabrics) if mpi.fabrics else "none: TCP and shared memory only" if mpi.fabrics == () else "",
        ),
        ("ABI", f"{mpi.abi} ({mpi.soname})" if mpi.soname else mpi.abi),
        ("library", mpi.library),
        ("launcher", mpi.launcher),
        ("glibc", f"{mpi.glibc}; needs {mpi.needs_glibc}" if mpi.needs_glibc else mpi.glibc),
        ("variables", " ".join(f"{name}={value}" for name, value in mpi.variables)),
        ("source", mpi.source),
    ]
    return [(name, value) for name, value in rows if value]


def _list_host(host: MpiHost) -> list[tuple[str, str]]:
    rows = [("MPI", host.mpi.title), *_list_facts(host.mpi)] if host.mpi else [("MPI", "none in PATH")]
    rows += [("also here", f"{mpi.title} ({mpi.launcher})") for mpi in host.others]
    if host.has_slurm:
        rows.append(("srun --mpi", ", ".join(host.plugins) if host.plugins else "unknown: srun does not answer"))
    if host.pmi_library:
        rows.append(("PMI library", host.pmi_library))
    return rows


def _note(image: MpiImage, console: Console) -> None:
    for note in image.notes:
        console.progress.note(note)
