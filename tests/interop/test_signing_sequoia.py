# SPDX-License-Identifier: BSD-3-Clause
"""OpenPGP against Sequoia, both ways: keys, rings, cleartext signatures, changed texts. It judges (docs/adr/0005)."""

from __future__ import annotations

import random
import time

import pysequoia
import pytest

from kedge.errors import KedgeError
from kedge.image.trust.openpgp.armor import canonicalize_text, parse_cleartext, write_cleartext
from kedge.image.trust.openpgp.key_validity import check_document, judge
from kedge.image.trust.openpgp.keys import KeyBlock, make_public, read_keys
from kedge.image.trust.openpgp.secret import Owner, generate_key
from kedge.image.trust.openpgp.signature import TEXT, make_signature, read_signatures
from kedge.image.trust.sign import unlock_key
from tests.builders.rows import each_row
from tests.interop.test_signing_gpg import TEXTS

SUITES = {
    suite: getattr(pysequoia.CipherSuite, suite) for suite in ("Cv25519", "RSA2k", "RSA3k", "P256", "P384", "P521")
}


@pytest.fixture(scope="module")
def our_key() -> KeyBlock:
    return generate_key(Owner("Ann", "ann@test.example", ""), 2048, None, int(time.time()) - 60)


def make_key(suite: str) -> pysequoia.Tsk:
    name = f"{suite} <{suite}@test.example>"
    return pysequoia.Tsk.generate(name, profile=pysequoia.Profile.RFC4880, cipher_suite=SUITES[suite])


def accepts(message: bytes, *certificates: pysequoia.Cert) -> bool:
    """Whether Sequoia finds the signature good; it gives no other reason than that it is not."""
    try:
        pysequoia.verify(bytes=message, store=lambda _: list(certificates))
    except (RuntimeError, ValueError):
        return False
    return True


def we_accept(message: bytes, block: KeyBlock) -> bool:
    now = int(time.time()) + 60
    try:
        parsed = parse_cleartext(message, "the message")
        signature = read_signatures(parsed.signature, "the signature")[0]
        check_document(judge(block, now), signature, parsed.signed, now, "the signature")
    except KedgeError:
        return False
    return True


@each_row("suite", SUITES)
def test_sequoia_signature_is_verified(suite: str) -> None:
    key = make_key(suite)
    block = read_keys(bytes(key.extract_certificate()), "Sequoia's key")[0]
    assert block.fingerprint.lower() == key.extract_certificate().fingerprint.lower()
    for text in TEXTS:
        message = pysequoia.sign(key.signer(), text, mode=pysequoia.SignatureMode.CLEAR)
        assert we_accept(message, block)


def sign(block: KeyBlock, text: bytes) -> bytes:
    now = int(time.time()) - 30
    key = unlock_key(block, lambda _: "", now)
    return write_cleartext(text, "sha256", make_signature(key.signer, TEXT, canonicalize_text(text), now))


def test_sequoia_and_we_judge_changed_messages_alike(our_key: KeyBlock) -> None:
    """A bit of the text or of the signature is changed; what neither reads as another message is refused by both."""
    chosen = random.Random(57)
    message = sign(our_key, b'{"version":1,"objects":[1,2,3]}')
    certificate = pysequoia.Cert.from_bytes(make_public(our_key).raw)
    assert accepts(message, certificate)
    assert we_accept(message, our_key)
    assert all(accepts(sign(our_key, text), certificate) for text in TEXTS)
    start = message.index(b"{")
    for _ in range(150):
        changed = bytearray(message)
        changed[chosen.randrange(start, len(message))] ^= 1 << chosen.randrange(7)
        if we_accept(bytes(changed), our_key):
            assert accepts(bytes(changed), certificate), bytes(changed)


def test_sequoia_splits_rings_as_we_do() -> None:
    certificates = [make_key(suite).extract_certificate() for suite in SUITES]
    ring = b"".join(bytes(certificate) for certificate in certificates)
    ours = [block.fingerprint.lower() for block in read_keys(ring, "the ring")]
    assert ours == [certificate.fingerprint.lower() for certificate in pysequoia.Cert.split_bytes(ring)]
    assert b"".join(block.raw for block in read_keys(ring, "the ring")) == ring
