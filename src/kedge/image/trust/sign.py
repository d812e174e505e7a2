# SPDX-License-Identifier: BSD-3-Clause
"""Signs SIF images: one signature object per group, cleartext OpenPGP or a DSSE envelope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kedge.base.progress import Progress, Silent
from kedge.errors import KeyUnusable, UsageError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_objects
from kedge.image.formats.sif.layout import DataType, HashType, SifDescriptor, pack_signature_extra
from kedge.image.formats.sif.reader import SifReader
from kedge.image.trust import dsse
from kedge.image.trust.crypto import SigningKey
from kedge.image.trust.digests import Digester, compute_metadata, list_groups
from kedge.image.trust.openpgp import algorithms
from kedge.image.trust.openpgp.armor import canonicalize_text, write_cleartext
from kedge.image.trust.openpgp.key_validity import Standing, judge
from kedge.image.trust.openpgp.keys import KeyBlock
from kedge.image.trust.openpgp.packets import SECRET_SUBKEY
from kedge.image.trust.openpgp.secret import SecretKey, parse_secret_key
from kedge.image.trust.openpgp.signature import TEXT, Signer, make_signature
from kedge.system.files import explained

AskPassphrase = Callable[[str], str]  # gets a question, gives the answer; asked only when a passphrase is needed
_HASH_TYPES = {"sha256": HashType.SHA256, "sha384": HashType.SHA384, "sha512": HashType.SHA512}


class DocumentSigner(Protocol):
    """Signs a document of digests."""

    def sign_document(self, document: bytes, now: int) -> tuple[bytes, bytes]:
        """The signature object's content and its type-dependent field."""
        ...


@dataclass(frozen=True, slots=True)
class PgpSigner:
    """Signs with an OpenPGP key."""

    signer: Signer
    owner: str  # the primary key's fingerprint, which is what verifiers compare

    def sign_document(self, document: bytes, now: int) -> tuple[bytes, bytes]:
        """A cleartext-signed message."""
        packet = make_signature(self.signer, TEXT, canonicalize_text(document), now)
        name = algorithms.choose_hash(self.signer.public)
        content = write_cleartext(document, name, packet)
        return content, pack_signature_extra(_HASH_TYPES[name], bytes.fromhex(self.owner))


@dataclass(frozen=True, slots=True)
class PemSigner:
    """Signs with one or more PEM keys, in one envelope."""

    keys: tuple[SigningKey, ...]

    def sign_document(self, document: bytes, now: int) -> tuple[bytes, bytes]:
        """A DSSE envelope, which has no time in it."""
        del now
        return dsse.sign_payload(document, self.keys).encode(), pack_signature_extra(HashType.SHA256)


@dataclass(frozen=True, slots=True)
class SignSelection:
    """What to sign: groups, objects, or every group if both are empty."""

    groups: tuple[int, ...] = ()
    objects: tuple[int, ...] = ()


def unlock_key(block: KeyBlock, ask: AskPassphrase, now: int) -> PgpSigner:
    """Unlock a secret key block for signing: the primary key, or a subkey if the primary cannot sign."""
    judged = judge(block, now)
    packets = [block.packet, *(part.packet for part in block.components if part.packet.tag == SECRET_SUBKEY)]
    refusals: list[str] = []
    for packet in packets:
        try:
            secret = parse_secret_key(packet.body, f"the secret key {judged.fingerprint}")
        except KeyUnusable as problem:
            refusals.append(problem.message)
            continue
        standing = judged.find(secret.public.fingerprint)
        reason = judged.refuse(standing, now) if standing else "it is of an unknown kind"
        if not reason and secret.is_absent:
            reason = "its secret part is kept elsewhere (offline or on a card)"
        if standing is None or reason:
            refusals.append(f"{secret.public.fingerprint}: {reason}")
            continue
        return PgpSigner(_unlock(secret, standing, ask, judged.name), judged.fingerprint)
    raise KeyUnusable(
        f"the key {judged.fingerprint} cannot sign", context={"why": "\n".join(refusals)}, hint="choose another key"
    )


def _unlock(secret: SecretKey, standing: Standing, ask: AskPassphrase, name: str) -> Signer:
    passphrase = ask(f"Passphrase of {name} ({standing.key.key_id}): ") if secret.is_locked else None
    return Signer(standing.key.fingerprint, standing.key.numbers, secret.unlock(passphrase))


def _plan_groups(reader: SifReader, selection: SignSelection) -> list[tuple[int, tuple[int, ...]]]:
    """Which groups get a signature, and over which of their objects (none named: all of them)."""
    if not selection.groups and not selection.objects:
        groups = list_groups(reader)
        if not groups:
            raise UsageError(f"{reader.where} has no objects to sign")
        return [(group, ()) for group in groups]
    plan: dict[int, tuple[int, ...]] = {}
    for identifier in selection.objects:
        group = reader.find(identifier).group
        if not group:
            raise UsageError(f"object {identifier} of {reader.where} is in no group and cannot be signed")
        plan[group] = (*plan.get(group, ()), identifier)
    plan |= {group: () for group in selection.groups}
    return sorted(plan.items())


def sign_image(
    path: Path, signers: Sequence[DocumentSigner], selection: SignSelection, now: int, progress: Progress | None = None
) -> list[SifDescriptor]:
    """Add signatures to an image, all or none; returns the new signature objects."""
    items: list[DataObject] = []
    with explained(path), path.open("rb") as file:
        reader = SifReader(file, str(path))
        digester = Digester(reader, progress or Silent())
        for group, objects in _plan_groups(reader, selection):
            document = compute_metadata(digester, group, objects).encode()
            for signer in signers:
                content, extra = signer.sign_document(document, now)
                items.append(
                    DataObject(DataType.SIGNATURE, content, group=0, link=group, links_group=True, extra=extra)
                )
    return append_objects(path, items)
