# SPDX-License-Identifier: BSD-3-Clause
"""ASCII armor: binary OpenPGP data as text with a header line, base64 and a CRC-24 (RFC 9580 section 6)."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from kedge.errors import KeyUnusable, SignatureInvalid

PUBLIC_KEY_BLOCK = "PGP PUBLIC KEY BLOCK"
PRIVATE_KEY_BLOCK = "PGP PRIVATE KEY BLOCK"
SIGNATURE_BLOCK = "PGP SIGNATURE"

_MAXIMUM_ARMOR = 16 << 20  # the checksum is computed here at some MB/s, so the size is a bound on time

_BEGIN = re.compile(rb"^-----BEGIN (PGP [A-Z ]{1,40})-----[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One armored block: its kind, its data, and where it ends in the text."""

    kind: str
    data: bytes
    end: int


def is_armored(data: bytes) -> bool:
    """Whether the bytes are text that holds an armored block."""
    return _BEGIN.search(data) is not None


def decode_armor(text: bytes, what: str, *, start: int = 0) -> Block:
    """The first armored block at or after `start`; a checksum is checked when there is one."""
    if len(text) > _MAXIMUM_ARMOR:
        raise KeyUnusable(f"{what} is too large for a key or signature: {len(text)} bytes")
    beginning = _BEGIN.search(text, start)
    if beginning is None:
        raise KeyUnusable(f"{what} holds no armored block", hint="it should start with -----BEGIN PGP")
    kind = beginning.group(1).decode()
    closing = re.compile(rb"^-----END " + re.escape(beginning.group(1)) + rb"-----[ \t\r]*$", re.MULTILINE)
    ending = closing.search(text, beginning.end())
    if ending is None:
        raise KeyUnusable(f"{what} is cut off: the line -----END {kind}----- is missing")
    lines = [line.strip() for line in text[beginning.end() : ending.start()].split(b"\n")]
    return Block(kind, _decode_lines(lines[1:], what), ending.end())


def decode_all(text: bytes, what: str) -> list[Block]:
    """Every armored block of a text, in order."""
    blocks: list[Block] = []
    position = 0
    while _BEGIN.search(text, position):
        block = decode_armor(text, what, start=position)
        blocks.append(block)
        position = block.end
    return blocks


