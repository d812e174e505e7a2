# SPDX-License-Identifier: BSD-3-Clause
"""The cleartext signature framework: readable text, dash-escaped, then an armored signature (RFC 9580 section 7).

The signature covers the text's lines without trailing blanks, joined by CR LF, without the line end before the
signature: not the bytes of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from kedge.errors import SignatureInvalid
from kedge.image.trust.openpgp.armor import SIGNATURE_BLOCK, decode_armor, encode_armor

_BEGIN = b"-----BEGIN PGP SIGNED MESSAGE-----"
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
    return data.lstrip()[: len(_BEGIN)] == _BEGIN


def canonicalize_text(text: bytes) -> bytes:
    """The text as it is signed: no blanks at line ends, CR LF between lines."""
    return b"\r\n".join(line.rstrip(b" \t\r") for line in text.split(b"\n"))


def parse_cleartext(data: bytes, what: str) -> Cleartext:
    """Split a message into its parts; refuses text before or after it, which no signature covers."""
    lines = data.strip().split(b"\n")
    if lines[0].rstrip() != _BEGIN:
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
    head = [_BEGIN, b"Hash: " + hash_name.upper().encode(), b""]
    return b"\n".join([*head, *escaped, encode_armor(SIGNATURE_BLOCK, signature)])
