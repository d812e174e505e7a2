# SPDX-License-Identifier: BSD-3-Clause
"""The remotes of Apptainer's remote.yaml: add, use, list, ask how they are, log in and out, remove."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kedge.errors import AuthenticationFailed, InvalidSetting, KedgeError, UsageError
from kedge.model.nearest import propose
from kedge.posix.exclusive_change import sole_change
from kedge.posix.files import explained, write_atomically
from kedge.registry.remote_services import SERVICES, find_services
from kedge.registry.remote_yaml import (
    FILE_NAME,
    SITE_FILES,
    Remote,
    Remotes,
    drop_remote,
    list_remotes,
    put_remote,
    set_active,
)
from kedge.registry.secret import Secret
from kedge.registry.transport import HttpRequest, HttpTransport
from kedge.settings import apptainer_directory

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
_MAXIMUM = 1 << 20


@dataclass(frozen=True, slots=True)
class _Service:
    """One service of a remote."""

    name: str
    uri: str
    version: str  # "" where it does not answer
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """The user's remote.yaml and what the site adds."""

    path: Path
    site_files: tuple[Path, ...] = SITE_FILES

    @classmethod
    def of(cls, environ: Mapping[str, str], chosen: Path | None = None) -> RemoteConfig:
        """The file of this user, or `chosen`."""
        return cls(chosen or apptainer_directory(environ) / FILE_NAME)

    def read(self) -> Remotes:
        """All remotes there are."""
        return list_remotes(self.path, self.site_files)

    def find(self, name: str) -> Remote:
        """One of them; the one in use where `name` is empty."""
        remotes = self.read()
        found = remotes.known.get(name or remotes.active)
        if found is None:
            raise InvalidSetting(
                f"{name} is not a remote",
                hint=propose(name, list(remotes.known)) or f"there is: {', '.join(remotes.known)}",
            )
        return found

    def add(self, remote: Remote, *, use: bool) -> None:
        """Write a new remote into the user's file."""
        with sole_change(self.path):
            if remote.name in self.read().known:
                raise InvalidSetting(f"{remote.name} is already a remote", hint=f"kedge remote remove {remote.name}")
            text = put_remote(self._text(), remote)
            self._save(set_active(text, remote.name) if use else text)

    def use(self, name: str) -> None:
        """Let library:// and key servers mean this remote."""
        remotes = self.read()
        self.find(name)
        exclusive = next((each.name for each in remotes.known.values() if each.is_exclusive), name)
        if exclusive != name:
            raise InvalidSetting(
                f"the site allows the remote {exclusive} only", hint="ask the administrators of this cluster"
            )
        with sole_change(self.path):
            self.find(name)  # again: it may have been removed meanwhile
            self._save(set_active(self._text(), name))

    def remove(self, name: str) -> None:
        """Forget a remote of the user's."""
        if self.find(name).is_site:
            raise InvalidSetting(f"{name} is global and can't be removed", hint="'kedge remote use NAME' takes another")
        with sole_change(self.path):
            self.find(name)  # again, as above
            text = drop_remote(self._text(), name)
            self._save(set_active(text, "") if self.read().active == name else text)

    def set_token(self, remote: Remote, token: Secret | None) -> None:
        """Keep a token, or forget it."""
        with sole_change(self.path):
            known = self.find(remote.name)  # as it is now, not as it was before the token was asked for
            self._save(put_remote(self._text(), replace(known, token=token)))

    def _text(self) -> str:
        try:
            return self.path.read_text()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as problem:
            raise InvalidSetting(f"{self.path} cannot be read: {problem}", hint="repair it, or move it away") from None

    def _save(self, text: str) -> None:
        write_atomically(self.path, text.encode(), mode=0o600, exact=True)


def make_remote(name: str, address: str, *, is_insecure: bool) -> Remote:
    """A remote from what a user typed."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be the name of a remote", hint="letters, digits, '-', '_' and '.'")
    scheme, separator, rest = address.partition("://")
    uri = (rest if separator else address).rstrip("/")
    if (separator and scheme not in ("http", "https")) or not _ADDRESS.fullmatch(uri):
        raise UsageError(f"'{address}' is not the address of a remote", hint="such as cloud.sylabs.io")
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
    """Raise unless the remote knows the token."""
    uri = find_services(transport, remote).get("tokenAPI")
    if uri is None:
        raise InvalidSetting(f"{remote.name} has no token service, so nobody can log in there")
    authorization = Secret(f"Bearer {token.reveal()}")
    with transport.send(HttpRequest("GET", f"{uri}/v1/token-status", authorization=authorization)) as response:
        if response.status != 200:
            raise AuthenticationFailed(
                f"{remote.name} refuses the token (status {response.status})",
                hint=f"make one at {remote.base}/auth/tokens and try again",
            )


def read_token(path: Path) -> Secret:
    """The token in a file."""
    with explained(path):
        text = path.read_text(errors="replace").strip()
    if not text or len(text.split()) != 1:
        raise UsageError(f"{path} holds no token", hint="the file holds the token alone, in one line")
    return Secret(text)
