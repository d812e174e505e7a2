# SPDX-License-Identifier: BSD-3-Clause
"""`kedge verify`: check the signatures of a SIF file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.cli.options import read_image_path
from kedge.cli.sign import add_keysdir, open_trust
from kedge.container.flags import read_truth
from kedge.errors import KeyNotFound, UsageError
from kedge.image import signatures
from kedge.image.formats.sif.reader import describe_type
from kedge.image.keys import open_fetch
from kedge.image.trust.certificates import CertificateFiles
from kedge.image.trust.keyring import KeyRing
from kedge.image.trust.keyserver import DEFAULT_SERVER
from kedge.image.trust.verify import SignatureResult, VerifyReport, VerifySelection

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.formats.sif.layout import SifDescriptor


def configure(parser: argparse.ArgumentParser) -> None:
    """The options, as Apptainer's."""
    parser.add_argument("image", metavar="IMAGE", type=read_image_path, help="the SIF file")
    parser.add_argument("--key", metavar="FILE", type=Path, action="append", help="PEM public key of the signer")
    parser.add_argument("--certificate", metavar="FILE", type=Path, help="X.509 certificate of the signer")
    parser.add_argument("--certificate-intermediates", metavar="FILE", type=Path, help="intermediate certificates")
    parser.add_argument(
        "--certificate-roots", metavar="FILE", type=Path, help="authorities to trust (default: the system's)"
    )
    parser.add_argument("-l", "--local", action="store_true", help="use only the key rings, no key server")
    parser.add_argument("-u", "--url", metavar="URL", help=f"key server (default: {DEFAULT_SERVER})")
    parser.add_argument(
        "--trust-keyserver",
        action="store_true",
        help="accept keys from the key server that are in no key ring",
    )
    parser.add_argument("--ocsp-verify", action="store_true", help="refused: kedge does not check revocation online")
    parser.add_argument("-a", "--all", action="store_true", help="with --legacy-insecure: verify each object by itself")
    parser.add_argument("-g", "--group-id", "--groupid", metavar="N", type=int, help="verify the objects of this group")
    parser.add_argument("-i", "--sif-id", "--id", metavar="N", type=int, help="verify this object")
    parser.add_argument("--legacy-insecure", action="store_true", help="verify the weak signatures of old writers")
    parser.add_argument("-j", "--json", action="store_true", help="print the result as Apptainer's JSON document")
    add_keysdir(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Verify; the exit status is 0 only for an image whose signatures are valid."""
    request = _read_request(arguments, console)
    trust = replace(open_trust(arguments, console), site_ring=KeyRing.open_global(console.environ))
    if request.server is not None:
        trust = replace(trust, fetch=open_fetch(console.environ, console.settings.ca_bundle))
    console.progress.note(f"Verifying image with {_describe_material(request)}")
    report = signatures.verify_file(request, trust)
    if console.json:
        console.print_json(_format_document(report))
    for result in report.results:
        _print_result(result, console)
    if report.error is not None:
        if not console.json:
            raise report.error
        console.progress.warn(report.error.message)
        return report.error.exit_code
    console.progress.note(f"Verified signature(s) from image '{arguments.image}'", meaning="good")
    return 0


def _read_request(arguments: argparse.Namespace, console: Console) -> signatures.VerifyRequest:
    def find_path(given: Path | None, name: str) -> Path | None:
        text = signatures.find_variable(console.environ, name)
        return given or (Path(text) if text else None)

    if arguments.ocsp_verify or read_truth(signatures.find_variable(console.environ, "VERIFY_OCSP") or ""):
        raise UsageError(
            "--ocsp-verify is refused: kedge does not check online whether a certificate was revoked",
            hint="check the certificate with 'openssl ocsp', then verify without --ocsp-verify",
        )
    if arguments.key and arguments.certificate:
        raise UsageError("--key and --certificate exclude each other", hint="leave out one of them")
    certificate = None if arguments.key else find_path(arguments.certificate, "VERIFY_CERTIFICATE")
    keys = arguments.key or []
    variable = find_path(None, "VERIFY_KEY")
    if not keys and not certificate and variable:
        keys = [variable]
    files = None
    if certificate is not None:
        intermediates = find_path(arguments.certificate_intermediates, "VERIFY_INTERMEDIATES")
        files = CertificateFiles(certificate, intermediates, find_path(arguments.certificate_roots, "VERIFY_ROOTS"))
    groups = (arguments.group_id,) if arguments.group_id is not None else ()
    objects = (arguments.sif_id,) if arguments.sif_id is not None else ()
    is_local = arguments.local or keys or files
    return signatures.VerifyRequest(
        path=arguments.image,
        choice=VerifySelection(groups, objects, arguments.legacy_insecure, arguments.all),
        pem_files=tuple(keys),
        certificate=files,
        server=None if is_local else arguments.url or console.settings.keyserver,
        trusts_server=arguments.trust_keyserver,
    )


def _describe_material(request: signatures.VerifyRequest) -> str:
    if request.certificate is not None:
        return f"key material from certificate '{request.certificate.certificate}'"
    return f"key material from '{request.pem_files[0]}'" if request.pem_files else "PGP key material"


def _print_result(result: SignatureResult, console: Console) -> None:
    for signer in result.signers:
        if signer.fingerprint:
            console.print(f"{'[' + signer.origin + ']':<9} Signing entity: {signer.name}")
            console.print(f"{'[' + signer.origin + ']':<9} Fingerprint: {signer.fingerprint}")
        else:
            console.print(f"Signing key: {signer.name} {signer.key_id}")
    if result.skipped:
        console.progress.note(f"Signature object {result.descriptor.id} was not checked: {result.skipped}")
    if result.verified:
        console.print("Objects verified:")
        console.print(f"{'ID':<4}|{'GROUP':<8}|{'LINK':<8}|TYPE")
        console.print("-" * 48)
    for item in result.verified:
        console.print(f"{item.id:<4}|{item.group or 'NONE':<8}|{_format_link(item):<8}|{describe_type(item.data_type)}")


def _format_link(item: SifDescriptor) -> str:
    if not item.link:
        return "NONE"
    return f"{item.link} (G)" if item.links_group else str(item.link)


def _format_document(report: VerifyReport) -> dict[str, object]:
    """The report with Apptainer's field names, and what went wrong under `Error`."""
    signers: list[dict[str, object]] = []
    for result in report.results:
        who = result.signers[0] if result.signers else None
        shared = {
            "Name": who.name if who else "unknown",
            "Fingerprint": who.fingerprint.lower() if who else "",
            "KeyID": who.key_id if who else "",
            "KeyLocal": bool(who and who.origin in ("LOCAL", "GLOBAL")),
            "KeyCheck": who is not None and not isinstance(result.error, KeyNotFound),
        }
        signers.extend(
            {"Signer": {"Partition": describe_type(item.data_type), **shared, "DataCheck": True}}
            for item in result.verified
        )
        if result.error is not None and who is not None:
            signers.append({"Signer": {"Partition": "", **shared, "DataCheck": False}})
    document: dict[str, object] = {"Signatures": len(report.results), "SignerKeys": signers or None}
    if report.error is not None:
        document["Error"] = report.error.as_dict()
    return document
