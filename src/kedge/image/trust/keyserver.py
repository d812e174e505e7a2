# SPDX-License-Identifier: BSD-3-Clause
"""The key server protocol HKP as pure text: addresses to ask, bodies to send, answers to read."""

from __future__ import annotations

import io
import re
import urllib.parse
from dataclasses import dataclass

from kedge.errors import UsageError
from kedge.image.trust.openpgp.algorithms import name_algorithm

DEFAULT_SERVER = "https://keys.openpgp.org"
MAXIMUM_FOUND = 100

_HEX = re.compile(r"(0x)?([0-9A-Fa-f]{8}|[0-9A-Fa-f]{16}|[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})")


@dataclass(frozen=True, slots=True)
class FoundKey:
    """One line of a key server's index."""

    fingerprint: str  # or key id, whatever the server gives
    algorithm: str
    bits: int
    created: int | None
    expires: int | None
    flags: str  # r revoked, d disabled, e expired
    user_ids: tuple[str, ...]


def normalize_server(address: str) -> str:
    """The http(s) form of a key server's address, without a trailing slash."""
    scheme, separator, location = address.partition("://")
    scheme = {"hkp": "http", "hkps": "https"}.get(scheme, scheme) if separator else "https"
    place = urllib.parse.urlsplit(f"{scheme}://{location if separator else address}")
    try:
        port = place.port
    except ValueError:
        port = -1
    if scheme not in ("http", "https") or not place.hostname or port == -1 or place.query or place.fragment:
        raise UsageError(f"{address!r} is not the address of a key server", hint=f"such as {DEFAULT_SERVER}")
    if address.startswith("hkp://") and port is None:
        place = place._replace(netloc=f"{place.netloc}:11371")
    return urllib.parse.urlunsplit(place).rstrip("/")


def split_servers(text: str) -> list[str]:
    """The addresses of a comma-separated list; the default server if it is empty."""
    return [address.strip() for address in text.split(",") if address.strip()] or [DEFAULT_SERVER]


def build_lookup(server: str, operation: str, search: str) -> str:
    """The address of an `index` (list of keys) or `get` (one key) request."""
    text = search.strip()
    if not text:
        raise UsageError("the search text is empty", hint="give a name, an e-mail address or a fingerprint")
    key_id = _HEX.fullmatch(text.replace(" ", ""))
    if key_id:
        text = "0x" + key_id[2].upper()
    query = {"op": operation, "options": "mr", "search": text}
    if operation == "index":
        query["fingerprint"] = "on"
    return f"{normalize_server(server)}/pks/lookup?{urllib.parse.urlencode(query)}"


def build_upload(server: str, armored: bytes) -> tuple[str, bytes]:
    """The address and the form body that add a key."""
    return f"{normalize_server(server)}/pks/add", urllib.parse.urlencode({"keytext": armored}).encode()


def parse_index(data: bytes) -> list[FoundKey]:
    """The keys of a machine-readable index; unknown lines are skipped."""
    keys: list[tuple[list[str], list[str]]] = []
    for line in io.BytesIO(data):
        fields = line.decode("utf-8", "replace").strip().split(":")[:16]
        if fields[0] == "pub" and len(fields) >= 2:
            if len(keys) >= MAXIMUM_FOUND:
                break
            keys.append((fields + [""] * 7, []))
        elif fields[0] == "uid" and len(fields) >= 2 and keys:
            keys[-1][1].append(_clean(urllib.parse.unquote_plus(fields[1])))
    return [_make_found(fields, tuple(names[:20])) for fields, names in keys]


def _make_found(fields: list[str], names: tuple[str, ...]) -> FoundKey:
    algorithm = _number(fields[2])
    return FoundKey(
        fingerprint=_clean(fields[1]).upper()[:64],
        algorithm=name_algorithm(algorithm) if algorithm is not None else "",
        bits=_number(fields[3]) or 0,
        created=_number(fields[4]),
        expires=_number(fields[5]),
        flags="".join(sorted(set(fields[6]) & set("rde"))),
        user_ids=names,
    )


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)[:512]
