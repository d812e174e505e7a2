# SPDX-License-Identifier: BSD-3-Clause
"""OpenPGP keys of every kind and state for tests, made from packets."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from kedge.image.trust import crypto
from kedge.image.trust.openpgp import algorithms
from kedge.image.trust.openpgp import signature as sig
from kedge.image.trust.openpgp.algorithms import PublicNumbers, SecretNumbers
from kedge.image.trust.openpgp.keys import KeyBlock, PublicKey, parse_public_key, split_blocks
from kedge.image.trust.openpgp.packets import (
    PUBLIC_KEY,
    SECRET_KEY,
    SECRET_SUBKEY,
    USER_ID,
    read_packets,
    write_integer,
    write_packet,
)
from kedge.image.trust.openpgp.secret import Owner, generate_key, write_secret_body
from kedge.image.trust.openpgp.signature import Signer, Subpacket, make_signature

CREATED = 1_700_000_000
NOW = CREATED + 1000
CURVE_OIDS = {
    kind: bytes.fromhex(oid)
    for kind, oid in [("p256", "2a8648ce3d030107"), ("p384", "2b81040022"), ("p521", "2b81040023")]
}


@functools.cache
def rsa_block(name: str = "Rose Test", passphrase: str | None = None) -> KeyBlock:
    """A secret RSA key as `key newpair` makes it; the same one for the same arguments."""
    return generate_key(Owner(name, "rose@test.example"), 2048, passphrase, CREATED)


@dataclass(frozen=True)
class Pair:
    """A key with its secret, to make packets with."""

    key: PublicKey
    signer: Signer
    numbers: tuple[int, ...]

    def secret_packet(self, tag: int = SECRET_KEY, passphrase: str | None = None) -> bytes:
        return write_packet(tag, write_secret_body(self.key.body, self.numbers, passphrase))


def make_pair(kind: str, seed: int, created: int = CREATED) -> Pair:
    """An Ed25519 ("ed25519") or ECDSA ("p256", "p384", "p521") key from a small number."""
    start = b"\x04" + created.to_bytes(4, "big")
    if kind == "ed25519":
        secret = seed.to_bytes(32, "big")
        point = crypto.derive_ed25519_public(secret)
        oid = algorithms.ED25519_OID
        body = start + bytes([algorithms.EDDSA, len(oid)]) + oid + write_integer(int.from_bytes(b"\x40" + point, "big"))
        public = PublicNumbers(algorithms.EDDSA, 256, (), "ed25519", point)
        secrets = SecretNumbers(seed=secret)
    else:
        oid, point = CURVE_OIDS[kind], crypto.derive_ecdsa_point(kind, seed)
        body = start + bytes([algorithms.ECDSA, len(oid)]) + oid + write_integer(int.from_bytes(point, "big"))
        public = PublicNumbers(algorithms.ECDSA, int(kind[1:]), (), kind, point)
        secrets = SecretNumbers((seed,))
    key = parse_public_key(body, "a test key")
    return Pair(key, Signer(key.fingerprint, public, secrets), (seed,))


def certify(pair: Pair, user_id: bytes, *more: Subpacket, created: int = CREATED, kind: int = 0x13) -> bytes:
    """A self-signature on a user id."""
    content = pair.key.hashed_form + b"\xb4" + len(user_id).to_bytes(4, "big") + user_id
    return make_signature(pair.signer, kind, content, created, *more)


def flags(value: int) -> Subpacket:
    return Subpacket(sig.KEY_FLAGS, True, bytes([value]))


def lifetime(seconds: int) -> Subpacket:
    return Subpacket(sig.KEY_LIFETIME, True, seconds.to_bytes(4, "big"))


def revoke(pair: Pair, reason: int = 2, created: int = CREATED + 500) -> bytes:
    """A revocation of the whole key."""
    why = Subpacket(sig.REVOCATION_REASON, False, bytes([reason]))
    return make_signature(pair.signer, sig.KEY_REVOCATION, pair.key.hashed_form, created, why)


def bind(primary: Pair, subkey: Pair, *more: Subpacket, back: bool = True, created: int = CREATED) -> bytes:
    """The binding of a signing subkey, with its own signature inside when `back`."""
    content = primary.key.hashed_form + subkey.key.hashed_form
    statements = [flags(sig.CAN_SIGN), *more]
    if back:
        inner = make_signature(subkey.signer, sig.PRIMARY_BINDING, content, created)
        statements.append(Subpacket(sig.EMBEDDED_SIGNATURE, False, read_packets(inner, "inner")[0].body))
    return make_signature(primary.signer, sig.SUBKEY_BINDING, content, created, *statements)


def assemble(*parts: bytes) -> KeyBlock:
    """One block from packets."""
    return split_blocks(read_packets(b"".join(parts), "a test key"), "a test key")[0]


def simple_block(pair: Pair, user_id: bytes = b"Eve Test <eve@test.example>", *more: Subpacket) -> KeyBlock:
    """A secret block with one user id."""
    statements = more or (flags(sig.CAN_CERTIFY | sig.CAN_SIGN),)
    return assemble(pair.secret_packet(), write_packet(USER_ID, user_id), certify(pair, user_id, *statements))


def subkey_block(primary: Pair, subkey: Pair, binding: bytes, user_id: bytes = b"Sub Test") -> KeyBlock:
    """A secret block whose primary key only certifies, with one subkey."""
    return assemble(
        primary.secret_packet(),
        write_packet(USER_ID, user_id),
        certify(primary, user_id, flags(sig.CAN_CERTIFY)),
        subkey.secret_packet(SECRET_SUBKEY),
        binding,
    )


def foreign_packets() -> list[bytes]:
    """Keys of kinds that are not understood: version 6, version 3, an unknown algorithm, an unknown curve."""
    version6 = b"\x06" + CREATED.to_bytes(4, "big") + bytes([27]) + (32).to_bytes(4, "big") + bytes(range(32))
    version3 = b"\x03" + CREATED.to_bytes(4, "big") + b"\x00\x00\x01" + write_integer(1 << 1023) + write_integer(17)
    unknown = b"\x04" + CREATED.to_bytes(4, "big") + bytes([99]) + b"whatever it holds"
    curve = b"\x04" + CREATED.to_bytes(4, "big") + bytes([22, 3]) + b"\x2b\x65\x71" + write_integer(1 << 455)
    return [
        write_packet(PUBLIC_KEY, body) + write_packet(USER_ID, b"Foreign %d" % at)
        for at, body in enumerate((version6, version3, unknown, curve))
    ]
