# SPDX-License-Identifier: BSD-3-Clause
"""Clients for tests: no waiting between retries, an own home, nothing of this machine's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kedge.image.registry.client_setup import Access
from kedge.image.registry.credentials import CredentialSources
from kedge.image.registry.mirrors import Registries, load_registries
from kedge.image.registry.proxies import Proxies
from kedge.image.registry.transport import HttpTransport, TransportOptions


@dataclass
class Waits:
    """Takes the place of sleeping and remembers how long it would have been."""

    seconds: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_access(
    home: Path,
    environ: dict[str, str] | None = None,
    *,
    waits: Waits | None = None,
    retries: int = 3,
    ca_bundle: Path | None = None,
    plain_http: bool = False,
    trusted: frozenset[str] = frozenset(),
) -> Access:
    """An access whose only configuration is what is given here."""
    environ, waits = environ or {}, waits or Waits()
    options = TransportOptions(
        connect_timeout=5,
        read_timeout=5,
        retries=retries,
        ca_bundle=ca_bundle,
        certificate_folders=(home / "certs.d",),
        proxies=Proxies.from_environment(environ),
        sleep=waits.seconds.append,
        notify=waits.notes.append,
    )
    named = environ.get("CONTAINERS_REGISTRIES_CONF")
    registries = load_registries(environ, home, home / "etc") if named else Registries()
    return Access(
        HttpTransport(options), CredentialSources(environ=environ, home=home), registries, plain_http, trusted
    )
