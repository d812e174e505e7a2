# SPDX-License-Identifier: BSD-3-Clause
"""Signing and verifying images, and every way to tamper with one. Some tests need the shared fixtures, or openssl."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.errors import KeyUnusable, UsageError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object, delete_object
from kedge.image.formats.sif.layout import DESCRIPTOR, DataType, HashType, pack_signature_extra
from kedge.image.formats.sif.reader import SifReader
from kedge.image.trust.crypto import load_private_pem, load_public_pem
from kedge.image.trust.keyring import find_in_blocks
from kedge.image.trust.openpgp.armor import canonicalize_text, parse_cleartext, write_cleartext
from kedge.image.trust.openpgp.keys import KeyBlock, make_public, read_keys
from kedge.image.trust.openpgp.signature import TEXT, make_signature
from kedge.image.trust.sign import DocumentSigner, PemSigner, PgpSigner, SignSelection, sign_image, unlock_key
from kedge.image.trust.verify import KnownKey, Material, VerifyReport, VerifySelection, verify_image
from tests.builders.openpgp_keys import NOW, Pair, flags, lifetime, make_pair, rsa_block, simple_block
from tests.builders.pem_keys import make_pem
from tests.builders.rows import each_row
from tests.builders.sif import build_sif, fixture_path

EVE = make_pair("ed25519", 301)
BLOCK = simple_block(EVE)
REAL_NOW = 1_794_000_000


def pgp(*blocks: KeyBlock) -> Material:
    public = [make_public(block) for block in blocks]
    return Material(lambda identifier: [KnownKey(block, "LOCAL") for block in find_in_blocks(public, identifier)])


def verify(path: Path, material: Material, choice: VerifySelection | None = None, now: int = NOW) -> VerifyReport:
    with path.open("rb") as file:
        return verify_image(SifReader(file, path.name), material, choice or VerifySelection(), now)


def reason_of(report: VerifyReport) -> str:
    assert report.error is not None, "it was accepted"
    return report.error.context["reason"]


def signer_of(pair: Pair) -> PgpSigner:
    return PgpSigner(pair.signer, pair.key.fingerprint)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An unsigned image of three objects."""
    objects = [(DataType.DEFFILE, b"bootstrap: docker\n", b""), (DataType.GENERIC_JSON, b"{}", b"")]
    path = tmp_path / "image.sif"
    path.write_bytes(build_sif([*objects, (DataType.GENERIC, bytes(range(256)) * 40, b"")]))
    return path


def sign(path: Path, *signers: DocumentSigner, selection: SignSelection | None = None) -> None:
    sign_image(path, signers or [signer_of(EVE)], selection or SignSelection(), NOW - 1)


# ---- the real files


def fixture_key() -> KeyBlock:
    return read_keys(fixture_path("pgp-public.asc").read_bytes(), "fixture")[0]


def test_fixture_signed_with_pgp() -> None:
    path = fixture_path("one-group-signed-pgp.sif")
    report = verify(path, pgp(fixture_key()), now=REAL_NOW)
    assert report.is_good
    assert report.results[0].signers[0].fingerprint == "12045C8C0B1004D058DE4BEDA20C27EE7FF7BA84"
    assert [item.id for item in report.results[0].verified] == [1, 2]
    wrong = verify(path, pgp(BLOCK), now=REAL_NOW)
    assert reason_of(wrong) == "unknown-key"
    assert "12045C8C0B1004D058DE4BEDA20C27EE7FF7BA84" in (wrong.error.hint or "")


@each_row(("name", "outcome"), [("ed25519", None), ("rsa", None), ("ecdsa", "wrong-key")])
def test_fixture_signed_with_dsse(name: str, outcome: str | None) -> None:
    key = load_public_pem(fixture_path(f"{name}-public.pem").read_bytes(), where=name)
    report = verify(fixture_path("one-group-signed-dsse.sif"), Material(keys=(key,)))
    assert (report.error.context["reason"] if report.error else None) == outcome
    if outcome is None:
        assert [item.key_id for item in report.results[0].signers] == [key.key_id]


