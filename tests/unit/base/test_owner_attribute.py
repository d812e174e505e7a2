# SPDX-License-Identifier: BSD-3-Clause
"""The attribute that notes owners: what a program may have written there does no harm."""

from __future__ import annotations

from kedge.base.owner_records import decode_owner, encode_owner
from tests.builders.rows import each_row


def test_owner_attribute_is_read_as_it_was_written() -> None:
    assert decode_owner(encode_owner(1000, 50)) == (1000, 50)
    assert decode_owner(encode_owner(0, (1 << 32) - 2)) == (0, (1 << 32) - 2)


@each_row("value", [b"", b":", b"1", b"1:", b":1", b"-1:0", b"1:2:3", b"a:b", b"4294967295:0"])
def test_owner_attribute_that_is_none_counts_for_nothing(value: bytes) -> None:
    assert decode_owner(value) is None
