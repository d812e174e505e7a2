# SPDX-License-Identifier: BSD-3-Clause
"""Keys: parsing, judging, merging, locking. One test needs the shared fixtures."""

from __future__ import annotations

import pytest

from kedge.errors import KeyUnusable, SignatureInvalid, UsageError
from kedge.image.trust.openpgp import algorithms
from kedge.image.trust.openpgp import signature as sig
from kedge.image.trust.openpgp.key_validity import KeyJudgement, check_document, judge
from kedge.image.trust.openpgp.keys import KeyBlock, armor_block, make_public, merge_blocks, read_keys
from kedge.image.trust.openpgp.packets import (
    PUBLIC_KEY,
    SECRET_SUBKEY,
    USER_ID,
    read_packets,
    write_integer,
    write_packet,
)
from kedge.image.trust.openpgp.secret import Owner, generate_key, parse_secret_key
from kedge.image.trust.openpgp.signature import Signature, make_signature, parse_signature
from kedge.image.trust.sign import unlock_key
from tests.builders.openpgp_keys import (
    CREATED,
    NOW,
    Pair,
    assemble,
    bind,
    certify,
    flags,
    foreign_packets,
    lifetime,
    make_pair,
    revoke,
    rsa_block,
    simple_block,
    subkey_block,
)
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.wording import assert_reads, assert_says

USER = b"Eve Test <eve@test.example>"
BOTH = flags(sig.CAN_CERTIFY | sig.CAN_SIGN)


def never(question: str) -> str:
    raise AssertionError(f"asked for a passphrase: {question}")


def sign_text(signer: sig.Signer, text: bytes = b"text", created: int = CREATED + 600) -> Signature:
    packet = read_packets(make_signature(signer, sig.TEXT, text, created), "s")[0]
    return parse_signature(packet.body, packet.raw, "the signature")


def refuse(judged: KeyJudgement, found: Signature, now: int = NOW, text: bytes = b"text") -> str:
    with pytest.raises(SignatureInvalid) as caught:
        check_document(judged, found, text, now, "the signature")
    return caught.value.message


def test_key_fixture_is_read_like_gpg_reads_it() -> None:
    block = read_keys(fixture_path("pgp-public.asc").read_bytes(), "fixture")[0]
    judged = judge(block, NOW)
    assert judged.fingerprint == "12045C8C0B1004D058DE4BEDA20C27EE7FF7BA84"
    assert judged.user_ids == ("Unit Test <unit@test.com>",)
    assert (judged.primary.key.numbers.bits, judged.primary.expires, judged.primary.can_sign) == (2048, None, True)
    assert (judged.subkeys[0].can_sign, judged.subkeys[0].expires) == (False, 1651095536)
    assert b"".join(item.raw for item in read_keys(block.raw, "again")) == block.raw
    assert read_keys(armor_block(block), "armored")[0].raw == block.raw


def test_key_ed25519_of_rfc_9580_signs_and_verifies() -> None:
    public = algorithms.PublicNumbers(algorithms.ED25519, 256, (), "ed25519", make_pair("ed25519", 7).key.numbers.point)
    secret = algorithms.SecretNumbers(seed=(7).to_bytes(32, "big"))
    numbers = algorithms.sign_digest(public, secret, "sha256", bytes(32))
    assert algorithms.is_good_signature(public, "sha256", bytes(32), numbers)
    assert not algorithms.is_good_signature(public, "sha256", b"\1" * 32, numbers)


def test_key_expiry_is_honoured_and_extended_by_a_newer_statement() -> None:
    pair = make_pair("ed25519", 1)
    block = simple_block(pair, USER, BOTH, lifetime(100))
    found = sign_text(pair.signer, created=CREATED + 50)
    judged = judge(block, CREATED + 60)
    check_document(judged, found, b"text", CREATED + 60, "s")
    message = refuse(judge(block, NOW), found)
    assert_says(message, "sign/expired-utc", "2023-11-14 22:15:00")
    longer = assemble(block.raw, certify(pair, USER, BOTH, lifetime(100000), created=CREATED + 90))
    check_document(judge(longer, NOW), found, b"text", NOW, "s")
    assert judge(merge_blocks(block, longer), NOW).primary.expires == CREATED + 100000


