# SPDX-License-Identifier: BSD-3-Clause
"""Which proxy a host is reached through: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in either case."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from kedge.base.frozen import NOTHING, frozen
from kedge.errors import InvalidSetting
from kedge.image.registry.secret import Secret, encode_basic, redact_url


@frozen
class Proxy:
    """A proxy's address without its login, and the login apart."""

    url: str
    authorization: Secret | None
    variable: str


@frozen
class Proxies:
    """The proxy variables of an environment."""

    by_scheme: Mapping[str, Proxy] = NOTHING
    exceptions: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Proxies:
        """Read the variables; the lower-case spelling wins, as in curl."""
        proxies: dict[str, Proxy] = {}
        for scheme in ("http", "https"):
            for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"):
                if environ.get(name):
                    proxies[scheme] = parse_proxy(environ[name], name)
                    break
        exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        return cls(proxies, tuple(item.strip().lower() for item in exceptions.split(",") if item.strip()))

    def choose(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for a host, or None to go straight there; loopback is never proxied."""
        if is_loopback(host) or any(_is_excepted(item, host.lower(), port) for item in self.exceptions):
            return None
        return self.by_scheme.get(scheme)


def parse_proxy(value: str, variable: str) -> Proxy:
    """Read a proxy address, its login taken out; the error never repeats a login."""
    text = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        port, host = None, None
    if not host:
        raise InvalidSetting(
            f"the variable {variable} is not a proxy address", hint="such as http://proxy.example.org:3128"
        )
    if parts.scheme not in ("http", "https"):
        raise InvalidSetting(
            f"the proxy in {variable} ({redact_url(text)}) has the scheme '{parts.scheme}', not http or https",
            hint=f"set {variable} to an HTTP proxy, or add the registry to NO_PROXY",
        )
    shown = f"[{host}]" if ":" in host else host
    login = encode_basic(unquote(parts.username), Secret(unquote(parts.password or ""))) if parts.username else None
    return Proxy(f"{parts.scheme}://{shown}:{port or (443 if parts.scheme == 'https' else 80)}", login, variable)


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this host."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_excepted(item: str, host: str, port: int) -> bool:
    if item == "*":
        return True
    name, colon, wanted = item.rpartition(":")
    if colon and wanted.isdigit() and name.count(":") == 0:
        if int(wanted) != port:
            return False
        item = name
    if "/" in item:
        return _is_in_network(host, item)
    item = item.strip("[]").removeprefix("*").removeprefix(".")
    return host.strip("[]") == item or host.endswith(f".{item}")


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
