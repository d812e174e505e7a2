# SPDX-License-Identifier: BSD-3-Clause
"""Log in to registries and out, list logins, and list the tags of a repository."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.progress import Progress, Silent
from kedge.base.reference import Reference, Transport
from kedge.errors import AuthenticationFailed, InvalidReference, UsageError
from kedge.image.registry.access_options import AccessOptions
from kedge.image.registry.client import RegistryClient
from kedge.image.registry.client_setup import Access
from kedge.image.registry.credentials import Credential, list_logins, login_file, make_login
from kedge.image.registry.docker_config import normalize_key, remove_login, store_login
from kedge.image.registry.secret import Secret
from kedge.system.settings import home_directory

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]{1,5})?\Z")


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Options of all operations on registries."""

    authfile: Path | None = None  # instead of Apptainer's own file
    no_https: bool = False
    ca_bundle: Path | None = None
    retries: int = 5
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress = field(default_factory=Silent)

    @property
    def path(self) -> Path:
        """The file that logins are written to."""
        return self.authfile or login_file(self.home, self.environ)

    @property
    def home(self) -> Path:
        """The user's home."""
        return home_directory(self.environ)

    def open_access(self, login: Credential | None = None) -> Access:
        """Access with these options."""
        options = AccessOptions(
            login=login,
            authfile=None,
            username=None,
            no_https=self.no_https,
            ca_bundle=self.ca_bundle,
            retries=self.retries,
        )
        return Access.open(options, environ=self.environ, progress=self.progress)


@dataclass(frozen=True, slots=True)
class _LoggedIn:
    """A login that was stored."""

    registry: str
    username: str
    path: Path
    was_checked: bool  # False if the registry accepts any login


@dataclass(frozen=True, slots=True)
class _LoggedOut:
    """A login that was removed, if there was one, and where another one still is."""

    registry: str
    path: Path
    was_there: bool
    still_from: str | None


@dataclass(frozen=True, slots=True)
class _KnownLogin:
    """A login as `registry list` shows it: never the secret."""

    registry: str
    username: str
    source: str


def parse_registry(text: str) -> str:
    """The host of `nvcr.io`, `docker://nvcr.io`, `https://r.example:5000/` or `docker.io/library`."""
    scheme, separator, rest = text.strip().partition("://")
    if separator and scheme.lower() not in ("docker", "oras", "https", "http"):
        raise InvalidReference(
            f"'{text}' is not a registry: its scheme {scheme}:// is unknown",
            hint="give the host alone, such as nvcr.io or localhost:5000",
        )
    host = normalize_key((rest if separator else text).strip().rstrip("/"))
    if "/" in host or not _HOST.match(host):
        raise InvalidReference(
            f"'{text}' is not the name of a registry", hint="give the host alone, such as nvcr.io or localhost:5000"
        )
    return host


def log_in(registry: str, username: str, password: Secret, options: RegistryOptions) -> _LoggedIn:
    """Check a login with the registry and store it; nothing is stored when the registry refuses it."""
    host = parse_registry(registry)
    if not username or ":" in username or not username.isprintable():
        raise UsageError(
            f"'{username}' is not a valid user name" if username else "the user name is empty",
            hint="give it with -u USER, without a colon; for nvcr.io: -u '$oauthtoken', in single quotes",
        )
    if not password:
        raise UsageError("the password is empty", hint="for nvcr.io the password is the API key")
    credential = Credential(make_login(username, password), "what you typed")
    with options.open_access(credential) as access:
        was_checked = _check(RegistryClient(host, access), host)
    store_login(options.path, host, username, password)
    return _LoggedIn(host, username, options.path, was_checked)


def _check(client: RegistryClient, host: str) -> bool:
    try:
        return client.check_login()
    except AuthenticationFailed as problem:
        problem.hint = problem.hint or f"check the user name and the password for {host}; nothing was stored"
        raise


def log_out(registry: str, options: RegistryOptions) -> _LoggedOut:
    """Remove our login; logins of other programs stay, and the result says where one is."""
    host = parse_registry(registry)
    was_there = remove_login(options.path, host)
    with options.open_access() as access:
        left = access.sources.find(host, "").credential
    return _LoggedOut(host, options.path, was_there, left.source if left else None)


def list_known_logins(options: RegistryOptions) -> list[_KnownLogin]:
    """The logins for all registries, in the order of precedence."""
    with options.open_access() as access:
        return [_KnownLogin(*login) for login in list_logins(access.sources, options.authfile)]


def list_tags(reference: str, options: RegistryOptions) -> Iterator[str]:
    """The tags of a repository, page by page."""
    parsed = Reference.parse(reference)
    if parsed.transport not in (Transport.DOCKER, Transport.ORAS):
        raise InvalidReference(
            f"'{reference}' is not in a registry", hint="name a repository, such as nvcr.io/nvidia/pytorch"
        )
    with options.open_access() as access:
        yield from RegistryClient(parsed.registry, access).list_tags(parsed.repository)
