# SPDX-License-Identifier: BSD-3-Clause
"""The auth files of Docker, Podman and Apptainer: read, matched to a repository, changed without loss."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedge.base.frozen import NOTHING, frozen
from kedge.errors import InvalidSetting
from kedge.image.registry.secret import Secret
from kedge.system.exclusive_change import sole_change
from kedge.system.files import write_atomically

_MAXIMUM = 4 << 20
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})


@frozen
class Login:
    """What one entry of a file holds."""

    username: str = ""
    password: Secret | None = None
    identity_token: Secret | None = None
    registry_token: Secret | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the entry holds no password or token, as when a credential helper keeps them."""
        return not (self.username and self.password) and not self.identity_token and not self.registry_token


@frozen
class AuthFile:
    """A parsed auth file."""

    path: Path
    logins: Mapping[str, Login] = NOTHING
    helpers: Mapping[str, str] = NOTHING
    store: str = ""

    def find_login(self, registry: str, repository: str) -> Login | None:
        """The entry whose key fits best: the longest path first, as containers/image does."""
        by_key = {normalize_key(key): login for key, login in self.logins.items() if not login.is_empty}
        return next((by_key[key] for key in list_keys(registry, repository) if key in by_key), None)

    def find_helper(self, registry: str, repository: str) -> tuple[str, str] | None:
        """The credential helper for a registry and the key to ask it for; falls back on the general store."""
        by_key = {normalize_key(key): (name, key) for key, name in self.helpers.items()}
        for key in list_keys(registry, repository):
            if key in by_key:
                return by_key[key]
        return (self.store, _storage_key(registry)) if self.store else None


def list_keys(registry: str, repository: str) -> list[str]:
    """The keys that fit a repository, best first: host/a/b, host/a, host."""
    host = normalize_key(registry)
    parts = [part for part in repository.split("/") if part]
    return ["/".join([host, *parts[:count]]) for count in range(len(parts), -1, -1)]


def normalize_key(key: str) -> str:
    """Return one spelling for all: no scheme, no trailing slash, docker.io for all names of Docker Hub."""
    text = key.strip()
    has_scheme = "://" in text
    text = text.split("://", 1)[-1].rstrip("/")
    host, _, path = text.partition("/")
    host = host.lower()
    if host in _HUB_NAMES:
        host = "docker.io"
    if has_scheme or path in ("v1", "v2"):  # an address of an old API, not a repository
        path = ""
    return f"{host}/{path}" if path else host


def _storage_key(registry: str) -> str:
    """The key an entry is written under, so that Docker and Apptainer find it."""
    host = normalize_key(registry)
    return _HUB_KEY if host == "docker.io" else host


def read_auth_file(path: Path) -> AuthFile | None:
    """Parse an auth file; None when there is none, InvalidSetting when it cannot be used."""
    document = _load(path)
    if document is None:
        return None
    logins = {str(key): _parse_login(entry) for key, entry in _table(document, "auths").items()}
    helpers = {str(key): str(name) for key, name in _table(document, "credHelpers").items() if isinstance(name, str)}
    store = document.get("credsStore")
    return AuthFile(path, logins, helpers, store if isinstance(store, str) else "")


def store_login(path: Path, registry: str, username: str, password: Secret) -> None:
    """Write one login, atomically and readable for its owner only; every other entry stays as it is."""
    target = path.resolve()  # a link into a dotfiles directory stays a link
    with sole_change(target):
        document = _load(target) or {}
        _put_login(document, path, registry, f"{username}:{password.reveal()}")
        _save(target, document)


def _put_login(document: dict[str, Any], path: Path, registry: str, login: str) -> None:
    auths = document.setdefault("auths", {})
    if not isinstance(auths, dict):
        raise InvalidSetting(f"{path}: 'auths' is not an object", hint="move the file away and log in again")
    for key in [key for key in auths if normalize_key(key) == normalize_key(registry)]:
        del auths[key]
    auths[_storage_key(registry)] = {"auth": base64.b64encode(login.encode()).decode()}


def remove_login(path: Path, registry: str) -> bool:
    """Remove a login; returns whether there was one."""
    if not _drop_login(_load(path) or {}, registry):
        return False  # and nothing is made for a file that is not there
    target = path.resolve()
    with sole_change(target):
        document = _load(target) or {}
        was_there = _drop_login(document, registry)
        if was_there:
            _save(target, document)
    return was_there


def _drop_login(document: dict[str, Any], registry: str) -> bool:
    auths = _table(document, "auths")
    keys = [key for key in auths if normalize_key(key) == normalize_key(registry)]
    for key in keys:
        del auths[key]
    return bool(keys)


def _save(target: Path, document: dict[str, Any]) -> None:
    write_atomically(target, (json.dumps(document, indent="\t") + "\n").encode(), mode=0o600)


def _load(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAXIMUM + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise InvalidSetting(f"cannot read {path}: {problem.strerror}", hint="check its owner and mode") from None
    if not raw.strip():
        return {}
    try:
        document = json.loads(raw) if len(raw) <= _MAXIMUM else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidSetting(f"{path} is not a JSON object", hint="correct it, or move it away and log in again")
    return document


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _parse_login(entry: object) -> Login:
    if not isinstance(entry, dict):
        return Login()
    username, password = _text(entry, "username"), _text(entry, "password")
    encoded = _text(entry, "auth")
    if encoded:
        try:
            decoded = base64.b64decode(encoded, validate=False).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            decoded = ""
        name, colon, word = decoded.partition(":")
        if colon:
            username, password = name, word.rstrip("\0")
    identity, token = _text(entry, "identitytoken"), _text(entry, "registrytoken")
    return Login(
        username,
        Secret(password) if password else None,
        Secret(identity) if identity else None,
        Secret(token) if token else None,
    )


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""
