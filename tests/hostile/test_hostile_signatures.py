# SPDX-License-Identifier: BSD-3-Clause
"""Damaged and hostile keys, armor, packets, envelopes and signature objects: a KedgeError, soon, or a refusal.

Mutations are made from a fixed seed, so that a failure can be repeated. Needs nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

from kedge.errors import KedgeError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.layout import DataType, HashType, pack_signature_extra
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.sif.writer import SifBuilder
from kedge.image.trust import dsse, keyserver
from kedge.image.trust.crypto import load_certificates, load_private_pem, load_public_pem, verify_ecdsa, verify_ed25519
from kedge.image.trust.digests import Digester, compute_metadata, parse_metadata
from kedge.image.trust.keyring import find_in_blocks
from kedge.image.trust.openpgp.armor import canonicalize_text, parse_cleartext, write_cleartext
from kedge.image.trust.openpgp.key_validity import judge
from kedge.image.trust.openpgp.keys import armor_block, make_public, merge_blocks, read_keys
from kedge.image.trust.openpgp.packets import write_integer, write_packet
from kedge.image.trust.openpgp.secret import parse_secret_key
from kedge.image.trust.openpgp.signature import TEXT, make_signature, read_signatures
from kedge.image.trust.verify import KnownKey, Material, VerifySelection, verify_image
from tests.builders.matrices import EVERY
from tests.builders.openpgp_keys import CREATED, NOW, bind, make_pair, rsa_block, simple_block, subkey_block
from tests.builders.rows import each_row

EVE = make_pair("ed25519", 501)
BLOCK = simple_block(EVE)
WITH_SUBKEY = subkey_block(EVE, make_pair("p256", 502), bind(EVE, make_pair("p256", 502)))
LIMIT_SECONDS = 8.0  # measured with memory tracing on, which is several times slower
LIMIT_MEMORY = 64 << 20


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fail when the block takes long or much memory; KedgeErrors are what is expected of it."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with contextlib.suppress(KedgeError):
            yield
        assert time.process_time() - start < LIMIT_SECONDS
        assert tracemalloc.get_traced_memory()[1] < LIMIT_MEMORY
    finally:
        tracemalloc.stop()


def mutate(data: bytes, seed: int) -> bytes:
    """Some small damage: flips, cuts, repeats, insertions, zeros, large lengths."""
    chance = random.Random(seed)
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) or 1)
        kind = chance.randrange(6)
        if kind == 0 and changed:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at:at] = changed[at : at + chance.randrange(200)]
        elif kind == 3:
            changed[at:at] = chance.randbytes(chance.randrange(20))
        elif kind == 4:
            changed[at : at + 4] = b"\xff\xff\xff\xff"
        else:
            changed[at : at + 8] = bytes(8)
    return bytes(changed)


def use_key(data: bytes) -> None:
    """Everything that is done with a key file."""
    for block in read_keys(data, "the file"):
        assert block.raw
        with contextlib.suppress(KedgeError):
            judge(block, NOW)
        with contextlib.suppress(KedgeError):
            make_public(block)
        merge_blocks(block, BLOCK)
        if block.is_secret:
            with contextlib.suppress(KedgeError):
                parse_secret_key(block.packet.body, "the key").unlock("x")


KEY_FORMS = {
    "public": make_public(WITH_SUBKEY).raw,
    "secret": WITH_SUBKEY.raw,
    "armored": armor_block(make_public(WITH_SUBKEY)),
    "locked": rsa_block("Locked", "correct horse").raw,
}


SEEDS = range(8)  # of each kind of damage; `make test-all` tries many more


def try_seeds(try_one: Callable[[int], None], is_every: bool) -> None:
    """All damage that is made by seeds, so that a failure can be repeated."""
    for seed in range(200) if is_every else SEEDS:
        with bounded():
            try_one(seed)


@EVERY
@each_row("form", KEY_FORMS)
def test_hostile_key_mutations(form: str, is_every: bool) -> None:
    try_seeds(lambda seed: use_key(mutate(KEY_FORMS[form], seed)), is_every)


@EVERY
@each_row("form", ["public", "secret"])
def test_hostile_key_cut_anywhere_is_an_error_or_a_smaller_key(form: str, is_every: bool) -> None:
    data = KEY_FORMS[form]
    whole = judge(read_keys(data, "whole")[0], NOW)
    for length in range(0, len(data), 1 if is_every else 3):
        with contextlib.suppress(KedgeError):
            for block in read_keys(data[:length], "cut"):
                judged = judge(block, NOW)
                assert judged.fingerprint == whole.fingerprint
                assert len(judged.user_ids) <= len(whole.user_ids)


def test_hostile_key_mutations_never_gain_trust() -> None:
    """A damaged key may lose names and powers; it never gets ones that its owner did not give it."""
    data = KEY_FORMS["public"]
    whole = judge(read_keys(data, "whole")[0], NOW)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x01
        with contextlib.suppress(KedgeError):
            for block in read_keys(bytes(changed), "changed"):
                judged = judge(block, NOW)
                if judged.fingerprint == whole.fingerprint:
                    assert set(judged.user_ids) <= set(whole.user_ids)
                    assert not judged.primary.can_sign
                else:
                    assert judged.primary.problem


def make_document() -> bytes:
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="amd64", created=1_600_000_000, seed=b"hostile")
    builder.add(DataObject(DataType.GENERIC, b"data"))
    builder.finish()
    return compute_metadata(Digester(SifReader(file)), 1).encode()


DOCUMENT = make_document()
MESSAGE = write_cleartext(DOCUMENT, "sha256", make_signature(EVE.signer, TEXT, canonicalize_text(DOCUMENT), NOW - 1))
ENVELOPE = dsse.Envelope(dsse.PAYLOAD_TYPE, DOCUMENT, (dsse.EnvelopeSignature("SHA256:x", bytes(64)),)).encode()


def verify_object(content: bytes) -> bool:
    """Whether an image is accepted whose signature object holds this."""
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="amd64", created=1_600_000_000, seed=b"hostile")
    builder.add(DataObject(DataType.GENERIC, b"data"))
    extra = pack_signature_extra(HashType.SHA256, bytes.fromhex(EVE.key.fingerprint))
    builder.add(DataObject(DataType.SIGNATURE, content, group=0, link=1, links_group=True, extra=extra))
    builder.finish()
    public = [make_public(BLOCK)]
    material = Material(lambda name: [KnownKey(block, "LOCAL") for block in find_in_blocks(public, name)])
    return verify_image(SifReader(file, "image"), material, VerifySelection(), NOW).is_good


def test_hostile_signature_object_baseline_is_accepted() -> None:
    assert verify_object(MESSAGE)


@EVERY
def test_hostile_signature_object_mutations(is_every: bool) -> None:
    def try_one(seed: int) -> None:
        damaged = mutate(MESSAGE, seed)
        assert not verify_object(damaged) or parse_cleartext(damaged, "m").signed == DOCUMENT

    try_seeds(try_one, is_every)


@EVERY
def test_hostile_envelope_mutations(is_every: bool) -> None:
    def try_one(seed: int) -> None:
        damaged = mutate(ENVELOPE, seed)
        assert not verify_object(damaged)
        dsse.parse_envelope(damaged, "e")

    try_seeds(try_one, is_every)


STRANGE: dict[str, Callable[[], object]] = {
    "empty signature object": lambda: verify_object(b""),
    "binary signature object": lambda: verify_object(bytes(range(256)) * 100),
    "signature object of a megabyte": lambda: verify_object(b"\n" * (1 << 20)),
    "signature object too large": lambda: verify_object(b"x" * ((1 << 20) + 1)),
    "deep json": lambda: verify_object(b"[" * 200_000),
    "deep json in a message": lambda: parse_metadata(b'{"version":' + b"[" * 200_000, "m"),
    "huge number in json": lambda: parse_metadata(b'{"version":' + b"9" * 100_000 + b"}", "m"),
    "nan version": lambda: parse_metadata(b'{"version":NaN,"header":{},"objects":[]}', "m"),
    "message of dashes": lambda: parse_cleartext(b"-----BEGIN PGP SIGNED MESSAGE-----\n\n" + b"-\n" * 100_000, "m"),
    "many begin lines": lambda: read_keys(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n" * 20_000, "k"),
    "many armored blocks": lambda: read_keys(armor_block(make_public(BLOCK)) * 200, "k"),
    "many empty packets": lambda: read_keys(make_public(BLOCK).raw + b"\xcd\x00" * 30_000, "k"),
    "too many packets": lambda: read_keys(make_public(BLOCK).raw + b"\xcd\x00" * 101_000, "k"),
    "long armor": lambda: read_keys(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + b"A" * (17 << 20), "k"),
    "packet of four gigabytes": lambda: read_keys(b"\xc6\xff\xff\xff\xff\xff" + bytes(100), "k"),
    "many signatures": lambda: read_signatures(make_signature(EVE.signer, TEXT, b"", NOW) * 6_000, "s"),
    "index of a million lines": lambda: keyserver.parse_index(b"pub:AA\n" * 1_000_000),
    "index of one long line": lambda: keyserver.parse_index(b"pub:" + b"A:" * 1_000_000),
    "pem of zeros": lambda: load_public_pem(bytes(1 << 20), where="k"),
    "pem with broken text": lambda: load_private_pem(b"-----BEGIN PRIVATE KEY-----\n\xff", None, where="k"),
    "certificates that are none": lambda: load_certificates(b"-----BEGIN CERTIFICATE-----\n" * 10_000, where="c"),
    "envelope with many signatures": lambda: dsse.parse_envelope(
        json.dumps({"payloadType": dsse.PAYLOAD_TYPE, "payload": "", "signatures": [{"sig": "AA"}] * 30_000}).encode(),
        "e",
    ),
    "envelope of wrong types": lambda: dsse.parse_envelope(b'{"payloadType":1,"payload":[],"signatures":{"a":1}}', "e"),
    "envelope with null signature": lambda: dsse.parse_envelope(
        b'{"payloadType":"x","payload":"","signatures":[null]}', "e"
    ),
}


@each_row("name", STRANGE)
def test_hostile_strange_input_is_bounded(name: str) -> None:
    with bounded():
        STRANGE[name]()


def rsa_packet(modulus: int, exponent: int) -> bytes:
    body = b"\x04" + CREATED.to_bytes(4, "big") + b"\x01" + write_integer(modulus) + write_integer(exponent)
    return write_packet(6, body) + write_packet(13, b"Name")


ALL_ONES = (1 << 2048) - 1
RSA_NUMBERS = {
    "nothing": (0, 0),
    "one": (1, 3),
    "tiny": (15, 3),
    "short": (1 << 1024, 65537),
    "exponent one": (ALL_ONES, 1),
    "exponent two": (ALL_ONES, 2),
    "huge exponent": (ALL_ONES, (1 << 2047) + 1),
    "as large as is accepted": ((1 << 16384) - 1, 65537),
    "too large": ((1 << 16399) + 1, 65537),
    "even": (1 << 2047, 65537),
}


@each_row("name", RSA_NUMBERS)
def test_hostile_rsa_numbers_are_bounded(name: str) -> None:
    modulus, exponent = RSA_NUMBERS[name]
    with bounded():
        block = read_keys(rsa_packet(modulus, exponent), "k")[0]
        assert block.key is not None
        key = block.key
        certification = b"\x04\x13\x01\x08\x00\x06\x05\x02" + NOW.to_bytes(4, "big")
        unhashed = b"\x00\x0a\x09\x10" + bytes.fromhex(key.key_id)
        numbers = write_integer(modulus >> 1)
        signature = write_packet(2, certification + unhashed + b"\0\0" + numbers)
        assert judge(read_keys(block.raw + signature * 20, "k")[0], NOW).primary.problem


@each_row("point", [b"\x04" + bytes(64), b"\x04" + b"\xff" * 64, b"\x02" + bytes(32), b"\x04", b"\x40" * 33])
def test_hostile_curve_points_verify_nothing(point: bytes) -> None:
    assert not verify_ecdsa("p256", point, "sha256", bytes(32), (1, 1))
    assert not verify_ed25519(point, b"", bytes(64))


@each_row("pair", [(0, 0), (0, 1), (1, 0), (1 << 256, 1), (1, 1 << 4000)], ids=range(5))
def test_hostile_ecdsa_numbers_verify_nothing(pair: tuple[int, int]) -> None:
    assert not verify_ecdsa("p256", make_pair("p256", 5).key.numbers.point, "sha256", bytes(32), pair)


@each_row("code", [0x00, 0x60, 0xFF])
def test_hostile_passphrase_counts_are_bounded(code: int) -> None:
    protection = bytes([254, 9, 3, 10]) + bytes(8) + bytes([code]) + bytes(16)
    with bounded():
        parse_secret_key(EVE.key.body + protection + bytes(60), "the key").unlock("x" * 1000)
