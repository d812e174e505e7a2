# SPDX-License-Identifier: BSD-3-Clause
"""Help, test and apps that layers bring along: an image that was built by Apptainer, pushed, and is pulled again.

Its run script and environment come from the OCI config, as with Apptainer; these parts a config cannot hold.
"""

from __future__ import annotations

from dataclasses import replace

from kedge.errors import CorruptImage
from kedge.formats.singularityd.go_json import encode_json, encode_text
from kedge.formats.singularityd.inspect import FileView, parse_metadata, read_report

_MAXIMUM = 4 << 20  # characters that are read of files for a document; real ones have a few thousand


def keep_own_parts(metadata: bytes, view: FileView, where: str) -> bytes | None:
    """The document of `inspect` with what the image's own files add to it; None where they add nothing.

    CorruptImage when they cannot be what their names say.
    """
    names = view.list_names("/.singularity.d")
    if not {"test", "runscript.help"}.intersection(names) and not view.list_names("/scif/apps"):
        return None
    found = read_report(_SparingView(view), where)
    report = replace(parse_metadata(metadata, where), test=found.test, helpfile=found.helpfile, apps=found.apps)
    return encode_text(encode_json(report.as_document()))


class _SparingView:
    """A view that ends before an image of a thousand large apps fills the memory."""

    def __init__(self, view: FileView) -> None:
        self._view = view
        self._left = _MAXIMUM

    def read_text(self, path: str) -> str | None:
        """The text of a regular file, or None."""
        text = self._view.read_text(path)
        self._left -= len(text or "")
        if self._left < 0:
            raise CorruptImage(f"{path} and other scripts in the image have more than {_MAXIMUM} characters")
        return text

    def list_names(self, path: str) -> list[str]:
        """The sorted names in a directory."""
        return self._view.list_names(path)
