# SPDX-License-Identifier: BSD-3-Clause
"""The signed document, DSSE envelopes, PEM keys and certificates. Needs openssl; some tests the shared fixtures."""

from __future__ import annotations

import base64
import io
import json
import time
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.errors import KeyUnusable, SignatureInvalid
from kedge.image.formats.sif.layout import DataType
from kedge.image.formats.sif.reader import SifReader
from kedge.image.trust import dsse
from kedge.image.trust.certificates import CertificateFiles, load_certified_key
from kedge.image.trust.crypto import PassphraseNeeded, decrypt_cfb, encrypt_cfb, load_private_pem, load_public_pem
from kedge.image.trust.digests import Digester, compute_metadata, parse_metadata
from tests.builders.pem_keys import KINDS, make_certificate, make_pem, run_openssl
from tests.builders.rows import each_row
from tests.builders.sif import build_sif, fixture_path

AUTHORITY = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
CODE = "basicConstraints=CA:FALSE\nextendedKeyUsage=codeSigning\n"


@each_row("name", ["one-group-signed-pgp.sif", "one-group-signed-dsse.sif"])
def test_document_recomputed_is_the_one_that_was_signed(name: str) -> None:
    path = fixture_path(name)
    with path.open("rb") as file:
        reader = SifReader(file)
        made = compute_metadata(Digester(reader), 1).encode()
        stored = reader.read_object(next(d for d in reader.descriptors if d.data_type == DataType.SIGNATURE))
    if name.endswith("dsse.sif"):
        assert base64.b64decode(json.loads(stored)["payload"]) == made
    else:
        assert stored.split(b"\n")[3] == made
    assert parse_metadata(made, "m").encode() == made


def test_document_counts_objects_from_the_groups_first() -> None:
    reader = SifReader(io.BytesIO(build_sif([(DataType.GENERIC, b"a", b""), (DataType.GENERIC, b"b", b"")])))
    whole = compute_metadata(Digester(reader), 1)
    second = compute_metadata(Digester(reader), 1, (2,))
    assert [item.relative_id for item in whole.objects] == [0, 1]
    assert second.objects == whole.objects[1:]


SHA = "sha256:" + "0" * 64


