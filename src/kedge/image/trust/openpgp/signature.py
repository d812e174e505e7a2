# SPDX-License-Identifier: BSD-3-Clause
"""Version 4 signature packets: reading, checking and making them (RFC 9580 section 5.2)."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from kedge.errors import KedgeError, KeyUnusable, SignatureInvalid
from kedge.image.trust.openpgp import algorithms
from kedge.image.trust.openpgp.packets import SIGNATURE, ByteReader, read_packets, write_length, write_packet

BINARY = 0x00
TEXT = 0x01
CERTIFICATIONS = frozenset({0x10, 0x11, 0x12, 0x13})
POSITIVE_CERTIFICATION = 0x13
SUBKEY_BINDING = 0x18
PRIMARY_BINDING = 0x19
DIRECT_KEY = 0x1F
KEY_REVOCATION = 0x20
SUBKEY_REVOCATION = 0x28
CERTIFICATION_REVOCATION = 0x30
REVOCATIONS = frozenset({KEY_REVOCATION, SUBKEY_REVOCATION, CERTIFICATION_REVOCATION})

CREATED = 2
SIGNATURE_LIFETIME = 3
KEY_LIFETIME = 9
PREFERRED_CIPHERS = 11
_ISSUER_KEY_ID = 16
NOTATION = 20
PREFERRED_HASHES = 21
PREFERRED_COMPRESSION = 22
PRIMARY_USER_ID = 25
KEY_FLAGS = 27
REVOCATION_REASON = 29
FEATURES = 30
EMBEDDED_SIGNATURE = 32
_ISSUER_FINGERPRINT = 33
# what a signature may call critical without making it worthless to us: kinds whose meaning is taken into account
# or does not matter for judging a signature
_UNDERSTOOD = frozenset({2, 3, 4, 7, 9, 11, 16, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 32, 33, 34})

CAN_CERTIFY = 0x01
CAN_SIGN = 0x02
_CLOCK_TOLERANCE = 24 * 3600  # nodes of a cluster do not all have the same time


@dataclass(frozen=True, slots=True)
class Subpacket:
    """One statement inside a signature."""

    kind: int
    critical: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """A version 4 signature; `hashed` statements are covered by it, `unhashed` ones are only hints."""

    kind: int
    algorithm: int
    hash_number: int
    hashed: tuple[Subpacket, ...]
    unhashed: tuple[Subpacket, ...]
    head: bytes  # the packet's bytes that are hashed
    digest_start: bytes
    numbers: bytes
    raw: bytes

    def find(self, kind: int) -> bytes | None:
        """The body of a hashed statement, or None."""
        return next((item.body for item in self.hashed if item.kind == kind), None)

    @property
    def created(self) -> int:
        """Time of creation; 0 if unknown."""
        body = self.find(CREATED)
        return int.from_bytes(body, "big") if body is not None and len(body) == 4 else 0

    @property
    def expires(self) -> int | None:
        """Time at which the signature itself expires."""
        body = self.find(SIGNATURE_LIFETIME)
        seconds = int.from_bytes(body, "big") if body is not None and len(body) == 4 else 0
        return self.created + seconds if seconds else None

    @property
    def issuer_fingerprint(self) -> str | None:
        """The signer's fingerprint, upper-case hex, when the signature names it."""
        for item in (*self.hashed, *self.unhashed):
            if item.kind == _ISSUER_FINGERPRINT and len(item.body) == 21 and item.body[0] == 4:
                return item.body[1:].hex().upper()
        return None

    @property
    def issuer_key_id(self) -> str | None:
        """The signer's key identifier (16 hex digits)."""
        fingerprint = self.issuer_fingerprint
        if fingerprint is not None:
            return fingerprint[-16:]
        for item in (*self.hashed, *self.unhashed):
            if item.kind == _ISSUER_KEY_ID and len(item.body) == 8:
                return item.body.hex().upper()
        return None

    @property
    def unknown_critical(self) -> int | None:
        """A hashed statement that is critical and unknown."""
        return next((item.kind for item in self.hashed if item.critical and item.kind not in _UNDERSTOOD), None)


def parse_signature(body: bytes, raw: bytes, what: str) -> Signature:
    """Read one signature packet's body."""
    reader = ByteReader(body, what)
    version = reader.take_number(1)
    if version != 4:
        raise KeyUnusable(f"{what} has version {version}; version 4 is the one supported")
    kind, algorithm, hash_number = reader.take(3)
    hashed_bytes = reader.take(reader.take_number(2))
    head = body[: reader.position]
    unhashed_bytes = reader.take(reader.take_number(2))
    hashed = _read_subpackets(hashed_bytes, what)
    unhashed = _read_subpackets(unhashed_bytes, what)
    start = reader.take(2)
    return Signature(
        kind=kind,
        algorithm=algorithm,
        hash_number=hash_number,
        hashed=hashed,
        unhashed=unhashed,
        head=head,
        digest_start=start,
        numbers=reader.take_rest(),
        raw=raw,
    )


