# SPDX-License-Identifier: BSD-3-Clause
"""Public key algorithms: the layout of their numbers in packets, and how they check and make signatures."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kedge.errors import KeyUnusable, SignatureInvalid
from kedge.image.trust import crypto
from kedge.image.trust.openpgp.packets import ByteReader, write_integer

RSA = 1
_RSA_ENCRYPT_ONLY = 2
RSA_SIGN_ONLY = 3
_ELGAMAL = 16
DSA = 17
_ECDH = 18
ECDSA = 19
EDDSA = 22  # Ed25519 as GnuPG writes it, before RFC 9580 gave it a number of its own
_X25519 = 25
ED25519 = 27

NAMES = {
    RSA: "RSA",
    _RSA_ENCRYPT_ONLY: "RSA",
    RSA_SIGN_ONLY: "RSA",
    _ELGAMAL: "Elgamal",
    DSA: "DSA",
    _ECDH: "ECDH",
    ECDSA: "ECDSA",
    EDDSA: "EdDSA",
    _X25519: "X25519",
    ED25519: "Ed25519",
}
SIGNING = frozenset({RSA, RSA_SIGN_ONLY, DSA, ECDSA, EDDSA, ED25519})

_HASHES = {8: "sha256", 9: "sha384", 10: "sha512", 11: "sha224"}
HASH_NUMBERS = {name: number for number, name in _HASHES.items()}
_WEAK_HASHES = {1: "MD5", 2: "SHA1", 3: "RIPEMD160"}

_CURVES = {
    bytes.fromhex("2a8648ce3d030107"): ("p256", 256),
    bytes.fromhex("2b81040022"): ("p384", 384),
    bytes.fromhex("2b81040023"): ("p521", 521),
}
ED25519_OID = bytes.fromhex("2b06010401da470f01")


@dataclass(frozen=True, slots=True)
class PublicNumbers:
    """The public part of a key: numbers for RSA and DSA, curve and point for the others."""

    algorithm: int
    bits: int
    numbers: tuple[int, ...] = ()
    curve: str = ""
    point: bytes = b""

    @property
    def can_sign(self) -> bool:
        """Whether kedge can check signatures of this key."""
        if self.algorithm in (ECDSA, EDDSA):
            return bool(self.curve)
        return self.algorithm in SIGNING


@dataclass(frozen=True, slots=True, repr=False)
class SecretNumbers:
    """The secret part of a key, in the order of the packet."""

    numbers: tuple[int, ...] = ()
    seed: bytes = b""


def read_public(reader: ByteReader, algorithm: int) -> PublicNumbers:
    """The public numbers at the reader's position; KeyUnusable for unknown algorithms."""
    if algorithm in (RSA, _RSA_ENCRYPT_ONLY, RSA_SIGN_ONLY):
        modulus, exponent = reader.take_integer(), reader.take_integer()
        return PublicNumbers(algorithm, modulus.bit_length(), (modulus, exponent))
    if algorithm == DSA:
        numbers = tuple(reader.take_integer() for _ in range(4))
        return PublicNumbers(algorithm, numbers[0].bit_length(), numbers)
    if algorithm == _ELGAMAL:
        numbers = tuple(reader.take_integer() for _ in range(3))
        return PublicNumbers(algorithm, numbers[0].bit_length(), numbers)
    if algorithm in (ECDSA, EDDSA, _ECDH):
        return _read_curve(reader, algorithm)
    if algorithm in (ED25519, _X25519):
        return PublicNumbers(algorithm, 256, (), "ed25519" if algorithm == ED25519 else "", reader.take(32))
    raise KeyUnusable(f"{reader.what} uses the unknown public key algorithm {algorithm}")