def test_key_expiry_is_not_lifted_by_a_newer_statement_about_something_else() -> None:
    user_id = b"Exp Test"
    eve = make_pair("ed25519", 76)
    direct = sig.make_signature(eve.signer, sig.DIRECT_KEY, eve.key.hashed_form, CREATED + 100)  # names no lifetime
    statements = (flags(sig.CAN_CERTIFY | sig.CAN_SIGN), lifetime(500))
    named = write_packet(USER_ID, user_id) + certify(eve, user_id, *statements)
    assert judge(assemble(eve.secret_packet(), direct, named), NOW).primary.expires == CREATED + 500
    alone = judge(assemble(eve.secret_packet(), direct), NOW)
    assert (alone.primary.problem, alone.primary.expires) == ("", None)


def test_key_revocation_is_honoured_with_its_reason() -> None:
    pair = make_pair("ed25519", 2)
    block = simple_block(pair)
    revoked = assemble(block.packet.raw, revoke(pair), block.components[0].raw)
    assert "revoked (compromised, 2023-11-14 22:21:40 UTC)" in refuse(judge(revoked, NOW), sign_text(pair.signer))
    assert judge(merge_blocks(block, revoked), NOW).primary.revoked
    stranger = make_pair("ed25519", 3)
    forged = assemble(block.packet.raw, revoke(stranger), block.components[0].raw)
    assert not judge(forged, NOW).primary.revoked


def test_key_user_id_revoked_no_longer_counts() -> None:
    pair = make_pair("ed25519", 4)
    block = simple_block(pair)
    gone = assemble(block.raw, certify(pair, USER, created=CREATED + 10, kind=sig.CERTIFICATION_REVOCATION))
    assert_reads(judge(gone, NOW).primary.problem, "sign/no-user-id-vouched-key")


def test_key_user_id_that_a_stranger_added_is_not_believed() -> None:
    pair, stranger = make_pair("ed25519", 5), make_pair("ed25519", 6)
    false_name = b"Root <root@everywhere>"
    block = assemble(simple_block(pair).raw, write_packet(USER_ID, false_name), certify(stranger, false_name, BOTH))
    assert judge(block, NOW).user_ids == (USER.decode(),)
    moved = certify(pair, USER, BOTH)  # a good self-signature, but of another name
    block = assemble(simple_block(pair).raw, write_packet(USER_ID, false_name), moved)
    assert judge(block, NOW).user_ids == (USER.decode(),)


def test_key_without_valid_self_signature_is_refused() -> None:
    pair = make_pair("ed25519", 8)
    bare = assemble(pair.secret_packet(), write_packet(USER_ID, USER))
    assert_says(refuse(judge(bare, NOW), sign_text(pair.signer)), "sign/no-user-id-vouched")


def test_key_with_sha1_self_signature_is_refused_and_its_sha1_revocation_honoured() -> None:
    pair = make_pair("p256", 9)
    content = pair.key.hashed_form + b"\xb4" + len(USER).to_bytes(4, "big") + USER
    weak = sign_with_sha1(pair, sig.POSITIVE_CERTIFICATION, content)
    block = assemble(pair.secret_packet(), write_packet(USER_ID, USER), weak)
    assert "MD5 or SHA1" in judge(block, NOW).primary.problem
    weak_revocation = sign_with_sha1(pair, sig.KEY_REVOCATION, pair.key.hashed_form)
    good = simple_block(pair)
    assert judge(assemble(good.packet.raw, weak_revocation, good.components[0].raw), NOW).primary.revoked


def sign_with_sha1(pair: Pair, kind: int, content: bytes) -> bytes:
    made = read_packets(make_signature(pair.signer, kind, content, CREATED), "s")[0].body
    length = int.from_bytes(made[4:6], "big")
    head = made[:3] + b"\x02" + made[4 : 6 + length]
    draft = Signature(kind, head[2], 2, (), (), head, b"", b"", b"")
    name, digest = sig.compute_digest(draft, content, "s", allow_sha1=True)
    numbers = algorithms.sign_digest(pair.signer.public, pair.signer.secret, name, digest)
    return write_packet(2, head + b"\0\0" + digest[:2] + numbers)


def test_key_document_signature_with_sha1_is_refused() -> None:
    pair = make_pair("p256", 10)
    packet = read_packets(sign_with_sha1(pair, sig.TEXT, b"text"), "s")[0]
    found = parse_signature(packet.body, packet.raw, "s")
    assert_says(refuse(judge(simple_block(pair), NOW), found), "sign/which-can-be-forged", "SHA1")


