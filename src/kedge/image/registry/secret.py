# SPDX-License-Identifier: BSD-3-Clause
"""Passwords and tokens wrapped so that no repr, error or log shows them, and addresses made fit to be shown."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

HIDDEN = "***"


class Secret:
    """A text that must not be shown; `reveal()` is called only where it is sent or stored."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN


def encode_basic(username: str, password: Secret) -> Secret:
    """The value of a Basic Authorization header."""
    return Secret("Basic " + base64.b64encode(f"{username}:{password.reveal()}".encode()).decode())


def redact_url(url: str) -> str:
    """The address without user, password and query: pre-signed storage addresses carry their secret in the query."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(an address that cannot be read)"
    if not parts.scheme or not host:
        return url.partition("?")[0].rsplit("@", 1)[-1]
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{port}{parts.path}" + ("?…" if parts.query else "")


def scrub(text: str, secrets: Iterable[Secret]) -> str:
    """`text` with every secret in it hidden, also where a server echoes one in base64 or percent-encoded."""
    for secret in secrets:
        value = secret.reveal()
        if len(value) < 4:  # hiding "a" would only make the text unreadable
            continue
        bare = value.split(" ", 1)[-1]
        for form in (value, bare, quote(bare, safe=""), base64.b64encode(bare.encode()).decode()):
            text = text.replace(form, HIDDEN)
    return text
