# SPDX-License-Identifier: BSD-3-Clause
"""Makes a bundle of this kedge: one executable file that needs neither Python nor a library of its host."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from kedge.errors import OutputExists, UnsupportedFormat
from kedge.image.formats.identify import FileKind, identify_file
from kedge.system.files import explained, write_atomically
from kedge.system.start_kedge import find_bundle
from kedge.tools.bundle import WrittenBundle, find_head, gather_files, write_bundle
from kedge.tools.bundle.read_bundle import describe_bundle


def make_bundle(out: Path | None, machine: str, *, force: bool = False) -> WrittenBundle:
    """Write the bundle; a kedge that came out of one copies that."""
    here = os.uname().machine
    machine = machine or here
    find_head(machine)
    if machine != here:
        raise UnsupportedFormat(
            f"this host is {here}: it has no Python for {machine} to put into a bundle",
            context={"machine": machine},
            hint=f"run 'kedge bundle' on a host with {machine}",
        )
    path = (out or Path(f"kedge-{machine}")).absolute()
    _refuse_other(path)
    if os.path.lexists(path) and (not force or path.is_dir()):
        raise OutputExists(
            f"{path} exists",
            context={"path": str(path)},
            hint="choose another name" if path.is_dir() else "replace it with --force",
        )
    bundle = find_bundle()
    if bundle:
        with explained(bundle):
            content = Path(bundle).read_bytes()
        write_atomically(path, content, mode=0o755)
        return describe_bundle(path)
    with tempfile.TemporaryDirectory(prefix="kedge-bundle-") as work:
        return write_bundle(path, machine, gather_files(Path(work)))


def _refuse_other(path: Path) -> None:
    """Raise where something stands that is no program: not even --force replaces it."""
    if not path.is_file():
        return
    with explained(path), path.open("rb") as file:
        kind = identify_file(file)
    if kind not in (FileKind.ELF, FileKind.EMPTY):
        raise OutputExists(
            f"{path} is {kind}, and a bundle replaces bundles only",
            hint=f"choose another name, or remove it yourself: rm {shlex.quote(str(path))}",
        )
