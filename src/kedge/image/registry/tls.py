# SPDX-License-Identifier: BSD-3-Clause
"""TLS of one host: its certificate files (the user's bundle, certs.d, the system's), and the context made of them."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.errors import InvalidSetting
from kedge.system.start_kedge import find_bundle_copy

# Where distributions keep the bundle; interpreters built elsewhere (conda, uv) look in places that are not here.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
# Where they keep one file for each authority, under the hash of its name: of those OpenSSL reads the one that it needs.
SYSTEM_FOLDERS = (Path("/etc/ssl/certs"), Path("/etc/pki/ca-trust/extracted/pem/directory-hash"))
CERTIFICATE_FOLDERS = (Path("/etc/docker/certs.d"), Path("/etc/containers/certs.d"))
_HASHED = late_pattern(r"[0-9a-f]{8}\.[0-9]")


@frozen
class HostCertificates:
    """Extra authorities and a client certificate for one host."""

    authorities: tuple[Path, ...] = ()
    client: tuple[Path, Path] | None = None  # certificate, key


def find_certificates(host: str, folders: Iterable[Path], bundle: Path | None) -> HostCertificates:
    """What certs.d directories hold for `host` (with its port, when it has one), and the user's bundle."""
    authorities: list[Path] = []
    client: tuple[Path, Path] | None = None
    if bundle is not None:
        if not bundle.is_file():
            raise InvalidSetting(
                f"the certificate bundle {bundle} does not exist", hint="check KEDGE_CA_BUNDLE or --ca"
            )
        authorities.append(bundle)
    for folder in folders:
        place = folder / host
        try:
            authorities.extend(sorted(place.glob("*.crt")))
            for certificate in sorted(place.glob("*.cert")):
                key = certificate.with_suffix(".key")
                if client is None and key.is_file():
                    client = (certificate, key)
        except OSError:  # a certs.d that we may not read is as good as none
            continue
    return HostCertificates(tuple(authorities), client)


def list_own_authorities() -> list[Path]:
    """The file that a bundle of kedge brings along, for hosts that have no authorities at all."""
    copy = find_bundle_copy()
    return [Path(copy, "certificates.pem")] if copy else []


def find_hashed_folder() -> Path | None:
    """A directory of the system with a file for each authority, named by its hash; None where files are to be read.

    Reading all authorities of a bundle takes 40 ms, more than a request. One that is missing in the directory is found
    by `load_all_authorities`. Who names a file or directory by OpenSSL's variables has it read, and an interpreter with
    authorities of its own (conda) trusts no others.
    """
    paths = ssl.get_default_verify_paths()
    if os.environ.get(paths.openssl_cafile_env) or os.environ.get(paths.openssl_capath_env):
        return None
    own = (Path(paths.capath),) if paths.capath else ()
    return next((folder for folder in own or (() if paths.cafile else SYSTEM_FOLDERS) if _has_hashes(folder)), None)


def _has_hashes(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(_HASHED.fullmatch(entry.name) for entry in entries)
    except OSError:
        return False


def load_all_authorities(context: ssl.SSLContext) -> None:
    """Trust what the bundle of the system has, too: an administrator may have put an authority there alone."""
    context.load_default_certs()
    _load_bundle(context)


def _load_bundle(context: ssl.SSLContext) -> None:
    """Read the bundle, for interpreters that do not know where the system has it."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return
    for bundle in (*SYSTEM_BUNDLES, *list_own_authorities()):
        if bundle.is_file():
            context.load_verify_locations(bundle)
            break


def make_context(files: HostCertificates, *, verify: bool) -> ssl.SSLContext:
    """Return what one host is trusted by: the system's authorities, its directory's, and our certificate for it."""
    folder = find_hashed_folder()
    context = ssl.create_default_context(capath=folder)
    # Python 3.13 wants certificates to say more than curl and docker ask for. Those of a site's own authority often do
    # not, and would be refused as if the authority were not trusted.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if folder is None:
        _load_bundle(context)
    for authority in files.authorities:
        with _usable(authority):
            context.load_verify_locations(authority)
    if files.client:
        certificate, key = files.client
        with _usable(certificate):
            context.load_cert_chain(certificate, key)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, OSError) as problem:
        raise InvalidSetting(
            f"cannot use {path} as a certificate: {getattr(problem, 'strerror', None) or problem}",
            hint="it must be a PEM file that you may read",
        ) from None
