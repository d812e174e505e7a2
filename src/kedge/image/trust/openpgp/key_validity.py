# SPDX-License-Identifier: BSD-3-Clause
"""Evaluates a key's self-signatures: names, capabilities, expiry, revocation; and whether the key can be trusted.

A user id or subkey counts only if the primary key signed it. A revocation counts even with a weak hash, because
ignoring it is the greater risk; other signatures with a weak hash do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kedge.errors import KedgeError, KeyUnusable, SignatureInvalid
from kedge.image.trust.openpgp import signature as sig
from kedge.image.trust.openpgp.keys import Component, KeyBlock, PublicKey, decode_user_id, parse_public_key
from kedge.image.trust.openpgp.packets import PUBLIC_SUBKEY, SECRET_SUBKEY, SIGNATURE, USER_ATTRIBUTE, USER_ID, Packet
from kedge.image.trust.openpgp.signature import Signature, format_time

_CHECK_BUDGET = 1000  # signature checks spent on one key: a flooded key costs a second, not an hour

_REASONS = {1: "superseded", 2: "compromised", 3: "retired", 32: "the user id is no longer valid"}


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one key of a block: primary or subkey."""

    key: PublicKey
    can_sign: bool
    expires: int | None
    revoked: str  # empty, or what the revocation says
    problem: str  # empty, or why the key cannot be relied on at all

    def refuse(self, now: int) -> str:
        """Why a signature of this key is refused now; empty if it is accepted."""
        if self.problem:
            return self.problem
        if self.revoked:
            return f"the key was revoked ({self.revoked})"
        if self.expires is not None and self.expires <= now:
            return f"the key expired on {format_time(self.expires)}"
        if not self.can_sign:
            return "the key is not meant for signing"
        return ""


@dataclass(frozen=True, slots=True)
class KeyJudgement:
    """The result for a whole key block."""

    block: KeyBlock
    primary: Standing
    subkeys: tuple[Standing, ...]
    user_ids: tuple[str, ...]  # those the key vouches for, the main one first

    @property
    def fingerprint(self) -> str:
        """The primary key's fingerprint."""
        return self.primary.key.fingerprint

    @property
    def name(self) -> str:
        """The main user id."""
        return self.user_ids[0] if self.user_ids else "unknown"

    def find(self, key_id: str) -> Standing | None:
        """The primary or subkey with this identifier or fingerprint."""
        wanted = key_id.upper()
        return next((item for item in (self.primary, *self.subkeys) if item.key.fingerprint.endswith(wanted)), None)

    def refuse(self, standing: Standing, now: int) -> str:
        """Why a signature by one of the block's keys is refused; a subkey is only as good as its primary key."""
        if standing is self.primary:
            return standing.refuse(now)
        above = self.primary
        reason = above.problem or (f"its primary key was revoked ({above.revoked})" if above.revoked else "")
        if not reason and above.expires is not None and above.expires <= now:
            reason = f"its primary key expired on {format_time(above.expires)}"
        return reason or standing.refuse(now)


class _Checker:
    """Checks the primary key's signatures, within a budget."""

    def __init__(self, primary: PublicKey, now: int) -> None:
        self.primary = primary
        self.now = now
        self.left = _CHECK_BUDGET

    def collect(self, packets: Iterable[Packet], content: bytes, kinds: frozenset[int]) -> list[Signature]:
        """The primary key's good signatures of some kinds over some content, newest first."""
        good: list[Signature] = []
        for packet in packets:
            signature = self._parse_own(packet, kinds)
            if signature is not None and self._is_good(signature, content):
                good.append(signature)
        return sorted(good, key=lambda item: item.created, reverse=True)

    def _parse_own(self, packet: Packet, kinds: frozenset[int]) -> Signature | None:
        if packet.tag != SIGNATURE:
            return None
        try:
            signature = sig.parse_signature(packet.body, packet.raw, "a signature on a key")
        except KedgeError:
            return None  # other versions and damaged ones vouch for nothing
        return signature if signature.kind in kinds and signature.issuer_key_id == self.primary.key_id else None

    def _is_good(self, signature: Signature, content: bytes) -> bool:
        self.left -= 1
        if self.left < 0:
            raise KeyUnusable(f"the key {self.primary.fingerprint} carries more signatures than are worth checking")
        is_revocation = signature.kind in sig.REVOCATIONS
        try:
            sig.check_numbers(
                signature, self.primary.numbers, content, "a signature on a key", allow_sha1=is_revocation
            )
            if not is_revocation:
                sig.check_times(signature, self.now, "a signature on a key")
        except KedgeError:
            return False
        return signature.created >= self.primary.created or is_revocation


def judge(block: KeyBlock, now: int) -> KeyJudgement:
    """Check a block's self-signatures; KeyUnusable for unknown kinds of keys."""
    if block.key is None:
        raise KeyUnusable(block.problem)
    checker = _Checker(block.key, now)
    content = block.key.hashed_form
    direct = checker.collect(block.signatures, content, frozenset({sig.DIRECT_KEY}))
    revocations = checker.collect(block.signatures, content, frozenset({sig.KEY_REVOCATION}))
    named = [item for part in block.components if (item := _judge_user(part, checker)) is not None]
    named.sort(key=lambda item: (_is_primary(item[1]), item[1].created), reverse=True)
    main = sorted([item for _, item in named[:1]] + direct[:1], key=lambda item: item.created, reverse=True)
    primary = Standing(
        key=block.key,
        can_sign=block.key.numbers.can_sign and _has_flag(main, sig.CAN_SIGN),
        expires=_find_expiry(block.key, [item for item in main if item not in direct or _has_lifetime(item)]),
        revoked=_describe_revocation(revocations),
        problem="" if main else _explain_unvouched(block),
    )
    subkeys = tuple(_judge_subkey(part, checker) for part in block.components if _is_subkey(part))
    names = tuple(name for name, _ in named if name)
    return KeyJudgement(block, primary, tuple(item for item in subkeys if item is not None), names)


