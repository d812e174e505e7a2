# SPDX-License-Identifier: BSD-3-Clause
"""Armor, cleartext messages and packets. Needs nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import KedgeError, KeyUnusable, SignatureInvalid
from kedge.image.trust.openpgp import armor
from kedge.image.trust.openpgp.packets import ByteReader, read_packets, write_integer, write_packet
from tests.builders.rows import each_row


def test_armor_checksum_known_values() -> None:
    assert armor.compute_checksum(b"") == 0xB704CE
    assert armor.compute_checksum(b"123456789") == 0x21CF02


def test_armor_encode_golden() -> None:
    assert armor.encode_armor("PGP SIGNATURE", b"kedge") == (
        b"-----BEGIN PGP SIGNATURE-----\n\na2VkZ2U=\n=mDTm\n-----END PGP SIGNATURE-----\n"
    )


def test_armor_headers_and_missing_checksum_are_accepted() -> None:
    head = b"-----BEGIN PGP SIGNATURE-----\nVersion: something 1.0\nComment: hello: you\n\n"
    text = head + b"a2Vk\nZ2U=\n-----END PGP SIGNATURE-----"
    assert armor.decode_armor(text, "x").data == b"kedge"


@each_row(
    ("text", "reason"),
    [
        (b"", "no armored block"),
        (b"-----BEGIN PGP SIGNATURE-----\n\na2VkZ2U=\n", "END PGP SIGNATURE"),
        (b"-----BEGIN PGP SIGNATURE-----\n\na2VkZ2U=\n=AAAA\n-----END PGP SIGNATURE-----", "checksum"),
        (b"-----BEGIN PGP SIGNATURE-----\n\na2Vk*2U=\n-----END PGP SIGNATURE-----", "base64"),
    ],
)
def test_armor_damage_is_named(text: bytes, reason: str) -> None:
    with pytest.raises(KeyUnusable, match=reason):
        armor.decode_armor(text, "the text")


def test_cleartext_escapes_dashes_and_drops_trailing_blanks() -> None:
    text = b"-----BEGIN\nplain \t\n- item\n\nFrom me"
    message = armor.write_cleartext(text, "sha256", b"packets")
    assert b"\n- -----BEGIN\nplain\n- - item\n\nFrom me\n-----BEGIN PGP SIGNATURE-----\n" in message
    parsed = armor.parse_cleartext(message, "m")
    assert parsed.signed == b"-----BEGIN\r\nplain\r\n- item\r\n\r\nFrom me"
    assert parsed.text == b"-----BEGIN\nplain\n- item\n\nFrom me"
    assert parsed.signature == b"packets"
    assert parsed.hash_names == ("sha256",)


@given(st.text(alphabet="-ab \t\r\n", max_size=60))
@settings(max_examples=100, deadline=None)
def test_cleartext_round_trip_signs_the_canonical_form(text: str) -> None:
    raw = text.encode()
    for ending in (b"\n", b"\r\n"):
        message = armor.write_cleartext(raw, "sha512", b"s").replace(b"\n", ending)
        assert armor.parse_cleartext(message, "m").signed == armor.canonicalize_text(raw)


def make_message(headers: str = "Hash: SHA256\n", body: str = "text\n", tail: str = "") -> bytes:
    signature = armor.encode_armor("PGP SIGNATURE", b"s").decode()
    return f"-----BEGIN PGP SIGNED MESSAGE-----\n{headers}\n{body}{signature}{tail}".encode()


def test_cleartext_reads_several_hashes_and_none() -> None:
    headers = "Hash: SHA256, SHA512\nHash: SHA384\n"
    assert armor.parse_cleartext(make_message(headers), "m").hash_names == ("sha256", "sha512", "sha384")
    assert armor.parse_cleartext(make_message(""), "m").hash_names == ()


@each_row(
    ("message", "reason"),
    [
        (make_message("Hash: MD5\n"), "MD5"),
        (make_message("Hash: SHA1\n"), "SHA1"),
        (make_message("Hash: SHA256\nVersion: 1\n"), "header that is not allowed"),
        (make_message(body="-dash\n"), "dash"),
        (make_message(tail="more text"), "after its signature"),
        (b"prefix\n" + make_message(), "not a cleartext-signed message"),
        (make_message().split(b"-----BEGIN PGP SIGNATURE")[0], "no signature"),
        (b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256", "no text"),
    ],
)
def test_cleartext_refuses(message: bytes, reason: str) -> None:
    with pytest.raises(SignatureInvalid, match=reason):
        armor.parse_cleartext(message, "the message")


@given(st.integers(min_value=0, max_value=1 << 4096))
@settings(max_examples=30, deadline=None)
def test_packets_integer_round_trip(value: int) -> None:
    reader = ByteReader(write_integer(value), "x")
    assert (reader.take_integer(), reader.left) == (value, 0)


@each_row("size", [0, 1, 191, 192, 8383, 8384, 70000])
def test_packets_every_length_form(size: int) -> None:
    raw = write_packet(13, bytes(size))
    assert [(p.tag, len(p.body), p.raw) for p in read_packets(raw + raw, "x")] == [(13, size, raw)] * 2


def test_packets_old_format_lengths() -> None:
    raw = b"\xb4\x02ab" + b"\xb5\x00\x01c" + b"\xb6\x00\x00\x00\x01d"
    assert [(p.tag, p.body) for p in read_packets(raw, "x")] == [(13, b"ab"), (13, b"c"), (13, b"d")]


@each_row(
    ("raw", "reason"),
    [
        (b"\x00", "no packet starts"),
        (b"\xc0\x00", "kind 0"),
        (b"\xcd\xe1a", "in pieces"),
        (b"\xb7", "without a length"),
        (b"\xcd\xff\xff\xff\xff\xffa", "cut off"),
        (b"\xcd\x05ab", "cut off"),
        (b"\xcd", "cut off"),
    ],
)
def test_packets_damage_is_named(raw: bytes, reason: str) -> None:
    with pytest.raises(KedgeError, match=reason):
        read_packets(raw, "the ring")


def test_packets_huge_integer_is_refused() -> None:
    with pytest.raises(KeyUnusable, match="65535 bits"):
        ByteReader(b"\xff\xff" + bytes(8192), "x").take_integer()