def test_subkey_signs_when_the_primary_only_certifies() -> None:
    primary, subkey = make_pair("ed25519", 11), make_pair("p256", 12)
    block = subkey_block(primary, subkey, bind(primary, subkey))
    signer = unlock_key(block, never, NOW)
    assert (signer.signer.fingerprint, signer.owner) == (subkey.key.fingerprint, primary.key.fingerprint)
    judged = judge(make_public(block), NOW)
    check_document(judged, sign_text(signer.signer), b"text", NOW, "s")
    assert "not meant for signing" in refuse(judged, sign_text(primary.signer))


def test_subkey_adopted_without_its_consent_is_refused() -> None:
    thief, victim = make_pair("ed25519", 13), make_pair("ed25519", 14)
    block = subkey_block(thief, victim, bind(thief, victim, back=False))
    assert_says(refuse(judge(block, NOW), sign_text(victim.signer)), "sign/does-not-vouch-primary")
    unbound = subkey_block(thief, victim, b"")
    assert "not bound" in refuse(judge(unbound, NOW), sign_text(victim.signer))


def test_subkey_expired_or_below_a_revoked_primary_is_refused() -> None:
    primary, subkey = make_pair("ed25519", 15), make_pair("ed25519", 16)
    expired = subkey_block(primary, subkey, bind(primary, subkey, lifetime(100)))
    assert "expired" in refuse(judge(expired, NOW), sign_text(subkey.signer))
    block = subkey_block(primary, subkey, bind(primary, subkey))
    parts = b"".join(part.raw for part in block.components)
    revoked = assemble(block.packet.raw, revoke(primary, 0), parts)
    assert_says(refuse(judge(revoked, NOW), sign_text(subkey.signer)), "sign/primary-key-revoked-no-reason")


@each_row(
    ("created", "now", "reason"),
    [
        (CREATED - 10, NOW, "older than the key"),
        (NOW + 200_000, NOW, "in the future"),
        (0, NOW, "does not say when"),
    ],
)
def test_signature_times_are_judged(created: int, now: int, reason: str) -> None:
    pair = make_pair("ed25519", 17)
    assert reason in refuse(judge(simple_block(pair), now), sign_text(pair.signer, created=created), now)


@each_row(
    ("statement", "reason"),
    [
        (sig.Subpacket(sig.SIGNATURE_LIFETIME, True, (10).to_bytes(4, "big")), "expired on"),
        (sig.Subpacket(99, True, b"x"), "demands a rule"),
        (sig.Subpacket(sig.NOTATION, True, bytes(8)), "demands a rule"),
    ],
)
def test_signature_statements_are_judged(statement: sig.Subpacket, reason: str) -> None:
    pair = make_pair("ed25519", 18)
    packet = read_packets(make_signature(pair.signer, sig.TEXT, b"text", CREATED + 1, statement), "s")[0]
    found = parse_signature(packet.body, packet.raw, "s")
    assert reason in refuse(judge(simple_block(pair), NOW), found)


def test_signature_of_another_kind_does_not_sign_documents() -> None:
    pair = make_pair("ed25519", 19)
    packet = read_packets(make_signature(pair.signer, 0x10, b"text", CREATED + 1), "s")[0]
    assert "0x10" in refuse(judge(simple_block(pair), NOW), parse_signature(packet.body, packet.raw, "s"))


def test_key_flooded_with_signatures_is_given_up() -> None:
    pair = make_pair("ed25519", 20)
    flood = certify(pair, b"another name") * 1100
    block = assemble(simple_block(pair).raw, flood)
    with pytest.raises(KeyUnusable, match="more signatures than are worth checking"):
        judge(block, NOW)


def test_secret_key_needs_its_passphrase() -> None:
    block = rsa_block("Locked", "correct horse")
    secret = parse_secret_key(block.packet.body, "the key")
    assert secret.is_locked
    with pytest.raises(KeyUnusable, match="passphrase is wrong"):
        secret.unlock("battery staple")
    with pytest.raises(KeyUnusable, match="locked"):
        secret.unlock(None)
    signer = unlock_key(block, lambda _question: "correct horse", NOW)
    check_document(judge(block, NOW), sign_text(signer.signer), b"text", NOW, "s")


def test_secret_key_shows_no_numbers() -> None:
    secret = parse_secret_key(rsa_block().packet.body, "the key")
    numbers = secret.unlock(None)
    for thing in (secret, secret.protection, numbers, unlock_key(rsa_block(), never, NOW).signer):
        assert str(numbers.numbers[0]) not in repr(thing)


