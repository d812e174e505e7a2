# SPDX-License-Identifier: BSD-3-Clause
"""A SIF is read back when it is finished: a header or descriptor that is wrong does not leave."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from kedge.base.frozen import replace
from kedge.errors import FaultyImage
from kedge.image.formats.sif import writer
from kedge.image.formats.sif.layout import DataType, Header, SifDescriptor
from kedge.image.formats.sif.writer import SifBuilder


def write_sif() -> bytes:
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="arm64", created=1)
    builder.add_object(DataType.DEFFILE, b"bootstrap: none\n")
    builder.begin_partition()
    file.write(b"hsqs" + bytes(8188))
    builder.end_partition(8192)
    builder.finish()
    return file.getvalue()


HEADERS: dict[str, Callable[[Header], Header]] = {
    "data_size": lambda it: replace(it, data_size=it.data_size - 1),
    "descriptors_free": lambda it: replace(it, descriptors_free=it.descriptors_free + 1),
    "architecture": lambda it: replace(it, architecture_code=b"02\0"),
    "table_offset": lambda it: replace(it, table_offset=it.table_offset + 1),
}
DESCRIPTORS: dict[str, Callable[[SifDescriptor], SifDescriptor]] = {
    "offset": lambda it: replace(it, offset=it.offset + 1),
    "size": lambda it: replace(it, size=it.size + 1),
    "id": lambda it: replace(it, id=1),
}


def test_a_sif_that_is_in_order_passes() -> None:
    assert write_sif()[32:42] == b"SIF_MAGIC\0"


@pytest.mark.parametrize("name", HEADERS)
def test_a_wrong_header_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = SifBuilder._make_header
    monkeypatch.setattr(SifBuilder, "_make_header", lambda self: HEADERS[name](make(self)))
    with pytest.raises(FaultyImage, match="bug in kedge"):
        write_sif()


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_wrong_descriptor_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = SifDescriptor.pack
    change = DESCRIPTORS[name]
    monkeypatch.setattr(
        writer.SifDescriptor, "pack", lambda self: pack(change(self) if self.data_type == DataType.PARTITION else self)
    )
    with pytest.raises(FaultyImage, match="bug in kedge"):
        write_sif()