@each_row(
    ("name", "reason"),
    [
        ("busybox_arm64.sif", "unknown-key"),
        ("two-groups.sif", "no-signature"),
        ("one-group.sif", "no-signature"),
        ("empty.sif", "no-signature"),
        ("one-group-signed-dsse.sif", "other-form"),
    ],
)
def test_fixture_without_a_usable_signature(name: str, reason: str) -> None:
    assert reason_of(verify(fixture_path(name), pgp(fixture_key()), now=REAL_NOW)) == reason


def test_fixture_unknown_key_names_the_whole_fingerprint() -> None:
    report = verify(fixture_path("busybox_arm64.sif"), pgp(), now=REAL_NOW)
    assert report.error.context["fingerprint"] == "1137E72E6816BFC06D9CAA0D15F3F4F4F14B03B2"


def test_fixture_of_two_groups_is_signed_group_by_group(tmp_path: Path) -> None:
    path = tmp_path / "two.sif"
    path.write_bytes(fixture_path("two-groups.sif").read_bytes())
    sign(path, selection=SignSelection(groups=(2,)))
    assert verify(path, pgp(BLOCK), VerifySelection(groups=(2,))).is_good
    assert reason_of(verify(path, pgp(BLOCK))) == "no-signature"
    sign(path, selection=SignSelection(groups=(1,)))
    assert verify(path, pgp(BLOCK)).is_good


# ---- round trips


@pytest.mark.parametrize("kind", ["ed25519", "p256", "p384", "p521"])
def test_sign_round_trip_with_curves(kind: str, image: Path) -> None:
    pair = make_pair(kind, 302)
    sign(image, signer_of(pair))
    report = verify(image, pgp(simple_block(pair)))
    assert report.is_good
    with image.open("rb") as file:
        made = SifReader(file).descriptors[-1]
    expected = {"p384": HashType.SHA384, "p521": HashType.SHA512}.get(kind, HashType.SHA256)
    assert (made.group, made.link, made.links_group, made.hash_type) == (0, 1, True, expected)
    assert made.entity.hex().upper() == pair.key.fingerprint


def test_sign_round_trip_with_rsa(image: Path) -> None:
    sign(image, unlock_key(rsa_block(), lambda _question: "", NOW))
    assert verify(image, pgp(rsa_block())).is_good


def test_sign_twice_and_by_pem_too(image: Path, tmp_path: Path) -> None:
    private, public = make_pem(tmp_path, "ed25519")
    key = load_private_pem(private.read_bytes(), None, where="key")
    second = make_pair("p256", 303)
    sign(image, signer_of(EVE), signer_of(second), PemSigner((key,)))
    report = verify(image, pgp(BLOCK, simple_block(second)))
    assert report.is_good
    assert [bool(item.verified) for item in report.results] == [True, True, False]
    assert "--key" in report.results[2].skipped
    assert reason_of(verify(image, pgp(BLOCK))) == "unknown-key"  # a signature that cannot be judged is not passed over
    assert verify(image, Material(keys=(load_public_pem(public.read_bytes(), where="key"),))).is_good


def test_sign_one_object_covers_only_that(image: Path) -> None:
    sign(image, selection=SignSelection(objects=(2,)))
    assert verify(image, pgp(BLOCK), VerifySelection(objects=(2,))).is_good
    assert reason_of(verify(image, pgp(BLOCK), VerifySelection(objects=(1,)))) == "object-not-signed"
    assert reason_of(verify(image, pgp(BLOCK))) == "object-added"


@each_row("selection", [SignSelection(groups=(7,)), SignSelection(objects=(99,))])
def test_sign_what_is_not_there(selection: SignSelection, image: Path) -> None:
    before = image.read_bytes()
    with pytest.raises(Exception, match="has no object") as caught:
        sign(image, selection=selection)
    assert not isinstance(caught.value, AssertionError)
    assert image.read_bytes() == before


def test_sign_object_without_group_is_refused(image: Path) -> None:
    append_object(image, DataObject(DataType.GENERIC, b"x", group=0))
    with pytest.raises(UsageError, match="in no group"):
        sign(image, selection=SignSelection(objects=(4,)))