def read_signatures(data: bytes, what: str) -> list[Signature]:
    """The signature packets of a detached or cleartext signature; refuses other packets, skips other versions."""
    signatures: list[Signature] = []
    refused: KedgeError | None = None
    for packet in read_packets(data, what):
        if packet.tag != SIGNATURE:
            raise SignatureInvalid(f"{what} holds a packet of kind {packet.tag} beside signatures")
        try:
            signatures.append(parse_signature(packet.body, packet.raw, what))
        except KeyUnusable as problem:
            refused = problem
    if not signatures:
        raise SignatureInvalid(refused.message if refused else f"{what} is empty")
    return signatures


def _read_subpackets(data: bytes, what: str) -> tuple[Subpacket, ...]:
    reader = ByteReader(data, what)
    subpackets: list[Subpacket] = []
    while reader.left:
        length = reader.take_number(1)
        if 192 <= length < 255:
            length = ((length - 192) << 8) + reader.take_number(1) + 192
        elif length == 255:
            length = reader.take_number(4)
        if not length:
            raise KeyUnusable(f"{what} holds an empty statement")
        kind = reader.take_number(1)
        subpackets.append(Subpacket(kind & 0x7F, bool(kind & 0x80), reader.take(length - 1)))
    return tuple(subpackets)


def compute_digest(signature: Signature, content: bytes, what: str, *, allow_sha1: bool = False) -> tuple[str, bytes]:
    """The hash's name and the digest that the signature's numbers sign."""
    name, state = algorithms.start_hash(signature.hash_number, what=what, allow_sha1=allow_sha1)
    state.update(content)
    state.update(signature.head)
    state.update(b"\x04\xff" + len(signature.head).to_bytes(4, "big"))
    return name, state.digest()


def check_numbers(
    signature: Signature, public: algorithms.PublicNumbers, content: bytes, what: str, *, allow_sha1: bool = False
) -> None:
    """Refuse a signature that the key did not make over the content; checks nothing else."""
    same_family = {signature.algorithm, public.algorithm} <= {algorithms.RSA, algorithms.RSA_SIGN_ONLY}
    if signature.algorithm != public.algorithm and not same_family:
        raise SignatureInvalid(
            f"{what} was made with {algorithms.name_algorithm(signature.algorithm)}, not with this key"
        )
    name, digest = compute_digest(signature, content, what, allow_sha1=allow_sha1)
    if signature.digest_start != digest[:2] or not algorithms.is_good_signature(
        public, name, digest, signature.numbers
    ):
        raise SignatureInvalid(
            f"{what} does not match the signed content", hint="the content or the signature was changed"
        )


def check_times(signature: Signature, now: int, what: str) -> None:
    """Refuse a signature that is from the future, has expired, or has an unknown critical statement."""
    if not signature.created:
        raise SignatureInvalid(f"{what} does not say when it was made")
    if signature.created > now + _CLOCK_TOLERANCE:
        raise SignatureInvalid(
            f"{what} is dated {format_time(signature.created)}, in the future; check this node's clock"
        )
    if signature.expires is not None and signature.expires <= now:
        raise SignatureInvalid(f"{what} expired on {format_time(signature.expires)}")
    unknown = signature.unknown_critical
    if unknown is not None:
        raise SignatureInvalid(f"{what} demands a rule (kind {unknown}) that kedge does not know")


@dataclass(frozen=True, slots=True, repr=False)
class Signer:
    """An unlocked key."""

    fingerprint: str
    public: algorithms.PublicNumbers
    secret: algorithms.SecretNumbers


def make_signature(signer: Signer, kind: int, content: bytes, created: int, *more: Subpacket) -> bytes:
    """A new signature packet over the content (already encoded as its kind requires)."""
    hash_name = algorithms.choose_hash(signer.public)
    fingerprint = bytes.fromhex(signer.fingerprint)
    statements = [
        Subpacket(CREATED, True, created.to_bytes(4, "big")),
        Subpacket(_ISSUER_FINGERPRINT, False, b"\x04" + fingerprint),
        Subpacket(_ISSUER_KEY_ID, False, fingerprint[-8:]),
        *more,
    ]
    hashed = b"".join(_write_subpacket(item) for item in statements)
    head = bytes([4, kind, signer.public.algorithm, algorithms.HASH_NUMBERS[hash_name]])
    head += len(hashed).to_bytes(2, "big") + hashed
    draft = Signature(
        kind=kind,
        algorithm=signer.public.algorithm,
        hash_number=head[3],
        hashed=(),
        unhashed=(),
        head=head,
        digest_start=b"",
        numbers=b"",
        raw=b"",
    )
    name, digest = compute_digest(draft, content, "a new signature")
    numbers = algorithms.sign_digest(signer.public, signer.secret, name, digest)
    return write_packet(SIGNATURE, head + b"\x00\x00" + digest[:2] + numbers)


def _write_subpacket(item: Subpacket) -> bytes:
    return write_length(len(item.body) + 1) + bytes([item.kind | (0x80 if item.critical else 0)]) + item.body


def format_time(seconds: int) -> str:
    """A time for people, in UTC; takes any 64-bit number."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"
