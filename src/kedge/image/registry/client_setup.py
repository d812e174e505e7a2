# SPDX-License-Identifier: BSD-3-Clause
"""What a client needs besides the name of the registry: transport, credentials, mirrors and permissions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.base.progress import Progress, Silent
from kedge.base.release import VERSION
from kedge.image.registry.access_options import AccessOptions
from kedge.image.registry.credentials import CredentialSources
from kedge.image.registry.mirrors import Registries, load_registries, user_configuration
from kedge.image.registry.proxies import Proxies
from kedge.image.registry.tls import CERTIFICATE_FOLDERS
from kedge.image.registry.transport import HttpTransport, TransportOptions
from kedge.system.settings import home_directory


@frozen
class Access:
    """How registries are reached; one is shared by all clients of a command, so connections are reused."""

    transport: HttpTransport
    sources: CredentialSources = CredentialSources()
    registries: Registries = Registries()
    plain_http: bool = False  # --no-https: http and nothing else
    trusted_realms: frozenset[str] = frozenset()

    @classmethod
    def open(
        cls,
        options: AccessOptions | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Access:
        """An access with this user's proxies, certificates, credentials and mirrors."""
        options = options or AccessOptions()
        environ = os.environ if environ is None else environ
        progress = progress or Silent()
        home = home_directory(environ)
        registries = load_registries(environ, home)
        for note in registries.notes:
            progress.detail(note)
        return cls(
            HttpTransport(_transport_options(options, environ, home, progress)),
            CredentialSources(
                explicit=options.login,
                authfile=options.authfile,
                username=options.username,
                environ=environ,
                home=home,
                registries=options.login_registries,
            ),
            registries,
            options.no_https,
            frozenset(environ.get("KEDGE_TRUSTED_REALMS", "").lower().replace(",", " ").split()),
        )

    def close(self) -> None:
        """Close idle connections."""
        self.transport.close()

    def __enter__(self) -> Access:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()


def _transport_options(
    options: AccessOptions, environ: Mapping[str, str], home: Path, progress: Progress
) -> TransportOptions:
    bundle = options.ca_bundle
    if bundle is None and environ.get("KEDGE_CA_BUNDLE"):
        bundle = Path(environ["KEDGE_CA_BUNDLE"])
    user = user_configuration(environ, home) / "certs.d"
    made = TransportOptions(
        user_agent=f"kedge/{VERSION}",
        retries=options.retries,
        ca_bundle=bundle,
        certificate_folders=(user, *CERTIFICATE_FOLDERS),
        proxies=Proxies.from_environment(environ),
        notify=progress.note,
        count=options.count,
        read_timeout=options.stall_timeout,
        minimum_speed=options.minimum_speed,
    )
    limit = options.patience
    if limit is None:
        return made
    # half of it for one attempt, so that there is a second one
    return replace(made, patience=limit, longest_wait=limit, connect_timeout=limit / 2, read_timeout=limit / 2)
