# SPDX-License-Identifier: BSD-3-Clause
"""Packets, multiprecision integers and a bounded byte reader: the lowest layer of OpenPGP (RFC 9580 section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kedge.errors import KeyUnusable

SIGNATURE = 2
SECRET_KEY = 5
PUBLIC_KEY = 6
SECRET_SUBKEY = 7
USER_ID = 13
PUBLIC_SUBKEY = 14
USER_ATTRIBUTE = 17

_MAXIMUM_MPI_BITS = 16400  # one signature number of the largest key accepted, and a little
_MAXIMUM_PACKETS = 100_000


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet: its kind, its content, and the exact bytes it was read from."""

    tag: int
    body: bytes
    raw: bytes


class ByteReader:
    """Reads fields from bytes; reading beyond the end raises an error that names the packet or field."""

    __slots__ = ("data", "position", "what")

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.position = 0
        self.what = what

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > self.left:
            raise KeyUnusable(
                f"{self.what} is cut off: {count} bytes expected at offset {self.position}, {self.left} are there"
            )
        start = self.position
        self.position = start + count
        return self.data[start : self.position]

    def take_number(self, size: int) -> int:
        """The next `size` bytes as a big-endian number."""
        return int.from_bytes(self.take(size), "big")

    def take_integer(self) -> int:
        """A multiprecision integer: its length in bits, then its bytes."""
        bits = self.take_number(2)
        if bits > _MAXIMUM_MPI_BITS:
            raise KeyUnusable(f"{self.what} holds a number of {bits} bits, more than any key that is accepted")
        return self.take_number((bits + 7) // 8)

    def take_rest(self) -> bytes:
        """Return all remaining bytes."""
        return self.take(self.left)


def write_integer(value: int) -> bytes:
    """A multiprecision integer."""
    bits = value.bit_length()
    return bits.to_bytes(2, "big") + value.to_bytes((bits + 7) // 8, "big")


def write_packet(tag: int, body: bytes) -> bytes:
    """A packet with a header of the current format."""
    return bytes([0xC0 | tag]) + write_length(len(body)) + body


def write_length(length: int) -> bytes:
    """The length of a packet or subpacket, in the shortest format."""
    if length < 192:
        return bytes([length])
    if length < 8384:
        return bytes([((length - 192) >> 8) + 192, (length - 192) & 0xFF])
    return b"\xff" + length.to_bytes(4, "big")


def read_packets(data: bytes, what: str) -> list[Packet]:
    """Every packet of a binary stream; `what` names the stream in errors."""
    packets: list[Packet] = []
    for packet in _iterate_packets(data, what):
        packets.append(packet)
        if len(packets) > _MAXIMUM_PACKETS:
            raise KeyUnusable(f"{what} holds more than {_MAXIMUM_PACKETS} packets")
    return packets


def _iterate_packets(data: bytes, what: str) -> Iterator[Packet]:
    reader = ByteReader(data, what)
    while reader.left:
        start = reader.position
        first = reader.take_number(1)
        if not first & 0x80:
            raise KeyUnusable(
                f"{what} is not OpenPGP data: no packet starts at offset {start}",
                hint="a key is expected, in binary or as text that starts with -----BEGIN PGP",
            )
        if first & 0x40:
            tag, length = first & 0x3F, _take_length(reader)
        else:
            tag, length = (first >> 2) & 0x0F, _take_old_length(reader, first & 3)
        if not tag:
            raise KeyUnusable(f"{what} holds a packet of the reserved kind 0 at offset {start}")
        body = reader.take(length)
        yield Packet(tag, body, data[start : reader.position])


def _take_length(reader: ByteReader) -> int:
    first = reader.take_number(1)
    if first < 192:
        return first
    if first < 224:
        return ((first - 192) << 8) + reader.take_number(1) + 192
    if first == 255:
        return reader.take_number(4)
    # pieces of unknown total length are allowed for encrypted and literal data only, which no key or signature is
    raise KeyUnusable(f"{reader.what} holds a packet in pieces at offset {reader.position - 1}")


def _take_old_length(reader: ByteReader, kind: int) -> int:
    if kind == 3:
        raise KeyUnusable(f"{reader.what} holds a packet without a length at offset {reader.position - 1}")
    return reader.take_number(1 << kind)
