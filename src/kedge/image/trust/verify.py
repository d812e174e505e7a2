# SPDX-License-Identifier: BSD-3-Clause
"""Verifies signatures of SIF images and names the first problem.

Each chosen group needs at least one signature that is checked with the given keys; every checked signature must be
good. A signature of the other format (OpenPGP when a PEM key was given, or the reverse) is reported, not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kedge.base.progress import Progress, Silent
from kedge.errors import KedgeError, KeyNotFound, SignatureInvalid
from kedge.image.formats.sif.layout import DataType, SifDescriptor
from kedge.image.formats.sif.reader import SifReader
from kedge.image.trust import dsse
from kedge.image.trust.crypto import VerifyingKey
from kedge.image.trust.digests import Digester, check_metadata, list_group, list_groups, parse_metadata
from kedge.image.trust.openpgp.armor import Cleartext, is_cleartext, parse_cleartext
from kedge.image.trust.openpgp.key_validity import check_document, judge
from kedge.image.trust.openpgp.keys import KeyBlock
from kedge.image.trust.openpgp.signature import read_signatures

_MAXIMUM_SIGNATURE = 1 << 20
REMOTE = "REMOTE"  # the origin of keys that only a key server vouches for
_LEGACY_START = b"SIFHASH:\n"
_LEGACY_HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A public key and where it was found: LOCAL, GLOBAL or REMOTE."""

    block: KeyBlock
    origin: str


FindKeys = Callable[[str], Sequence[KnownKey]]  # gets a fingerprint or key id; gives the keys it may be


