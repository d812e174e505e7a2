# SPDX-License-Identifier: BSD-3-Clause
"""Lines of the relay: any bytes arrive, and what others print is told from them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.rows import each_row

from kedge.tools.jupyter.relay import DATA, RelayLine, read_line


@given(st.binary(max_size=300), st.integers(0, 1 << 40))
def test_relay_line_arrives_as_it_was(payload: bytes, number: int) -> None:
    line = RelayLine(DATA, number, payload)
    assert line.encode().count(b"\n") == 1
    assert read_line(line.encode()) == line
    assert read_line(b"a banner without an end " + line.encode().replace(b"\n", b"\r\n")) == line


@each_row("line", [
    b"Welcome to the cluster\n", b"kedge-relay data 1\n", b"kedge-relay data x QQ==\n", b"kedge-relay data 1 Q\n",
    b"kedge-relay dance 1 QQ==\n", b"kedge-relay \xff 1 QQ==\n", b"\n",
])  # fmt: skip
def test_relay_line_of_others_is_none(line: bytes) -> None:
    assert read_line(line) is None