def _is_subkey(part: Component) -> bool:
    return part.packet.tag in (PUBLIC_SUBKEY, SECRET_SUBKEY)


def _explain_unvouched(block: KeyBlock) -> str:
    weak = [packet for part in block.components for packet in part.signatures if packet.body[3:4] in (b"\x01", b"\x02")]
    if weak:
        return "its user ids are vouched for with MD5 or SHA1 only, which can be forged"
    return "no user id is vouched for by the key itself"


def _judge_user(part: Component, checker: _Checker) -> tuple[str, Signature] | None:
    """The name and the newest good self-signature of a user id that is not revoked."""
    tag, body = part.packet.tag, part.packet.body
    if tag not in (USER_ID, USER_ATTRIBUTE):
        return None
    prefix = b"\xb4" if tag == USER_ID else b"\xd1"
    content = checker.primary.hashed_form + prefix + len(body).to_bytes(4, "big") + body
    good = checker.collect(part.signatures, content, sig.CERTIFICATIONS)
    if not good:
        return None
    revoked = checker.collect(part.signatures, content, frozenset({sig.CERTIFICATION_REVOCATION}))
    if revoked and revoked[0].created >= good[0].created:
        return None
    return (decode_user_id(body) if tag == USER_ID else ""), good[0]


def _is_primary(signature: Signature) -> bool:
    return signature.find(sig.PRIMARY_USER_ID) == b"\x01"


def _has_flag(signatures: list[Signature], flag: int) -> bool:
    """Whether the key has this capability: from the first statement about it, else from the algorithm."""
    for item in signatures:
        flags = item.find(sig.KEY_FLAGS)
        if flags is not None:
            return bool(flags[:1] and flags[0] & flag)
    return bool(signatures)


def _has_lifetime(signature: Signature) -> bool:
    """Whether a signature states an expiry: a direct one may state something else, such as a revoker."""
    return signature.find(sig.KEY_LIFETIME) is not None


def _find_expiry(key: PublicKey, signatures: list[Signature]) -> int | None:
    """Time of expiry by the newest statement: owners extend or shorten a key's life with a new one."""
    body = signatures[0].find(sig.KEY_LIFETIME) if signatures else None
    seconds = int.from_bytes(body, "big") if body is not None and len(body) == 4 else 0
    return key.created + seconds if seconds else None


def _describe_revocation(revocations: list[Signature]) -> str:
    if not revocations:
        return ""
    body = revocations[0].find(sig.REVOCATION_REASON) or b"\x00"
    reason = _REASONS.get(body[0], "no reason given") if body else "no reason given"
    return f"{reason}, {format_time(revocations[0].created)}"


def _judge_subkey(part: Component, checker: _Checker) -> Standing | None:
    try:
        key = parse_public_key(part.packet.body, "a subkey")
    except KedgeError:
        return None
    content = checker.primary.hashed_form + key.hashed_form
    bindings = checker.collect(part.signatures, content, frozenset({sig.SUBKEY_BINDING}))
    revocations = checker.collect(part.signatures, content, frozenset({sig.SUBKEY_REVOCATION}))
    can_sign = key.numbers.can_sign and _has_flag(bindings[:1], sig.CAN_SIGN)
    problem = "" if bindings else "the subkey is not bound to its primary key"
    if not problem and can_sign and not _has_back_signature(bindings[0], key, content):
        problem = "the signing subkey does not vouch for its primary key"
    expires = _find_expiry(key, bindings[:1])
    return Standing(key, can_sign, expires, _describe_revocation(revocations), problem)


def _has_back_signature(binding: Signature, key: PublicKey, content: bytes) -> bool:
    """Whether a signing subkey signed its primary key: otherwise anyone could adopt another owner's subkey."""
    for item in (*binding.hashed, *binding.unhashed):
        if item.kind != sig.EMBEDDED_SIGNATURE:
            continue
        try:
            embedded = sig.parse_signature(item.body, item.body, "a subkey's own signature")
            if embedded.kind == sig.PRIMARY_BINDING:
                sig.check_numbers(embedded, key.numbers, content, "a subkey's own signature")
                return True
        except KedgeError:
            continue
    return False


def check_document(judged: KeyJudgement, signature: Signature, content: bytes, now: int, what: str) -> Standing:
    """Refuse a document signature unless a usable key of this block made it; returns that key."""
    standing = judged.find(signature.issuer_fingerprint or signature.issuer_key_id or "none")
    if standing is None:
        raise SignatureInvalid(f"{what} was not made by {judged.fingerprint}")
    if signature.kind not in (sig.BINARY, sig.TEXT):
        raise SignatureInvalid(f"{what} is of kind {signature.kind:#04x}, which does not sign documents")
    sig.check_numbers(signature, standing.key.numbers, content, what)
    sig.check_times(signature, now, what)
    reason = judged.refuse(standing, now)
    if not reason and signature.created < standing.key.created:
        reason = "the signature is older than the key"
    if reason:
        raise SignatureInvalid(
            f"{what} was made by {judged.fingerprint} ({judged.name}), but {reason}",
            context={"fingerprint": judged.fingerprint, "made": format_time(signature.created)},
            hint=f"if the owner renewed the key, get it: kedge key pull {judged.fingerprint}",
        )
    return standing