@dataclass(frozen=True, slots=True)
class Material:
    """The keys to verify with: a function that finds OpenPGP keys, or PEM keys."""

    find_keys: FindKeys | None = None
    keys: tuple[VerifyingKey, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifySelection:
    """What to verify: groups, objects, or every group when both are empty."""

    groups: tuple[int, ...] = ()
    objects: tuple[int, ...] = ()
    legacy: bool = False
    every_object: bool = False  # with legacy: each object by its own signature


@dataclass(frozen=True, slots=True)
class _SignerIdentity:
    """The signer of one signature."""

    name: str
    fingerprint: str  # of OpenPGP keys
    origin: str = ""
    key_id: str = ""  # of PEM keys


@dataclass(slots=True)
class SignatureResult:
    """The result for one signature object."""

    descriptor: SifDescriptor
    form: str = ""  # "OpenPGP", "DSSE" or "legacy"
    signers: tuple[_SignerIdentity, ...] = ()
    verified: tuple[SifDescriptor, ...] = ()
    skipped: str = ""
    error: KedgeError | None = None


@dataclass(slots=True)
class VerifyReport:
    """All results; `error` is the first reason not to trust the image."""

    results: list[SignatureResult] = field(default_factory=list)
    error: KedgeError | None = None

    @property
    def is_good(self) -> bool:
        """Whether all chosen objects are signed and unchanged."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class _Task:
    """One group, or objects of it, that needs a good signature."""

    group: int
    objects: tuple[int, ...] = ()
    by_object: bool = False  # look for signatures linked to the object, as old writers did


def verify_image(
    reader: SifReader, material: Material, choice: VerifySelection, now: int, progress: Progress | None = None
) -> VerifyReport:
    """Check the chosen signatures; problems are in the report, not raised."""
    report = VerifyReport()
    verifier = _Verifier(Digester(reader, progress or Silent()), material, choice, now)
    try:
        _refuse_ungrouped(reader)
        tasks = _plan(reader, choice)
    except KedgeError as problem:
        report.error = problem
        return report
    for task in tasks:
        verifier.run(task, report)
    return report


def _refuse_ungrouped(reader: SifReader) -> None:
    for descriptor in reader.descriptors:
        if not descriptor.group and descriptor.data_type != DataType.SIGNATURE:
            raise _invalid(
                "ungrouped-object",
                f"object {descriptor.id} of {reader.where} is in no group, so nothing can vouch for it",
            )


def _plan(reader: SifReader, choice: VerifySelection) -> list[_Task]:
    objects = choice.objects
    if choice.legacy and not choice.groups and not objects:
        members = [item for item in reader.descriptors if item.group and item.data_type != DataType.SIGNATURE]
        objects = tuple(item.id for item in members if choice.every_object) or (reader.primary_partition().id,)
    tasks = [_Task(group) for group in choice.groups]
    tasks += [_Task(reader.find(item).group, (item,), by_object=choice.legacy) for item in objects]
    if not tasks:
        tasks = [_Task(group) for group in list_groups(reader)]
    if not tasks:
        raise _invalid("no-signature", f"{reader.where} has no objects, and no signature")
    for task in tasks:
        list_group(reader, task.group)
    return tasks


def _invalid(reason: str, message: str, hint: str | None = None) -> SignatureInvalid:
    return SignatureInvalid(message, context={"reason": reason}, hint=hint)


class _Verifier:
    """Verifies one image."""

    def __init__(self, digester: Digester, material: Material, choice: VerifySelection, now: int) -> None:
        self.digester = digester
        self.reader = digester.reader
        self.material = material
        self.choice = choice
        self.now = now

    def run(self, task: _Task, report: VerifyReport) -> None:
        """Check every signature of one task; the report keeps the first problem."""
        checked = (self._check(descriptor, task) for descriptor in self._find_signatures(task))
        results = [result for result in checked if result is not None]
        report.results += results
        error = next((result.error for result in results if result.error), None)
        if error is None and not any(result.verified for result in results):
            error = self._explain_none(task, results)
        report.error = report.error or error

    def _find_signatures(self, task: _Task) -> list[SifDescriptor]:
        link, is_group = (task.objects[0], False) if task.by_object else (task.group, True)
        return [
            item
            for item in self.reader.descriptors
            if item.data_type == DataType.SIGNATURE and item.link == link and item.links_group == is_group
        ]

    def _explain_none(self, task: _Task, results: list[SignatureResult]) -> SignatureInvalid:
        what = f"object {task.objects[0]}" if task.by_object else f"object group {task.group}"
        if results:
            return _invalid(
                "other-form", f"no signature of {what} of {self.reader.where} was checked: {results[0].skipped}"
            )
        hint = "sign it with 'kedge sign'"
        if not self.choice.legacy and self._has_legacy():
            hint = "it has signatures of an old, weak kind: --legacy-insecure accepts them"
        return _invalid("no-signature", f"{self.reader.where} has no signature for {what}", hint)

    def _has_legacy(self) -> bool:
        return any(
            item.data_type == DataType.SIGNATURE
            and item.size <= _MAXIMUM_SIGNATURE
            and _LEGACY_START in self.reader.read_object(item, _MAXIMUM_SIGNATURE)
            for item in self.reader.descriptors
        )

    def _check(self, descriptor: SifDescriptor, task: _Task) -> SignatureResult | None:
        """Check one signature object; None for one that is out of scope (a legacy signature, or the reverse)."""
        what = f"the signature (object {descriptor.id}) of {self.reader.where}"
        result = SignatureResult(descriptor)
        try:
            data = self.reader.read_object(descriptor, _MAXIMUM_SIGNATURE)
            if is_cleartext(data):
                message = parse_cleartext(data, what)
                is_legacy = message.text.startswith(_LEGACY_START)
                if is_legacy != self.choice.legacy:
                    return None
                result.form = "legacy" if is_legacy else "OpenPGP"
                self._check_cleartext(message, task, result, what)
            elif dsse.is_envelope(data):
                if self.choice.legacy:
                    return None
                result.form = "DSSE"
                self._check_envelope(data, task, result, what)
            else:
                raise _invalid("bad-signature", f"{what} has an unknown format")
        except KedgeError as problem:
            problem.context.setdefault("reason", "bad-signature")
            result.error = problem
        return result

    def _check_cleartext(self, message: Cleartext, task: _Task, result: SignatureResult, what: str) -> None:
        if self.material.find_keys is None:
            result.skipped = "it is an OpenPGP signature; verify it without --key and --certificate"
            return
        signer = self._find_signer(message, result.descriptor, what)
        result.signers = (signer,)
        if bytes.fromhex(signer.fingerprint) != result.descriptor.entity:
            raise _invalid(
                "signer-mismatch",
                f"{what} claims to be by {result.descriptor.entity.hex().upper()}, but {signer.fingerprint} made it",
            )
        if result.form == "legacy":
            result.verified = self._check_legacy(message.text, task, result.descriptor)
            return
        metadata = parse_metadata(message.text, what)
        result.verified = check_metadata(metadata, self.digester, task.group, task.objects)

    def _find_signer(self, message: Cleartext, descriptor: SifDescriptor, what: str) -> _SignerIdentity:
        """The signer of the first signature whose key is known; that signature must be good."""
        assert self.material.find_keys is not None
        wanted: list[str] = []
        problem: KedgeError | None = None
        for signature in read_signatures(message.signature, what)[:16]:
            identifier = signature.issuer_fingerprint or signature.issuer_key_id
            if identifier is None:
                continue
            wanted.append(identifier)
            for known in self.material.find_keys(identifier):  # more than one: key ids can collide
                try:
                    judged = judge(known.block, self.now)
                    check_document(judged, signature, message.signed, self.now, what)
                    return _SignerIdentity(judged.name, judged.fingerprint, known.origin)
                except KedgeError as refusal:
                    problem = refusal
            if problem is not None:
                raise problem
        if not wanted:
            raise _invalid("bad-signature", f"{what} does not say who made it")
        claimed = descriptor.entity.hex().upper()  # old signatures name a short key id only; this is the whole one
        fingerprint = claimed if claimed.endswith(wanted[0]) else wanted[0]
        raise KeyNotFound(
            f"{what} was made by the key {fingerprint}, which is not in your key ring",
            context={"reason": "unknown-key", "fingerprint": fingerprint},
            hint=f"if you trust its owner: kedge key pull {fingerprint}, or kedge key import FILE",
        )

    def _check_envelope(self, data: bytes, task: _Task, result: SignatureResult, what: str) -> None:
        if not self.material.keys:
            result.skipped = "it was made with a PEM key; verify it with --key or --certificate"
            return
        envelope = dsse.parse_envelope(data, what)
        signers = dsse.find_signers(envelope, self.material.keys)
        if not signers:
            ids = ", ".join(item.key_id or "unnamed" for item in envelope.signatures[:4])
            known = any(item.key_id == key.key_id for item in envelope.signatures for key in self.material.keys)
            reason = "bad-signature" if known else "wrong-key"
            text = "does not match the signed content" if known else "was not made by the given key"
            error = _invalid(reason, f"{what} {text}", None if known else "give the signer's public key")
            error.context |= {"signed by": ids, "given": ", ".join(key.key_id for key in self.material.keys)}
            raise error
        result.signers = tuple(_SignerIdentity(key.kind, "", "", key.key_id) for key in signers)
        metadata = parse_metadata(envelope.payload, what)
        result.verified = check_metadata(metadata, self.digester, task.group, task.objects)

    def _check_legacy(self, text: bytes, task: _Task, descriptor: SifDescriptor) -> tuple[SifDescriptor, ...]:
        members = list_group(self.reader, task.group)
        chosen = [item for item in members if not task.objects or item.id in task.objects]
        algorithm = _LEGACY_HASHES.get(descriptor.hash_type)
        signed = text[len(_LEGACY_START) :].strip().decode("ascii", "replace").lower()
        if algorithm is None or signed != self.digester.hash_together(chosen, algorithm):
            numbers = ", ".join(str(item.id) for item in chosen)
            raise _invalid("object-changed", f"object {numbers} of {self.reader.where} was changed after signing")
        return tuple(chosen)
