# SPDX-License-Identifier: BSD-3-Clause
"""X.509 certificates of signers: a chain from the given certificate to a trusted root, fit for signing code."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import KeyUnusable
from kedge.image.trust.crypto import Certificate, VerifyingKey, load_certificates
from kedge.image.trust.keyring import read_key_file

MAXIMUM_DEPTH = 8
# where distributions keep their bundle of authorities
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Which files to read; without roots the system's authorities are trusted."""

    certificate: Path
    intermediates: Path | None = None
    roots: Path | None = None


def load_certified_key(files: CertificateFiles, now: int) -> VerifyingKey:
    """The key of a certificate that is valid for signing code now; KeyUnusable says what is wrong with it."""
    leaf = _load(files.certificate)[0]
    intermediates = _load(files.intermediates) if files.intermediates else []
    roots = _load(files.roots or _find_system_bundle())
    _check_alone(leaf, now)
    if not leaf.may_sign_code:
        raise KeyUnusable(f"the certificate of {leaf.subject} is not meant for signing code (extended key usage)")
    _find_chain(leaf, intermediates, roots, now)
    return leaf.load_key(where=str(files.certificate))


def _load(path: Path) -> list[Certificate]:
    return load_certificates(read_key_file(path), where=str(path))


def _find_system_bundle() -> Path:
    for path in SYSTEM_BUNDLES:
        if path.is_file():
            return path
    raise KeyUnusable("this system has no bundle of certificate authorities", hint="give --certificate-roots FILE")


def _find_chain(
    leaf: Certificate, intermediates: Sequence[Certificate], roots: Sequence[Certificate], now: int
) -> list[Certificate]:
    """The certificates from the leaf to a root, each issued by the next."""
    chain = [leaf]
    if _extend(chain, intermediates, roots, now):
        return chain
    raise KeyUnusable(
        f"the certificate of {leaf.subject} does not lead to a trusted authority",
        hint="give --certificate-intermediates or --certificate-roots",
    )


def _extend(
    chain: list[Certificate], intermediates: Sequence[Certificate], roots: Sequence[Certificate], now: int
) -> bool:
    last = chain[-1]
    if last in roots:
        return True
    if len(chain) > MAXIMUM_DEPTH:
        return False
    for issuer in (*roots, *intermediates):
        if issuer in chain or not _can_issue(issuer, len(chain) - 1, now) or not last.is_issued_by(issuer):
            continue
        chain.append(issuer)
        if issuer in roots or _extend(chain, intermediates, roots, now):
            return True
        chain.pop()
    return False


def _can_issue(issuer: Certificate, below: int, now: int) -> bool:
    try:
        _check_alone(issuer, now)
    except KeyUnusable:
        return False
    return issuer.is_authority and issuer.may_sign_code and (issuer.path_length is None or below <= issuer.path_length)


def _check_alone(certificate: Certificate, now: int) -> None:
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    who = f"the certificate of {certificate.subject}"
    if moment < certificate.not_before:
        raise KeyUnusable(f"{who} is not valid before {certificate.not_before:%Y-%m-%d %H:%M:%S} UTC")
    if moment > certificate.not_after:
        raise KeyUnusable(f"{who} expired on {certificate.not_after:%Y-%m-%d %H:%M:%S} UTC")
    if certificate.unknown_critical:
        raise KeyUnusable(f"{who} demands a rule that kedge does not know: {certificate.unknown_critical[0]}")
