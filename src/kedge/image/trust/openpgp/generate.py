# SPDX-License-Identifier: BSD-3-Clause
"""New key pairs: an RSA primary key that certifies and signs, with one user id."""

from __future__ import annotations

from dataclasses import dataclass

from kedge.errors import UsageError
from kedge.image.trust import crypto
from kedge.image.trust.openpgp import signature as sig
from kedge.image.trust.openpgp.algorithms import RSA, PublicNumbers, SecretNumbers
from kedge.image.trust.openpgp.keys import KeyBlock, parse_public_key, split_blocks
from kedge.image.trust.openpgp.packets import SECRET_KEY, USER_ID, read_packets, write_integer, write_packet
from kedge.image.trust.openpgp.secret import write_secret_body
from kedge.image.trust.openpgp.signature import Signer, Subpacket, make_signature

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