@each_row(
    "document",
    [
        b"",
        b"[]",
        b"null",
        b'{"version":2,"header":{"digest":"%s"},"objects":[]}' % SHA.encode(),
        b'{"version":1,"header":{"digest":"md5:00"},"objects":[]}',
        b'{"version":1,"header":{"digest":"sha256:00"},"objects":[]}',
        b'{"version":1,"header":{},"objects":[]}',
        b'{"version":1,"header":{"digest":"%s"},"objects":{}}' % SHA.encode() + b" x",
        b'{"version":1,"header":{"digest":"%s"},"objects":[1]}' % SHA.encode(),
        b'{"version":1}',
        b"[" * 100_000,
    ],
)
def test_document_refuses_what_is_not_one(document: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        parse_metadata(document, "the document")


@each_row("number", [-1, True, 1.5, "0", 1 << 32, None])
def test_document_refuses_object_numbers(number: object) -> None:
    item = {"relativeId": number, "descriptorDigest": SHA, "objectDigest": SHA}
    document = {"version": 1, "header": {"digest": SHA}, "objects": [item]}
    with pytest.raises(SignatureInvalid):
        parse_metadata(json.dumps(document).encode(), "the document")


def test_document_refuses_an_object_named_twice() -> None:
    item = {"relativeId": 0, "descriptorDigest": SHA, "objectDigest": SHA}
    document = {"version": 1, "header": {"digest": SHA}, "objects": [item, item]}
    with pytest.raises(SignatureInvalid, match="twice"):
        parse_metadata(json.dumps(document).encode(), "the document")


def test_dsse_encoding_for_signing_golden() -> None:
    # the example of the DSSE specification
    made = dsse.encode_for_signing("http://example.com/HelloWorld", b"hello world")
    assert made == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@each_row("kind", ["ed25519", "rsa", "p256", "p384"])
def test_dsse_round_trip_with_every_kind_of_key(kind: str, tmp_path: Path) -> None:
    private, public = make_pem(tmp_path, kind)
    signing = load_private_pem(private.read_bytes(), None, where="key")
    verifying = load_public_pem(public.read_bytes(), where="key")
    assert signing.public == verifying
    envelope = dsse.parse_envelope(dsse.sign_payload(b"payload", [signing]).encode(), "e")
    assert envelope.payload == b"payload"
    assert dsse.find_signers(envelope, [verifying]) == (verifying,)
    changed = dsse.Envelope(envelope.payload_type, b"Payload", envelope.signatures)
    assert dsse.find_signers(changed, [verifying]) == ()


def test_dsse_several_signatures_and_false_key_ids(tmp_path: Path) -> None:
    pairs = [make_pem(tmp_path, kind) for kind in ("ed25519", "p256")]
    signing = [load_private_pem(private.read_bytes(), None, where="key") for private, _ in pairs]
    envelope = dsse.sign_payload(b"payload", signing)
    stranger = load_public_pem(make_pem(tmp_path, "rsa")[1].read_bytes(), where="key")
    keys = [stranger, *(item.public for item in signing)]
    assert dsse.find_signers(envelope, keys) == tuple(item.public for item in signing)
    forged = [dsse.EnvelopeSignature(stranger.key_id, item.signature) for item in envelope.signatures]
    assert dsse.find_signers(dsse.Envelope(dsse.PAYLOAD_TYPE, b"payload", tuple(forged)), [stranger]) == ()


def test_dsse_key_id_is_what_ssh_keygen_shows() -> None:
    key = load_public_pem(fixture_path("ed25519-public.pem").read_bytes(), where="key")
    assert key.key_id == "SHA256:x6l8ZblpSSXGaPMCzySedWg88BwIFcz8jlPb6el0mFs"


def test_pem_encrypted_key_needs_its_passphrase(tmp_path: Path) -> None:
    private, _ = make_pem(tmp_path, "ed25519", "open sesame")
    data = private.read_bytes()
    with pytest.raises(PassphraseNeeded):
        load_private_pem(data, None, where="key")
    with pytest.raises(KeyUnusable, match="wrong passphrase"):
        load_private_pem(data, "closed", where="key")
    assert load_private_pem(data, "open sesame", where="key").public.kind == "Ed25519"


def test_pem_passphrase_for_a_plain_key_does_no_harm(tmp_path: Path) -> None:
    private, _ = make_pem(tmp_path, "p256")
    assert load_private_pem(private.read_bytes(), "not needed", where="key").public.kind == "ECDSA secp256r1"


@each_row("data", [b"", b"rubbish", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_pem_rubbish_is_refused(data: bytes) -> None:
    for load in (lambda: load_public_pem(data, where="key"), lambda: load_private_pem(data, None, where="key")):
        with pytest.raises(KeyUnusable):
            load()


def test_cfb_known_vector() -> None:
    # NIST SP 800-38A F.3.13, CFB128-AES128
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    vector = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = bytes.fromhex("3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b")
    assert encrypt_cfb(key, vector, plain) == cipher
    assert decrypt_cfb(key, vector, cipher) == plain
    assert decrypt_cfb(key, vector, cipher[:21]) == plain[:21]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those of a root, an intermediate and a signer, and two others."""
    folder = tmp_path_factory.mktemp("keys")
    small = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]
    kinds = {**dict.fromkeys(("root", "middle", "leaf"), KINDS["p256"]), "rsa": KINDS["rsa"], "small": small}
    for name, kind in kinds.items():
        run_openssl("genpkey", *kind, "-out", folder / name)
    return {name: folder / name for name in kinds}


def make_chain(
    folder: Path, keys: dict[str, Path], leaf: str = CODE, middle: str = AUTHORITY, key: str = "middle", **options: str
) -> CertificateFiles:
    root = make_certificate(folder, "root", keys["root"], None, AUTHORITY)
    between = make_certificate(folder, "middle", keys[key], (root, keys["root"]), middle)
    last = make_certificate(folder, "leaf", keys["leaf"], (between, keys[key]), leaf, **options)
    return CertificateFiles(last, between, root)


def load(files: CertificateFiles, days: int = 0) -> str:
    return load_certified_key(files, int(time.time() + 5 + days * 86400)).kind


def test_certificate_chain_to_a_given_root(tmp_path: Path, keys: dict[str, Path]) -> None:
    chain = make_chain(tmp_path, keys)
    assert load(chain) == "ECDSA secp256r1"
    with pytest.raises(KeyUnusable, match="does not lead to a trusted authority"):
        load(replace(chain, intermediates=None))
    with pytest.raises(KeyUnusable, match="expired on"):
        load(chain, 40)
    with pytest.raises(KeyUnusable, match="not valid before"):
        load(chain, -40)


REFUSED = {
    "of a web server, which does not sign code": (
        {"leaf": "extendedKeyUsage=serverAuth\n"},
        "not meant for signing code",
    ),
    "issued by a non-authority": ({"middle": CODE}, "does not lead"),
    "with an unknown critical rule": ({"leaf": CODE + "1.2.3.4=critical,ASN1:UTF8String:x\n"}, r"1\.2\.3\.4"),
    "of an authority for web servers": ({"middle": AUTHORITY + "extendedKeyUsage=serverAuth\n"}, "does not lead"),
    "that could be forged by SHA1": ({"key": "rsa", "digest": "sha1"}, "does not lead"),
    "that could be forged by a small key": ({"key": "small"}, "does not lead"),
}


@each_row("name", REFUSED)
def test_certificate_is_refused(name: str, tmp_path: Path, keys: dict[str, Path]) -> None:
    differs, reason = REFUSED[name]
    with pytest.raises(KeyUnusable, match=reason):
        load(make_chain(tmp_path, keys, **differs))
