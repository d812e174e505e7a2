# SPDX-License-Identifier: BSD-3-Clause
"""Secret key packets: unlocking them with a passphrase, and locking new ones (RFC 9580 sections 3.7 and 5.5.3)."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass

from kedge.errors import KeyUnusable, UsageError
from kedge.image.trust import crypto
from kedge.image.trust.openpgp import algorithms
from kedge.image.trust.openpgp import signature as sig
from kedge.image.trust.openpgp.algorithms import RSA, PublicNumbers, SecretNumbers
from kedge.image.trust.openpgp.keys import KeyBlock, PublicKey, parse_public_key, split_blocks
from kedge.image.trust.openpgp.packets import SECRET_KEY, USER_ID, ByteReader, read_packets, write_integer, write_packet
from kedge.image.trust.openpgp.signature import Signer, Subpacket, make_signature

_AES_KEY_SIZES = {7: 16, 8: 24, 9: 32}
_CIPHER_NAMES = {1: "IDEA", 2: "3DES", 3: "CAST5", 4: "Blowfish", 10: "Twofish", 11: "Camellia", 12: "Camellia"}
_S2K_HASHES = {2: "sha1", 8: "sha256", 9: "sha384", 10: "sha512", 11: "sha224"}
_AES256, _SHA256 = 9, 8
_ITERATED = 3
_ITERATION_CODE = 0xFF  # the most the format can say: 65 MB of hashing for each guess
_REPROTECT = "set a new passphrase with gpg (--s2k-cipher-algo AES256 --edit-key ... passwd) and import the key again"


@dataclass(frozen=True, slots=True, repr=False)
class _Protection:
    """How a packet encrypts its secret numbers."""

    usage: int
    cipher: int = 0
    method: int = 0
    hash_number: int = 0
    salt: bytes = b""
    count: int = 0
    vector: bytes = b""


@dataclass(frozen=True, slots=True, repr=False)
class SecretKey:
    """A secret key packet, still locked."""

    public: PublicKey
    protection: _Protection
    content: bytes

    @property
    def is_locked(self) -> bool:
        """Whether a passphrase is needed."""
        return self.protection.usage != 0

    @property
    def is_absent(self) -> bool:
        """Whether the secret is kept elsewhere (GnuPG's offline primary key or card)."""
        return self.protection.method == 101

    def unlock(self, passphrase: str | None) -> algorithms.SecretNumbers:
        """The secret numbers; KeyUnusable when the passphrase is wrong."""
        if self.is_absent:
            raise KeyUnusable("the secret key is kept elsewhere (offline or on a card)")
        plain = self.content
        if self.is_locked:
            if passphrase is None:
                raise KeyUnusable("the secret key is locked", hint="give its passphrase")
            plain = self._decrypt(passphrase)
        reader = ByteReader(_check_sum(self.protection.usage, plain), "the secret key")
        secret = algorithms.read_secret(reader, self.public.numbers)
        algorithms.check_pair(self.public.numbers, secret)
        return secret

    def _decrypt(self, passphrase: str) -> bytes:
        size = _AES_KEY_SIZES.get(self.protection.cipher)
        if size is None:
            name = _CIPHER_NAMES.get(self.protection.cipher, f"cipher {self.protection.cipher}")
            raise KeyUnusable(
                f"kedge cannot unlock the secret key: it is locked with {name}, not with AES", hint=_REPROTECT
            )
        return crypto.decrypt_cfb(_derive_key(self.protection, passphrase, size), self.protection.vector, self.content)


def parse_secret_key(body: bytes, what: str) -> SecretKey:
    """Read a secret key or subkey packet without unlocking it."""
    public = parse_public_key(body, what)
    reader = ByteReader(body, what)
    reader.take(len(public.body))
    usage = reader.take_number(1)
    if not usage:
        return SecretKey(public, _Protection(0), reader.take_rest())
    if usage not in (254, 255):
        kind = "AEAD" if usage == 253 else "a method of the 1990s"
        raise KeyUnusable(f"kedge cannot unlock {what}: it is locked with {kind}", hint=_REPROTECT)
    cipher = reader.take_number(1)
    method = reader.take_number(1)
    if method == 101:
        return SecretKey(public, _Protection(usage, cipher, method), b"")
    if method not in (0, 1, _ITERATED):
        raise KeyUnusable(f"kedge cannot unlock {what}: the passphrase method {method} is unknown", hint=_REPROTECT)
    hash_number = reader.take_number(1)
    salt = reader.take(8) if method else b""
    code = reader.take_number(1) if method == _ITERATED else 0
    count = (16 + (code & 15)) << ((code >> 4) + 6) if method == _ITERATED else 0
    vector = reader.take(16 if cipher in _AES_KEY_SIZES or cipher > 9 else 8)
    return SecretKey(
        public,
        _Protection(
            usage=usage, cipher=cipher, method=method, hash_number=hash_number, salt=salt, count=count, vector=vector
        ),
        reader.take_rest(),
    )


def _derive_key(protection: _Protection, passphrase: str, size: int) -> bytes:
    """The key derived from a passphrase: salted and hashed many times."""
    name = _S2K_HASHES.get(protection.hash_number)
    if name is None:
        raise KeyUnusable(f"kedge cannot unlock the secret key: the hash {protection.hash_number} is unknown")
    text = protection.salt + passphrase.encode(errors="surrogateescape")  # as typed, whatever the locale
    total = max(protection.count, len(text))
    result = b""
    preload = 0
    while len(result) < size:
        state = hashlib.new(name, bytes(preload), usedforsecurity=False)
        _feed(state, text, total)
        result += state.digest()
        preload += 1
    return result[:size]


def _feed(state: hashlib._Hash, text: bytes, total: int) -> None:
    if not text:
        return
    many = text * max(1, (1 << 20) // len(text))
    for _ in range(total // len(many)):
        state.update(many)
    state.update(many[: total % len(many)])


def _check_sum(usage: int, plain: bytes) -> bytes:
    """The numbers without their checksum, which tells a right passphrase from a wrong one."""
    size = 20 if usage == 254 else 2
    content, checksum = plain[:-size], plain[-size:]
    if usage == 254:
        expected = hashlib.sha1(content, usedforsecurity=False).digest()
    else:
        expected = (sum(content) & 0xFFFF).to_bytes(2, "big")
    if not hmac.compare_digest(checksum, expected):
        raise KeyUnusable(
            "the passphrase is wrong" if usage else "the secret key is damaged: its checksum does not fit",
            hint="try again; capital letters and keyboard layout count" if usage else None,
        )
    return content


def write_secret_body(public_body: bytes, numbers: tuple[int, ...], passphrase: str | None) -> bytes:
    """The body of a secret key packet, locked with AES-256 when there is a passphrase."""
    content = b"".join(write_integer(number) for number in numbers)
    if not passphrase:
        return public_body + b"\x00" + content + (sum(content) & 0xFFFF).to_bytes(2, "big")
    salt, vector = os.urandom(8), os.urandom(16)
    count = (16 + (_ITERATION_CODE & 15)) << ((_ITERATION_CODE >> 4) + 6)
    protection = _Protection(
        usage=254, cipher=_AES256, method=_ITERATED, hash_number=_SHA256, salt=salt, count=count, vector=vector
    )
    checked = content + hashlib.sha1(content, usedforsecurity=False).digest()
    locked = crypto.encrypt_cfb(_derive_key(protection, passphrase, 32), vector, checked)
    head = bytes([254, _AES256, _ITERATED, _SHA256]) + salt + bytes([_ITERATION_CODE]) + vector
    return public_body + head + locked


# New key pairs: an RSA primary key that certifies and signs, with one user id.

MINIMUM_BITS, MAXIMUM_BITS = 2048, 8192


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a key."""

    name: str
    email: str = ""
    comment: str = ""

    def format_user_id(self) -> str:
        """`Name (comment) <email>`; refuses characters that would make it ambiguous."""
        for label, text in (("name", self.name), ("comment", self.comment), ("email", self.email)):
            if any(char in "()<>" or not char.isprintable() for char in text) or len(text) > 128:
                raise UsageError(
                    f"the {label} {text[:40]!r} cannot stand in a key", hint="leave out ( ) < > and control characters"
                )
        if not self.name.strip():
            raise UsageError("a key needs a name", hint="give --name")
        comment = f" ({self.comment})" if self.comment else ""
        return f"{self.name}{comment}" + (f" <{self.email}>" if self.email else "")


def generate_key(owner: Owner, bits: int, passphrase: str | None, created: int) -> KeyBlock:
    """A new secret key block; the passphrase locks it, None or empty leaves it unlocked."""
    if not MINIMUM_BITS <= bits <= MAXIMUM_BITS or bits % 8:
        raise UsageError(
            f"a key of {bits} bits is not made", hint=f"between {MINIMUM_BITS} and {MAXIMUM_BITS}; 4096 is the default"
        )
    user_id = owner.format_user_id().encode()
    made = crypto.generate_rsa(bits)
    public_body = b"\x04" + created.to_bytes(4, "big") + bytes([RSA])
    public_body += write_integer(made.modulus) + write_integer(made.exponent)
    numbers = (made.private, made.prime_p, made.prime_q, made.inverse)
    key = parse_public_key(public_body, "the new key")
    signer = Signer(key.fingerprint, PublicNumbers(RSA, bits, (made.modulus, made.exponent)), SecretNumbers(numbers))
    content = key.hashed_form + b"\xb4" + len(user_id).to_bytes(4, "big") + user_id
    certification = make_signature(
        signer,
        sig.POSITIVE_CERTIFICATION,
        content,
        created,
        Subpacket(sig.KEY_FLAGS, True, bytes([sig.CAN_CERTIFY | sig.CAN_SIGN])),
        Subpacket(sig.PREFERRED_CIPHERS, False, bytes([9, 8, 7])),
        Subpacket(sig.PREFERRED_HASHES, False, bytes([10, 9, 8])),
        Subpacket(sig.PREFERRED_COMPRESSION, False, bytes([0])),
        Subpacket(sig.PRIMARY_USER_ID, False, b"\x01"),
        Subpacket(sig.FEATURES, False, b"\x01"),
    )
    secret = write_packet(SECRET_KEY, write_secret_body(public_body, numbers, passphrase))
    packets = read_packets(secret + write_packet(USER_ID, user_id) + certification, "the new key")
    return split_blocks(packets, "the new key")[0]