def _read_curve(reader: ByteReader, algorithm: int) -> PublicNumbers:
    oid = reader.take(reader.take_number(1))
    encoded = reader.take_integer()
    point = encoded.to_bytes((encoded.bit_length() + 7) // 8, "big")
    if algorithm == _ECDH:
        reader.take(reader.take_number(1))  # which hash and cipher wrap the session key: of no interest here
        return PublicNumbers(algorithm, len(point) * 4, (), "", point)
    if algorithm == EDDSA and oid == ED25519_OID:
        if len(point) != 33 or point[0] != 0x40:
            raise KeyUnusable(f"{reader.what} holds an Ed25519 point of {len(point)} bytes")
        return PublicNumbers(algorithm, 256, (), "ed25519", point[1:])
    name, bits = _CURVES.get(oid, ("", len(point) * 4)) if algorithm == ECDSA else ("", len(point) * 8)
    return PublicNumbers(algorithm, bits, (), name, point)


def read_secret(reader: ByteReader, public: PublicNumbers) -> SecretNumbers:
    """The secret numbers of a public key that can sign."""
    count = {RSA: 4, RSA_SIGN_ONLY: 4, DSA: 1, ECDSA: 1, EDDSA: 1}.get(public.algorithm)
    if public.algorithm == ED25519:
        return SecretNumbers(seed=reader.take(32))
    if count is None or not public.can_sign:
        raise KeyUnusable(f"{reader.what}: a key of this kind does not sign")
    numbers = tuple(reader.take_integer() for _ in range(count))
    if public.algorithm != EDDSA:
        return SecretNumbers(numbers)
    if numbers[0].bit_length() > 256:
        raise KeyUnusable(f"{reader.what}: the secret Ed25519 key is too long")
    return SecretNumbers(seed=numbers[0].to_bytes(32, "big"))


def check_pair(public: PublicNumbers, secret: SecretNumbers) -> None:
    """Refuse a secret that does not match the public key: signing with it would leak it, or be worthless."""
    if public.algorithm in (RSA, RSA_SIGN_ONLY):
        crypto.sign_rsa(_rsa_secret(public, secret), "sha256", bytes(32))  # checks the numbers on its way
    elif public.curve == "ed25519":
        if crypto.derive_ed25519_public(secret.seed) != public.point:
            raise KeyUnusable("the secret Ed25519 key does not belong to its public key")
    elif public.algorithm == ECDSA:
        if crypto.derive_ecdsa_point(public.curve, secret.numbers[0]) != public.point:
            raise KeyUnusable("the secret ECDSA key does not belong to its public key")
    else:
        raise KeyUnusable("signing with DSA keys is not supported", hint="use an RSA, ECDSA or Ed25519 key")


def _rsa_secret(public: PublicNumbers, secret: SecretNumbers) -> crypto.RsaSecret:
    private, prime_p, prime_q, inverse = secret.numbers
    return crypto.RsaSecret(public.numbers[0], public.numbers[1], private, prime_p, prime_q, inverse)


def is_good_signature(public: PublicNumbers, hash_name: str, digest: bytes, signature: bytes) -> bool:
    """Whether the key made the signature's numbers over the digest."""
    reader = ByteReader(signature, "the signature")
    if public.algorithm in (RSA, RSA_SIGN_ONLY):
        return crypto.verify_rsa(public.numbers[0], public.numbers[1], hash_name, digest, reader.take_integer())
    if public.algorithm == ED25519:
        return crypto.verify_ed25519(public.point, digest, reader.take(64))
    if not public.can_sign:
        raise SignatureInvalid(f"kedge cannot check signatures with {NAMES.get(public.algorithm, 'unknown')} keys")
    r, s = reader.take_integer(), reader.take_integer()
    if public.algorithm == DSA:
        numbers = (public.numbers[0], public.numbers[1], public.numbers[2], public.numbers[3])
        return crypto.verify_dsa(numbers, digest, r, s)
    if public.algorithm == EDDSA:
        if max(r.bit_length(), s.bit_length()) > 256:
            return False
        return crypto.verify_ed25519(public.point, digest, r.to_bytes(32, "big") + s.to_bytes(32, "big"))
    return crypto.verify_ecdsa(public.curve, public.point, hash_name, digest, (r, s))


def sign_digest(public: PublicNumbers, secret: SecretNumbers, hash_name: str, digest: bytes) -> bytes:
    """The numbers of a new signature, encoded for a packet."""
    if public.algorithm in (RSA, RSA_SIGN_ONLY):
        return write_integer(crypto.sign_rsa(_rsa_secret(public, secret), hash_name, digest))
    if public.algorithm == ED25519:
        return crypto.sign_ed25519(secret.seed, digest)
    if public.algorithm == EDDSA:
        made = crypto.sign_ed25519(secret.seed, digest)
        return write_integer(int.from_bytes(made[:32], "big")) + write_integer(int.from_bytes(made[32:], "big"))
    r, s = crypto.sign_ecdsa(public.curve, secret.numbers[0], hash_name, digest)
    return write_integer(r) + write_integer(s)


def choose_hash(public: PublicNumbers) -> str:
    """SHA-256, or a longer hash for a larger curve."""
    return {"p384": "sha384", "p521": "sha512"}.get(public.curve, "sha256")


def name_algorithm(number: int) -> str:
    """`RSA`, or `algorithm 99`."""
    return NAMES.get(number, f"algorithm {number}")


def start_hash(number: int, *, what: str, allow_sha1: bool = False) -> tuple[str, hashlib._Hash]:
    """The name of a hash algorithm and a fresh hash; refuses weak and unknown ones."""
    if number == 2 and allow_sha1:
        return "sha1", hashlib.new("sha1", usedforsecurity=False)
    if number in _WEAK_HASHES:
        raise SignatureInvalid(
            f"{what} uses the hash {_WEAK_HASHES[number]}, which can be forged",
            hint="have it made again with SHA-256 or better",
        )
    if number not in _HASHES:
        raise SignatureInvalid(f"{what} uses the unknown hash algorithm {number}")
    return _HASHES[number], hashlib.new(_HASHES[number])