def test_sign_with_expired_key_is_refused() -> None:
    block = simple_block(EVE, b"Eve", flags(3), lifetime(10))
    with pytest.raises(KeyUnusable) as caught:
        unlock_key(block, lambda _question: "", NOW)
    assert "expired" in caught.value.context["why"]


# ---- tampering


def patch_byte(path: Path, offset: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def field_of(path: Path, identifier: int, offset: int) -> int:
    """Where a field of an object's descriptor lies in the file."""
    with path.open("rb") as file:
        reader = SifReader(file)
        return reader.header.table_offset + reader.find(identifier).slot * DESCRIPTOR.size + offset


def object_offset(path: Path, identifier: int) -> int:
    with path.open("rb") as file:
        return SifReader(file).find(identifier).offset


def swap_objects(path: Path) -> None:
    """Exchange the offsets and sizes of two objects, so that each has the other's content."""
    data = bytearray(path.read_bytes())
    one, two = field_of(path, 1, 17), field_of(path, 2, 17)
    data[one : one + 16], data[two : two + 16] = data[two : two + 16], data[one : one + 16]
    path.write_bytes(data)


def change_group_number(path: Path) -> None:
    patch_byte(path, field_of(path, 3, 9), 3)  # group 1 becomes 2


TAMPERS: list[tuple[str, Callable[[Path], object], str]] = [
    ("object content", lambda path: patch_byte(path, object_offset(path, 3) + 77), "object-changed"),
    ("first object", lambda path: patch_byte(path, object_offset(path, 1)), "object-changed"),
    ("descriptor type", lambda path: patch_byte(path, field_of(path, 1, 0), 6), "descriptor-changed"),
    ("descriptor link", lambda path: patch_byte(path, field_of(path, 1, 13)), "descriptor-changed"),
    ("descriptor size", lambda path: patch_byte(path, field_of(path, 3, 26), 8), "descriptor-changed"),
    ("descriptor time", lambda path: patch_byte(path, field_of(path, 2, 41)), "descriptor-changed"),
    ("descriptor owner", lambda path: patch_byte(path, field_of(path, 2, 57)), "descriptor-changed"),
    ("descriptor name", lambda path: patch_byte(path, field_of(path, 2, 73)), "descriptor-changed"),
    ("descriptor extra", lambda path: patch_byte(path, field_of(path, 2, 500)), "descriptor-changed"),
    ("header launch line", lambda path: patch_byte(path, 3), "header-changed"),
    ("header identity", lambda path: patch_byte(path, 50), "header-changed"),
    ("object swapped", swap_objects, "descriptor-changed"),
    ("object added", lambda path: append_object(path, DataObject(DataType.GENERIC, b"more")), "object-added"),
    ("object removed", lambda path: delete_object(path, 3), "object-removed"),
    ("first object removed", lambda path: delete_object(path, 1), "object-removed"),
    ("object moved to another group", change_group_number, "object-removed"),
    ("ungrouped object", lambda path: append_object(path, DataObject(9, b"x", group=0)), "ungrouped-object"),
    ("new group", lambda path: append_object(path, DataObject(DataType.GENERIC, b"x", group=2)), "no-signature"),
    ("signature removed", lambda path: delete_object(path, 4), "no-signature"),
    ("signature emptied", lambda path: path.write_bytes(path.read_bytes().replace(b"PGP", b"PGQ")), "bad-signature"),
    ("signed text", lambda path: path.write_bytes(path.read_bytes().replace(b'"relat', b'"Relat')), "bad-signature"),
    ("entity", lambda path: patch_byte(path, field_of(path, 4, 205)), "signer-mismatch"),
    ("signature link", lambda path: patch_byte(path, field_of(path, 4, 13), 3), "no-signature"),
]


def test_tampered_image_is_refused_with_the_reason(image: Path) -> None:
    sign(image)
    assert verify(image, pgp(BLOCK)).is_good
    signed, found = image.read_bytes(), {}
    for name, tamper, _ in TAMPERS:
        image.write_bytes(signed)
        tamper(image)
        found[name] = reason_of(verify(image, pgp(BLOCK)))
    assert found == {name: reason for name, _, reason in TAMPERS}


@each_row("offset", [45, 64, 72])
def test_layout_may_change_without_breaking_signatures(offset: int, image: Path) -> None:
    sign(image)
    patch_byte(image, offset)  # architecture, creation and modification time of the header are not covered
    assert verify(image, pgp(BLOCK)).is_good


def test_every_byte_of_a_signature_counts(image: Path) -> None:
    sign(image)
    with image.open("rb") as file:
        reader = SifReader(file)
        made = reader.descriptors[-1]
        content = reader.read_object(made)
    original = parse_cleartext(content, "the signature")
    data = image.read_bytes()
    for at in range(len(content)):
        for mask in (1, 0x20):
            changed = bytearray(data)
            changed[made.offset + at] ^= mask
            reader = SifReader(io.BytesIO(bytes(changed)), "image")
            if verify_image(reader, pgp(BLOCK), VerifySelection(), NOW).is_good:  # nothing that matters was changed
                read = parse_cleartext(reader.read_object(made), "the signature")
                assert (read.signed, read.signature) == (original.signed, original.signature)


def test_signature_of_a_stranger_in_the_owners_name(image: Path) -> None:
    stranger = make_pair("ed25519", 304)
    sign(image, PgpSigner(stranger.signer, EVE.key.fingerprint))
    assert reason_of(verify(image, pgp(BLOCK))) == "unknown-key"
    assert reason_of(verify(image, pgp(BLOCK, simple_block(stranger)))) == "signer-mismatch"


def test_signature_of_another_image_does_not_fit(image: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sif"
    other.write_bytes(build_sif([(DataType.DEFFILE, b"from: scratch\n", b"")]))
    sign(other)
    with other.open("rb") as file:
        reader = SifReader(file)
        made = reader.descriptors[-1]
        data, extra = reader.read_object(made), made.extra
    append_object(image, DataObject(DataType.SIGNATURE, data, group=0, link=1, links_group=True, extra=extra))
    assert reason_of(verify(image, pgp(BLOCK))) == "object-added"


# ---- old signatures


def sign_like_old_writers(path: Path, digest: bytes, link: int, *, links_group: bool) -> None:
    text = b"SIFHASH:\n" + digest
    packet = make_signature(EVE.signer, TEXT, canonicalize_text(text), NOW - 1)
    extra = pack_signature_extra(HashType.SHA384, bytes.fromhex(EVE.key.fingerprint))
    item = DataObject(
        DataType.SIGNATURE, write_cleartext(text, "sha256", packet), link=link, links_group=links_group, extra=extra
    )
    append_object(path, DataObject(item.data_type, item.data, group=0, link=link, links_group=links_group, extra=extra))


def test_legacy_signature_only_when_asked_for(image: Path) -> None:
    digest = hashlib.sha384(b"bootstrap: docker\n").hexdigest().encode()
    sign_like_old_writers(image, digest, 1, links_group=False)
    plain = verify(image, pgp(BLOCK))
    assert reason_of(plain) == "no-signature"
    assert "--legacy-insecure" in (plain.error.hint or "")
    assert verify(image, pgp(BLOCK), VerifySelection(objects=(1,), legacy=True)).is_good
    assert reason_of(verify(image, pgp(BLOCK), VerifySelection(objects=(2,), legacy=True))) == "no-signature"
    patch_byte(image, object_offset(image, 1))
    assert reason_of(verify(image, pgp(BLOCK), VerifySelection(objects=(1,), legacy=True))) == "object-changed"


def test_legacy_signature_of_a_group(image: Path) -> None:
    content = b"bootstrap: docker\n" + b"{}" + bytes(range(256)) * 40
    sign_like_old_writers(image, hashlib.sha384(content).hexdigest().encode(), 1, links_group=True)
    assert verify(image, pgp(BLOCK), VerifySelection(groups=(1,), legacy=True)).is_good
    assert reason_of(verify(image, pgp(BLOCK))) == "no-signature"
