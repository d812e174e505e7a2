# SPDX-License-Identifier: BSD-3-Clause
"""Which certificate files go with a host: the user's bundle, certs.d directories, the system's authorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import InvalidSetting

# Where distributions keep the bundle; interpreters built elsewhere (conda, uv) look in places that are not here.
SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
CERTIFICATE_FOLDERS = (Path("/etc/docker/certs.d"), Path("/etc/containers/certs.d"))


@dataclass(frozen=True, slots=True)
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
