# SPDX-License-Identifier: BSD-3-Clause
"""The remotes of Apptainer's remote.yaml: add, use, list, check, log in and out, remove."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kedge.base.frozen import replace
from kedge.base.nearest import propose
from kedge.errors import AuthenticationFailed, InvalidSetting, KedgeError, UsageError
from kedge.image.registry.remote_yaml import (
    FILE_NAME,
    SERVICES,
    SITE_FILES,
    Remote,
    Remotes,
    drop_remote,
    find_services,
    list_remotes,
    put_remote,
    set_active,
)
from kedge.image.registry.secret import Secret
from kedge.image.registry.transport import HttpRequest, HttpTransport
from kedge.system.exclusive_change import sole_change
from kedge.system.files import explained, write_atomically
from kedge.system.settings import apptainer_directory

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
_MAXIMUM = 1 << 20


@dataclass(frozen=True, slots=True)
class _Service:
    """One service of a remote."""

    name: str
    uri: str
    version: str  # "" without an answer
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """The remotes of the user's remote.yaml and of the site's."""

    path: Path
    site_files: tuple[Path, ...] = SITE_FILES

    @classmethod
    def of(cls, environ: Mapping[str, str], chosen: Path | None = None) -> RemoteConfig:
        """The file of this user, or `chosen`."""
        return cls(chosen or apptainer_directory(environ) / FILE_NAME)

    def read(self) -> Remotes:
        """Return all remotes, the site's and the user's."""
        return list_remotes(self.path, self.site_files)

    def find(self, name: str) -> Remote:
        """Return one remote; the one in use where `name` is empty."""
        remotes = self.read()
        remote = remotes.known.get(name or remotes.active)
        if remote is None:
            raise InvalidSetting(
                f"unknown remote '{name}'",
                hint=propose(name, list(remotes.known)) or f"known remotes: {', '.join(remotes.known)}",
            )
        return remote

    def add(self, remote: Remote, *, use: bool) -> None:
        """Write a new remote into the user's file."""
        with sole_change(self.path):
            if remote.name in self.read().known:
                raise InvalidSetting(
                    f"the remote '{remote.name}' exists already",
                    hint=f"remove it first: kedge remote remove {remote.name}",
                )
            text = put_remote(self._text(), remote)
            self._save(set_active(text, remote.name) if use else text)

    def use(self, name: str) -> None:
        """Let library:// and key servers mean this remote."""
        remotes = self.read()
        self.find(name)
        exclusive = next((remote.name for remote in remotes.known.values() if remote.is_exclusive), name)
        if exclusive != name:
            raise InvalidSetting(
                f"the site allows the remote {exclusive} only", hint="ask the administrators of this cluster"
            )
        with sole_change(self.path):
            self.find(name)  # again: it may have been removed meanwhile
            self._save(set_active(self._text(), name))

    def remove(self, name: str) -> None:
        """Remove a remote of the user's."""
        if self.find(name).is_site:
            raise InvalidSetting(
                f"{name} is global and can't be removed", hint="use another one: kedge remote use NAME"
            )
        with sole_change(self.path):
            self.find(name)  # again, as above
            text = drop_remote(self._text(), name)
            self._save(set_active(text, "") if self.read().active == name else text)

    def set_token(self, remote: Remote, token: Secret | None) -> None:
        """Store a token, or remove it."""
        with sole_change(self.path):
            known = self.find(remote.name)  # as it is now, not as it was before the token was asked for
            self._save(put_remote(self._text(), replace(known, token=token)))

    def _text(self) -> str:
        try:
            return self.path.read_text()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as problem:
            raise InvalidSetting(
                f"cannot read {self.path}: {problem}", hint="repair the file, or move it away"
            ) from None

    def _save(self, text: str) -> None:
        write_atomically(self.path, text.encode(), mode=0o600, exact=True)


def make_remote(name: str, address: str, *, is_insecure: bool) -> Remote:
    """A remote from the name and the address that a user typed."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' is not a valid name of a remote", hint="use letters, digits, '-', '_' and '.'")
    scheme, separator, rest = address.partition("://")
    uri = (rest if separator else address).rstrip("/")
    if (separator and scheme not in ("http", "https")) or not _ADDRESS.fullmatch(uri):
        raise UsageError(f"'{address}' is not a valid address of a remote", hint="give a host, such as cloud.sylabs.io")
    if scheme == "http" and separator and not is_insecure:
        raise UsageError("http URI requires --insecure or APPTAINER_ADD_INSECURE=true", hint=f"or: https://{uri}")
    return Remote(name, uri, is_insecure=is_insecure)


def check_services(transport: HttpTransport, remote: Remote) -> list[_Service]:
    """Ask each service of a remote for its version."""
    return [_check_service(transport, SERVICES[name], uri) for name, uri in find_services(transport, remote).items()]


def _check_service(transport: HttpTransport, name: str, uri: str) -> _Service:
    try:
        with transport.send(HttpRequest("GET", f"{uri}/version", {"Accept": "application/json"})) as response:
            raw = response.read_all(_MAXIMUM, f"the version of {uri}")
            if response.status != 200:
                return _Service(name, uri, "", f"status {response.status}")
        return _Service(name, uri, str(json.loads(raw)["data"]["version"]))
    except KedgeError as problem:
        return _Service(name, uri, "", problem.message)
    except (ValueError, KeyError, TypeError, RecursionError):
        return _Service(name, uri, "", "no version in its answer")


def check_token(transport: HttpTransport, remote: Remote, token: Secret) -> None:
    """Raise unless the remote accepts the token."""
    uri = find_services(transport, remote).get("tokenAPI")
    if uri is None:
        raise InvalidSetting(f"cannot log in to {remote.name}: it has no token service")
    authorization = Secret(f"Bearer {token.reveal()}")
    with transport.send(HttpRequest("GET", f"{uri}/v1/token-status", authorization=authorization)) as response:
        if response.status != 200:
            raise AuthenticationFailed(
                f"{remote.name} refuses the token (status {response.status})",
                hint=f"make a new token at {remote.base}/auth/tokens",
            )


def read_token(path: Path) -> Secret:
    """The token in a file."""
    with explained(path):
        text = path.read_text(errors="replace").strip()
    if not text or len(text.split()) != 1:
        raise UsageError(f"{path} holds no token", hint="the file must hold the token alone, in one line")
    return Secret(text)
