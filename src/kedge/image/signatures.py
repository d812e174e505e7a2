# SPDX-License-Identifier: BSD-3-Clause
"""Signing and verifying image files: finds the key material, then hands over to `signing`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.progress import Progress, Silent
from kedge.errors import KedgeError, KeyNotFound, UsageError
from kedge.image.formats.sif.layout import SifDescriptor
from kedge.image.formats.sif.reader import SifReader
from kedge.image.keys import Fetch, KeySummary, fetch_key, summarize
from kedge.image.trust.certificates import CertificateFiles, load_certified_key
from kedge.image.trust.crypto import PassphraseNeeded, SigningKey, load_private_pem, load_public_pem
from kedge.image.trust.keyring import KeyRing, find_in_blocks, locate_folder, read_key_file, select_key
from kedge.image.trust.keyserver import DEFAULT_SERVER
from kedge.image.trust.openpgp.keys import KeyBlock, merge_blocks
from kedge.image.trust.sign import AskPassphrase, DocumentSigner, PemSigner, SignSelection, sign_image, unlock_key
from kedge.image.trust.verify import REMOTE, FindKeys, KnownKey, Material, VerifyReport, VerifySelection, verify_image
from kedge.system.files import explained
from kedge.system.settings import home_directory

_ChooseKey = Callable[[Sequence[KeySummary]], int | None]  # None: nobody chose
_PREFIXES = ("KEDGE_", "APPTAINER_", "SINGULARITY_")


@dataclass(frozen=True, slots=True)
class SignRequest:
    """What to sign, and with what: PEM files, or a key of the ring by index or fingerprint."""

    path: Path
    selection: SignSelection = field(default_factory=SignSelection)
    pem_files: tuple[Path, ...] = ()
    index: int | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to verify, and with what: PEM files, a certificate, or the rings when neither is given."""

    path: Path
    choice: VerifySelection = field(default_factory=VerifySelection)
    pem_files: tuple[Path, ...] = ()
    certificate: CertificateFiles | None = None
    server: str | None = None  # None: only keys of the rings
    trusts_server: bool = False  # whether keys count that only the server vouches for


@dataclass(frozen=True, slots=True)
class Trust:
    """The key rings, and how to ask the user and key servers."""

    ring: KeyRing
    site_ring: KeyRing | None = None
    ask: AskPassphrase | None = None
    choose: _ChooseKey | None = None
    fetch: Fetch | None = None
    progress: Progress = field(default_factory=Silent)


def open_ring(environ: Mapping[str, str], folder: Path | None = None) -> KeyRing:
    """The user's rings."""
    return KeyRing(folder.absolute() if folder else locate_folder(environ, home_directory(environ)))


def find_variable(environ: Mapping[str, str], name: str) -> str | None:
    """An environment variable under any of the three prefixes, such as SIGN_KEY."""
    return next((environ[prefix + name] for prefix in _PREFIXES if environ.get(prefix + name)), None)


def sign_file(request: SignRequest, trust: Trust) -> list[SifDescriptor]:
    """Sign an image; returns the new signature objects."""
    now = int(time.time())
    signer: DocumentSigner
    if request.pem_files:
        signer = PemSigner(tuple(_load_private(path, trust.ask) for path in request.pem_files))
    else:
        block = _choose_secret(request, trust, now)
        signer = unlock_key(block, trust.ask or _nobody, now)
    return sign_image(request.path, [signer], request.selection, now, trust.progress)


def _nobody(question: str) -> str:
    raise UsageError(
        f"a passphrase is required: {question}", hint="set KEDGE_SIGN_PASSPHRASE, or run kedge in a terminal"
    )


def _load_private(path: Path, ask: AskPassphrase | None) -> SigningKey:
    data = read_key_file(path)
    try:
        return load_private_pem(data, None, where=str(path))
    except PassphraseNeeded:
        return load_private_pem(data, (ask or _nobody)(f"Passphrase of {path}: "), where=str(path))


def _choose_secret(request: SignRequest, trust: Trust, now: int) -> KeyBlock:
    """The secret key to sign with: the one named, the only one, or the one the user chooses."""
    blocks = trust.ring.load_secret()
    if request.fingerprint is not None:
        return select_key(blocks, request.fingerprint, str(trust.ring.secret_path))
    return choose_block(blocks, request.index, trust.choose, now, str(trust.ring.secret_path))