def _decode_lines(lines: list[bytes], what: str) -> bytes:
    index = 0
    while index < len(lines) and b": " in lines[index] + b" ":  # Version:, Comment:, Hash:, ...
        index += 1
    content = [line for line in lines[index:] if line]
    checksum: bytes | None = None
    if content and content[-1].startswith(b"="):
        checksum = content.pop()[1:]
    try:
        data = base64.b64decode(b"".join(content), validate=True)
        expected = None if checksum is None else base64.b64decode(checksum, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise KeyUnusable(f"{what}: the armored text is not base64 ({problem})") from problem
    if expected is not None and expected != compute_checksum(data).to_bytes(3, "big"):
        raise KeyUnusable(f"{what}: the armored text's checksum does not fit; it was damaged on its way")
    return data


def encode_armor(kind: str, data: bytes) -> bytes:
    """The data as an armored block, 64 characters to the line, with its checksum."""
    encoded = base64.b64encode(data)
    lines = [encoded[start : start + 64] for start in range(0, len(encoded), 64)]
    checksum = b"=" + base64.b64encode(compute_checksum(data).to_bytes(3, "big"))
    name = kind.encode()
    return b"\n".join([b"-----BEGIN %s-----" % name, b"", *lines, checksum, b"-----END %s-----" % name, b""])


def _make_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        register = value << 16
        for _ in range(8):
            register = register << 1 ^ (0x1864CFB if register & 0x800000 else 0)
        table.append(register & 0xFFFFFF)
    return tuple(table)


_TABLE = _make_table()


def compute_checksum(data: bytes) -> int:
    """The CRC-24 of OpenPGP: polynomial 0x864CFB, start 0xB704CE."""
    register = 0xB704CE
    for byte in data:
        register = (register << 8 & 0xFFFFFF) ^ _TABLE[register >> 16 ^ byte]
    return register


# The cleartext signature framework: readable text, dash-escaped, then an armored signature (RFC 9580 section 7).
#
# The signature covers the text's lines without trailing blanks, joined by CR LF, without the line end before the
# signature: not the bytes of the file.

_CLEARTEXT_BEGIN = b"-----BEGIN PGP SIGNED MESSAGE-----"
_BEGIN_SIGNATURE = b"-----BEGIN PGP SIGNATURE-----"
_HASH_NAMES = frozenset({"SHA224", "SHA256", "SHA384", "SHA512"})


@dataclass(frozen=True, slots=True)
class Cleartext:
    """The parts of a cleartext-signed message."""

    text: bytes  # what a reader should use: canonical, but with plain newlines
    signed: bytes  # the exact bytes the signature was computed over
    hash_names: tuple[str, ...]  # what the Hash headers announce, in lower case; empty when there are none
    signature: bytes  # signature packets


def is_cleartext(data: bytes) -> bool:
    """Whether the bytes start like a cleartext-signed message."""
    return data.lstrip()[: len(_CLEARTEXT_BEGIN)] == _CLEARTEXT_BEGIN


def canonicalize_text(text: bytes) -> bytes:
    """The text as it is signed: no blanks at line ends, CR LF between lines."""
    return b"\r\n".join(line.rstrip(b" \t\r") for line in text.split(b"\n"))


def parse_cleartext(data: bytes, what: str) -> Cleartext:
    """Split a message into its parts; refuses text before or after it, which no signature covers."""
    lines = data.strip().split(b"\n")
    if lines[0].rstrip() != _CLEARTEXT_BEGIN:
        raise SignatureInvalid(f"{what} is not a cleartext-signed message")
    blank = next((at for at, line in enumerate(lines) if not line.rstrip()), None)
    if blank is None:
        raise SignatureInvalid(f"{what} is cut off: no text follows its headers")
    hash_names = _read_headers(lines[1:blank], what)
    end = next((at for at in range(blank, len(lines)) if lines[at].rstrip() == _BEGIN_SIGNATURE), None)
    if end is None:
        raise SignatureInvalid(f"{what} is cut off: no signature follows its text")
    body = [_remove_escape(line, what) for line in lines[blank + 1 : end]]
    block = decode_armor(b"\n".join(lines[end:]), what)
    if block.kind != SIGNATURE_BLOCK or b"\n".join(lines[end:])[block.end :].strip():
        raise SignatureInvalid(f"{what} has something after its signature")
    signed = canonicalize_text(b"\n".join(body))
    return Cleartext(signed.replace(b"\r\n", b"\n"), signed, hash_names, block.data)


def _read_headers(lines: list[bytes], what: str) -> tuple[str, ...]:
    names: list[str] = []
    for line in lines:
        key, separator, value = line.decode("ascii", "replace").partition(":")
        if key != "Hash" or not separator:
            # any other header could be shown to a reader as if it were signed
            raise SignatureInvalid(f"{what} has a header that is not allowed: {key[:40]!r}")
        names.extend(name.strip().upper().replace("-", "") for name in value.split(","))
    weak = [name for name in names if name not in _HASH_NAMES]
    if weak:
        raise SignatureInvalid(
            f"{what} announces the hash {weak[0][:20]!r}, which is not accepted",
            hint="SHA224, SHA256, SHA384 and SHA512 are; sign the image again",
        )
    return tuple(name.lower() for name in names)


def _remove_escape(line: bytes, what: str) -> bytes:
    if line.startswith(b"- "):
        return line[2:]
    if line.startswith(b"-"):
        raise SignatureInvalid(f"{what} has a line that starts with a dash and is not escaped")
    return line


def write_cleartext(text: bytes, hash_name: str, signature: bytes) -> bytes:
    """Write a message; `signature` holds the packets made over `canonicalize_text(text)`."""
    lines = [line.rstrip(b" \t\r") for line in text.split(b"\n")]
    escaped = [b"- " + line if line.startswith(b"-") else line for line in lines]
    head = [_CLEARTEXT_BEGIN, b"Hash: " + hash_name.upper().encode(), b""]
    return b"\n".join([*head, *escaped, encode_armor(SIGNATURE_BLOCK, signature)])
