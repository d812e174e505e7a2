# SPDX-License-Identifier: BSD-3-Clause
"""`kedge sif`: the commands of siftool and `apptainer sif`, with --json."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.cli.options import read_image_path
from kedge.errors import CorruptImage, OutputExists
from kedge.image import sif
from kedge.image.formats.sif import edit, listing
from kedge.system.host.limits import choose_threads, read_limits

if TYPE_CHECKING:
    from kedge.cli.console import Console

_TYPES = """1-Deffile 2-EnvVar 3-Labels 4-Partition 5-Signature 6-GenericJSON 7-Generic 8-CryptoMessage 9-SBOM
10-OCI.RootIndex 11-OCI.Blob"""
_ARCHITECTURES = """1-386 2-amd64 3-arm 4-arm64 5-ppc64 6-ppc64le 7-mips 8-mipsle 9-mips64 10-mips64le 11-s390x
12-riscv64 13-loong64"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    whole = {"list": "List the objects", "header": "Show the global header", "new": "Create an empty file"}
    for name, text in whole.items():
        commands.add_parser(name, help=text).add_argument("file", metavar="FILE", type=read_image_path)
    for name, text in (
        ("info", "Show an object's descriptor"),
        ("dump", "Write an object to standard output"),
        ("del", "Delete an object"),
        ("setprim", "Make a system partition the primary one"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("id", metavar="ID", type=int)
        command.add_argument("file", metavar="FILE", type=read_image_path)
    verify = commands.add_parser("verify", help="Check that an image is whole: its tables and all contents")
    verify.add_argument("files", metavar="FILE", nargs="+", type=read_image_path, help="SIF or SquashFS file")
    verify.add_argument("--quick", action="store_true", help="check the tables only, not the contents")
    _configure_add(commands.add_parser("add", help="Add a file as an object"))


def _configure_add(add: argparse.ArgumentParser) -> None:
    add.add_argument("file", metavar="FILE", type=read_image_path)
    add.add_argument("object", metavar="OBJECT", type=Path, help="file to add")
    add.add_argument("--datatype", metavar="N", type=int, required=True, help=_TYPES)
    add.add_argument("--parttype", metavar="N", type=int, help="1-System 2-PrimSys 3-Data 4-Overlay")
    add.add_argument("--partfs", metavar="N", type=int, help="1-Squash 2-Ext3 3-ImmuObj 4-Raw")
    add.add_argument("--partarch", metavar="N", type=int, help=_ARCHITECTURES)
    add.add_argument("--signhash", metavar="N", type=int, help="1-SHA256 2-SHA384 3-SHA512 4-BLAKE2s_256 5-BLAKE2b_256")
    add.add_argument("--signentity", metavar="FINGERPRINT", help="40 hexadecimal digits")
    add.add_argument("--sbomformat", metavar="NAME", help="cyclonedx-json, spdx-json, ...")
    add.add_argument("--groupid", metavar="N", type=int, default=0, help="group of the object (default: none)")
    add.add_argument("--link", metavar="N", type=int, default=0, help="object to link it to (default: none)")
    add.add_argument("--alignment", metavar="N", type=int, help="default: 4096 for partitions, none for the rest")
    add.add_argument("--filename", metavar="NAME", help="name of the object (default: the file's)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    if arguments.command == "dump":
        for chunk in sif.dump_object(arguments.file, arguments.id):
            console.write_bytes(chunk)
    elif arguments.command == "verify":
        return _verify(arguments, console)
    elif arguments.command in ("list", "header", "info"):
        _show(arguments, console)
    else:
        _change(arguments, console)
    return 0


def _show(arguments: argparse.Namespace, console: Console) -> None:
    with sif.open_sif(arguments.file) as reader:
        if arguments.command == "list":
            text, document = listing.format_list(reader.descriptors), listing.list_json(reader)
        elif arguments.command == "header":
            text, document = listing.format_header(reader.header), listing.header_json(reader.header)
        else:
            descriptor = reader.find(arguments.id)
            text, document = listing.format_object(descriptor), listing.object_json(descriptor)
    if console.json:
        console.print_json(document)
    console.print(text.removesuffix("\n"))


def _verify(arguments: argparse.Namespace, console: Console) -> int:
    threads = choose_threads(read_limits(), console.settings.threads)
    found = [sif.verify_image(path, threads, is_quick=arguments.quick) for path in arguments.files]
    broken = [image for image in found if image.state == "broken"]
    if console.json:
        console.print_json({"images": [image.as_dict() for image in found]})
        return CorruptImage.exit_code if broken else 0
    for image in found:
        text = {"ok": f"ok, {count_things(image.files or 0, 'file')}", "broken": image.problem or ""}
        console.print(f"{image.path}: {text.get(image.state, 'not checked: kedge cannot read its root file system')}")
    if broken:
        what = f"{count_things(len(broken), 'image')} of {len(found)} cannot be read whole"
        raise CorruptImage(what, hint="pull, build or copy again: " + " ".join(str(image.path) for image in broken))
    return 0


def _change(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.command == "new":
        if os.path.lexists(arguments.file):  # there is no --force that a hint could offer
            raise OutputExists(f"{arguments.file} exists already", hint="choose another name")
        edit.create_empty(arguments.file)
        if console.json:
            console.print_json({"file": str(arguments.file)})
        console.progress.note(f"{arguments.file}: made an empty SIF file")
        return
    if arguments.command == "add":
        changed = sif.add_object(arguments.file, arguments.object, _read_options(arguments))
    elif arguments.command == "del":
        changed = edit.delete_object(arguments.file, arguments.id)
    else:
        changed = edit.set_primary(arguments.file, arguments.id)
    done = {"add": "added", "del": "deleted", "setprim": "is the primary partition"}[arguments.command]
    if console.json:
        console.print_json(listing.object_json(changed))
    console.progress.note(f"{arguments.file}: object {changed.id} {done}")


def _read_options(arguments: argparse.Namespace) -> sif.AddOptions:
    return sif.AddOptions(
        data_type=arguments.datatype,
        partition_type=arguments.parttype,
        file_system=arguments.partfs,
        architecture=arguments.partarch,
        hash_type=arguments.signhash,
        entity=arguments.signentity,
        sbom_format=arguments.sbomformat,
        group=arguments.groupid,
        link=arguments.link,
        alignment=arguments.alignment,
        name=arguments.filename,
    )