def choose_block(
    blocks: Sequence[KeyBlock], index: int | None, choose: _ChooseKey | None, now: int, where: str
) -> KeyBlock:
    """A key by its index, the only one, or the one the user chooses."""
    if not blocks:
        raise KeyNotFound(
            f"no key in {where}", hint="make one: kedge key newpair; or import one: kedge key import FILE"
        )
    summaries = [summarize(block, at, now) for at, block in enumerate(blocks)]
    if index is None and len(blocks) > 1:
        index = choose(summaries) if choose else None
        if index is None:
            known = "\n".join(f"{item.index}: {item.fingerprint} {', '.join(item.user_ids)}" for item in summaries)
            raise UsageError(
                f"several keys ({len(blocks)}) in {where}",
                context={"keys": known},
                hint="choose one with --fingerprint or --keyidx",
            )
    chosen = index or 0
    if not 0 <= chosen < len(blocks):
        raise KeyNotFound(f"no key {chosen} in {where}", hint=f"use a number from 0 to {len(blocks) - 1}")
    return blocks[chosen]


def verify_file(request: VerifyRequest, trust: Trust) -> VerifyReport:
    """Verify an image; the report holds the problems."""
    now = int(time.time())
    material = _gather_material(request, trust, now)
    with explained(request.path), request.path.open("rb") as file:
        report = verify_image(SifReader(file, str(request.path)), material, request.choice, now, trust.progress)
    if not request.trusts_server:
        _refuse_fetched(report, request)
    return report


def _refuse_fetched(report: VerifyReport, request: VerifyRequest) -> None:
    """Count a key that only the key server vouches for as unknown: anybody can put a key with any name there."""
    for result in report.results:
        stranger = next((signer for signer in result.signers if signer.origin == REMOTE), None)
        if stranger is None or result.error is not None:
            continue
        url = [] if request.server in (None, DEFAULT_SERVER) else ["--url", str(request.server)]
        pull = shlex.join(["kedge", "key", "pull", *url, stranger.fingerprint])
        result.verified = ()
        result.error = KeyNotFound(
            f"{request.path} is signed by the key {stranger.fingerprint}, which only the key server knows",
            context={"reason": "fetched-key", "fingerprint": stranger.fingerprint, "claims to be": stranger.name},
            hint=f"compare the fingerprint with the signer's own, then run: {pull}; "
            "--trust-keyserver accepts it without this",
        )
        report.error = report.error or result.error


def _gather_material(request: VerifyRequest, trust: Trust, now: int) -> Material:
    if request.certificate is not None:
        return Material(keys=(load_certified_key(request.certificate, now),))
    if request.pem_files:
        return Material(keys=tuple(load_public_pem(read_key_file(path), where=str(path)) for path in request.pem_files))
    return Material(find_keys=_make_finder(request.server, trust))


def _make_finder(server: str | None, trust: Trust) -> FindKeys:
    """Looks in the site's ring, the user's ring, then asks the key server, as Apptainer does.

    A key that both rings have counts with what either knows of it: a revocation in one of them is one.
    """
    site = trust.site_ring.load_public() if trust.site_ring else []
    local = trust.ring.load_public()

    def find(identifier: str) -> list[KnownKey]:
        keys = [KnownKey(_merge_known(block, local), "GLOBAL") for block in find_in_blocks(site, identifier)]
        keys = keys or [KnownKey(block, "LOCAL") for block in find_in_blocks(local, identifier)]
        if keys or server is None or trust.fetch is None:
            return keys
        try:
            return [KnownKey(fetch_key(trust.fetch, server, identifier), REMOTE)]
        except KedgeError as problem:
            trust.progress.warn(f"cannot get the key {identifier} from {server}: {problem.message}")
            return []

    return find


def _merge_known(block: KeyBlock, others: Sequence[KeyBlock]) -> KeyBlock:
    for other in others:
        if other.fingerprint == block.fingerprint:
            block = merge_blocks(block, other)
    return block
