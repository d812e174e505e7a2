# SPDX-License-Identifier: BSD-3-Clause
"""Two relays with pipes between them carry connections both ways, close them, and pass noise by."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.rows import each_row

from kedge.tools.jupyter.relay import DATA, OPEN, Relay, RelayLine, open_relay, read_line


async def make_pair() -> tuple[Relay, Relay, int]:
    first, second = os.pipe(), os.pipe()
    login = await open_relay(os.fdopen(second[0], "rb"), os.fdopen(first[1], "wb"))
    noise = os.dup(second[1])
    node = await open_relay(os.fdopen(first[0], "rb"), os.fdopen(second[1], "wb"))
    return login, node, noise


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1000):
        writer.write(piece.upper())
        await writer.drain()
    writer.close()


async def carry(folder: Path, text: bytes) -> bytes:
    login, node, noise = await make_pair()
    os.write(noise, b"a site's greeting\n")
    server = await asyncio.start_unix_server(echo, folder / "echo")

    async def open_there(line: RelayLine) -> None:
        if line.payload == b"echo":
            node.adopt(line.number, *await asyncio.open_unix_connection(folder / "echo"))
        else:
            await node.refuse(line.number)

    async def ignore(line: RelayLine) -> None:
        raise AssertionError(line)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await login.send(OPEN, len(text), b"echo" if text else b"nowhere")
        login.adopt(len(text), reader, writer)

    front = await asyncio.start_unix_server(accept, folder / "front")
    tasks = [asyncio.create_task(node.receive(open_there)), asyncio.create_task(login.receive(ignore))]
    reader, writer = await asyncio.open_unix_connection(folder / "front")
    writer.write(text)
    found = await reader.readexactly(len(text)) if text else await reader.read()
    for each in (writer, server, front):
        each.close()
    login.close()
    await asyncio.wait_for(tasks[0], 5)
    os.close(noise)
    node.close()
    await asyncio.wait_for(tasks[1], 5)
    await asyncio.sleep(0.05)  # what was closed is gone
    return found


def test_relay_carries_more_than_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = os.urandom(100).hex().encode() * 3000
    assert asyncio.run(carry(tmp_path, text)) == text.upper()
    assert "a site's greeting" in capfd.readouterr().err


def test_relay_closes_what_the_other_end_refuses(tmp_path: Path) -> None:
    assert asyncio.run(carry(tmp_path, b"")) == b""


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