def test_secret_key_that_does_not_belong_to_its_public_key_is_refused() -> None:
    one, other = make_pair("ed25519", 21), make_pair("ed25519", 22)
    mixed = Pair(one.key, one.signer, other.numbers)
    with pytest.raises(KeyUnusable, match="does not belong"):
        unlock_key(simple_block(mixed), never, NOW)


def test_secret_key_kept_elsewhere_is_said() -> None:
    pair = make_pair("ed25519", 23)
    dummy = write_packet(5, pair.key.body + bytes([255, 7, 101, 0]) + b"GNU\x01")
    block = assemble(dummy, write_packet(USER_ID, USER), certify(pair, USER, BOTH))
    with pytest.raises(KeyUnusable) as caught:
        unlock_key(block, never, NOW)
    assert "kept elsewhere" in caught.value.context["why"]


@each_row(
    ("protection", "reason"),
    [
        (bytes([254, 3, 3, 8]) + bytes(8) + b"\x60" + bytes(8), "CAST5"),
        (bytes([253, 9, 2, 3, 8]) + bytes(30), "AEAD"),
        (bytes([7]) + bytes(30), "1990s"),
        (bytes([254, 9, 4]) + bytes(40), "method 4"),
        (bytes([254, 9, 3, 1]) + bytes(8) + b"\x60" + bytes(16), "hash 1"),
    ],
)
def test_secret_key_locked_in_ways_that_are_not_known(protection: bytes, reason: str) -> None:
    body = make_pair("ed25519", 24).key.body + protection + bytes(60)
    with pytest.raises(KeyUnusable, match=reason):
        parse_secret_key(body, "the key").unlock("x")


def test_make_public_drops_every_secret() -> None:
    primary, subkey = make_pair("ed25519", 0xABCDEF0123456789), make_pair("p256", 0x9876543210FEDCBA)
    block = subkey_block(primary, subkey, bind(primary, subkey))
    public = make_public(block)
    for pair in (primary, subkey):
        secret = pair.numbers[0].to_bytes(8, "big")
        assert secret in block.raw
        assert secret not in public.raw
    assert public.fingerprint == block.fingerprint
    assert judge(public, NOW).user_ids == judge(block, NOW).user_ids


def test_make_public_drops_secrets_below_a_public_primary_key() -> None:
    user_id = b"Odd Test"
    eve = make_pair("ed25519", 76)
    subkey = make_pair("ed25519", 77)
    odd = assemble(
        write_packet(PUBLIC_KEY, eve.key.body),
        write_packet(USER_ID, user_id),
        certify(eve, user_id, flags(sig.CAN_CERTIFY)),
        subkey.secret_packet(SECRET_SUBKEY),
        bind(eve, subkey),
    )
    assert odd.is_secret
    public = make_public(odd)
    assert not public.is_secret
    assert write_integer(77) not in public.raw


def test_foreign_keys_are_kept_byte_for_byte() -> None:
    parts = [*foreign_packets(), simple_block(make_pair("ed25519", 25)).raw]
    blocks: list[KeyBlock] = read_keys(b"".join(parts), "ring")
    assert [block.raw for block in blocks] == parts
    assert [block.key is None for block in blocks] == [True, True, True, False, False]
    assert all(len(block.fingerprint) in (40, 64) for block in blocks)
    assert not judge_can_sign(blocks[3])  # Ed448: read, but nothing to sign with here


def judge_can_sign(block: KeyBlock) -> bool:
    return block.key.numbers.can_sign


def test_user_id_with_control_characters_is_made_safe() -> None:
    pair = make_pair("ed25519", 26)
    assert judge(simple_block(pair, b"Mal\x1b[31m\nLory"), NOW).user_ids == ("Mal?[31m?Lory",)


@each_row("owner", [Owner("a<b"), Owner("a\nb"), Owner(""), Owner("a", "x>"), Owner("a", "", "(")])
def test_generate_refuses_ambiguous_names(owner: Owner) -> None:
    with pytest.raises(UsageError):
        generate_key(owner, 2048, None, CREATED)


@each_row("bits", [1024, 2049, 16384])
def test_generate_refuses_sizes(bits: int) -> None:
    with pytest.raises(UsageError, match=str(bits)):
        generate_key(Owner("a"), bits, None, CREATED)
