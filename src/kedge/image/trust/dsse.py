# SPDX-License-Identifier: BSD-3-Clause
"""DSSE envelopes: a payload with signatures of raw keys over its type, length and bytes (DSSE 1.0)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass

from kedge.errors import SignatureInvalid
from kedge.image.trust.crypto import SigningKey, VerifyingKey

PAYLOAD_TYPE = "application/vnd.sylabs.sif-metadata+json"
_MAXIMUM_SIGNATURES = 64


@dataclass(frozen=True, slots=True)
class EnvelopeSignature:
    """One signature and a hint at its key."""

    key_id: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload and the signatures over it."""

    payload_type: str
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]

    def encode(self) -> bytes:
        """The envelope as compact JSON."""
        signatures = [
            {"keyid": item.key_id, "sig": base64.b64encode(item.signature).decode()} for item in self.signatures
        ]
        payload = base64.b64encode(self.payload).decode()
        document = {"payloadType": self.payload_type, "payload": payload, "signatures": signatures}
        return json.dumps(document, separators=(",", ":")).encode()


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: the bytes that the signatures cover."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def is_envelope(data: bytes) -> bool:
    """Whether the bytes look like an envelope around image digests."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("payloadType") == PAYLOAD_TYPE


def parse_envelope(data: bytes, what: str) -> Envelope:
    """Read an envelope; refuses anything else."""
    try:
        document = json.loads(data)
        signatures = tuple(
            EnvelopeSignature(_check_text(item.get("keyid") or ""), _decode(item["sig"]))
            for item in document["signatures"][: _MAXIMUM_SIGNATURES + 1]
        )
        envelope = Envelope(_check_text(document["payloadType"]), _decode(document["payload"]), signatures)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise SignatureInvalid(f"{what} is not a readable DSSE envelope") from problem
    if envelope.payload_type != PAYLOAD_TYPE:
        raise SignatureInvalid(f"{what} signs something else: {envelope.payload_type[:60]!r}")
    if not 0 < len(signatures) <= _MAXIMUM_SIGNATURES:
        raise SignatureInvalid(f"{what} holds no signature, or more than {_MAXIMUM_SIGNATURES}")
    return envelope


def _check_text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(value)
    return value


def _decode(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError(value)
    # both base64 alphabets are allowed, with or without padding
    text = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as problem:
        raise ValueError("base64") from problem


def sign_payload(payload: bytes, keys: Sequence[SigningKey]) -> Envelope:
    """An envelope with one signature of each key."""
    message = encode_for_signing(PAYLOAD_TYPE, payload)
    signatures = tuple(EnvelopeSignature(key.public.key_id, key.sign(message)) for key in keys)
    return Envelope(PAYLOAD_TYPE, payload, signatures)


def find_signers(envelope: Envelope, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
    """The keys that signed the envelope; its key ids are hints and are not trusted."""
    message = encode_for_signing(envelope.payload_type, envelope.payload)
    return tuple(key for key in keys if any(key.is_signature(message, item.signature) for item in envelope.signatures))
