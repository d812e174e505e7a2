# SPDX-License-Identifier: BSD-3-Clause
"""A look into the files of an image on this host, and the variables that it sets; nothing of registries is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.errors import UnsupportedFormat
from kedge.image.clean_config import split_variables
from kedge.image.formats.identify import FileKind, find_payload, identify_file
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.singularityd.derive_config import derive_section
from kedge.image.formats.squashfs.view import SquashView
from kedge.image.inspect import Inspection
from kedge.system.views import DirectoryView

if TYPE_CHECKING:
    from kedge.system.views import View


@contextlib.contextmanager
def open_view(path: Path) -> Iterator[tuple[View | None, str]]:
    """A look into the image's files, and the architecture that a SIF states; no view where there is none to have."""
    if path.is_dir():
        yield DirectoryView(str(path.absolute()), is_still=True), ""
        return
    with path.open("rb") as file:
        if identify_file(file) is FileKind.SIF:
            reader = SifReader(file, str(path))
            architecture = "" if reader.header.architecture == "unknown" else reader.header.architecture
            try:
                partition = reader.root_partition()
            except UnsupportedFormat:  # encrypted, or of a kind that only the kernel reads: its labels must do
                yield None, architecture
                return
            with SquashView(file, partition.offset, partition.size) as view:
                yield view, architecture
            return
        file.seek(0)
        with SquashView(file, find_payload(file.read(2048))) as view:
            yield view, ""


def read_file_environment(inspection: Inspection) -> dict[str, str]:
    """The variables that the image sets, read from its scripts; those that a script computes are unknown."""
    known = inspection.oci_config or {}
    safe = {"Env": list_words(known.get("Env"))} if "Env" in known else {}
    return split_variables(list_words(derive_section(inspection.report, safe)[0].get("Env")))


def list_words(value: object) -> list[str]:
    """The texts of a list in JSON; none where it is something else."""
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
