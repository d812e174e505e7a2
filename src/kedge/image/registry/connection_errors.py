# SPDX-License-Identifier: BSD-3-Clause
"""Errors for requests that got no answer: unknown names, refused and broken connections, TLS, proxies."""

from __future__ import annotations

from enum import StrEnum

from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.errors import NetworkFailed
from kedge.image.registry.secret import redact_url


class FailureKind(StrEnum):
    """Why no answer came; the value completes the message."""

    NAME = "host name not found (DNS)"
    NAME_LATER = "the name server (DNS) does not answer"
    REFUSED = "connection refused"
    UNREACHABLE = "no route to it from this host"
    TIMEOUT = "timeout"
    BROKEN = "the connection broke"
    CERTIFICATE = "its certificate is signed by an authority that this host does not trust"
    CERTIFICATE_TIME = "its certificate is not valid at this host's time"
    CERTIFICATE_NAME = "its certificate is for another host name"
    CERTIFICATE_CLIENT = "it requires a client certificate"
    NOT_TLS = "it does not speak HTTPS"
    TLS = "the TLS connection failed"
    PROXY = "the proxy refuses the connection"
    PROXY_LOGIN = "the proxy requires a login"
    NONSENSE = "it does not speak HTTP"


TRANSIENT = frozenset(
    {FailureKind.NAME_LATER, FailureKind.REFUSED, FailureKind.UNREACHABLE, FailureKind.TIMEOUT, FailureKind.BROKEN}
)
# Tried once more only: mostly a wrong port or no network.
BRIEF = frozenset({FailureKind.REFUSED, FailureKind.UNREACHABLE})
_NO_NETWORK = (
    "check the spelling of the host; compute nodes often have no internet access: pull on a login node, "
    "or set HTTPS_PROXY to the site's proxy"
)
_PRIVATE_CA = (
    "if the registry uses a private authority, set KEDGE_CA_BUNDLE or SSL_CERT_FILE to its PEM file, "
    "or put the file at /etc/docker/certs.d/{host}/ca.crt"
)
_HINTS = {
    FailureKind.NAME: _NO_NETWORK,
    FailureKind.NAME_LATER: _NO_NETWORK,
    FailureKind.REFUSED: "check the host and the port; if the registry is your own, start it first",
    FailureKind.UNREACHABLE: _NO_NETWORK,
    FailureKind.TIMEOUT: _NO_NETWORK,
    FailureKind.BROKEN: "try again: the download resumes where it stopped",
    FailureKind.CERTIFICATE: _PRIVATE_CA,
    FailureKind.CERTIFICATE_TIME: "check this host's clock ('date'); if it is right, the certificate has expired",
    FailureKind.CERTIFICATE_NAME: "use the host name that the certificate was made for",
    FailureKind.CERTIFICATE_CLIENT: "put client.cert and client.key into /etc/docker/certs.d/{host}/",
    FailureKind.NOT_TLS: "if it is a plain HTTP registry that you trust, add --no-https",
    FailureKind.TLS: "a proxy may interfere, or the server is too old (TLS 1.2 is required)",
    FailureKind.PROXY: "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY lists hosts to reach without a proxy",
    FailureKind.PROXY_LOGIN: "put the login into the proxy variable: http://USER:PASSWORD@proxy.example.org:3128",
    FailureKind.NONSENSE: "check the host and the port",
}


@frozen
class ConnectionFailure:
    """Why one exchange failed."""

    kind: FailureKind
    detail: str = ""


def _find_host(url: str) -> str:
    return redact_url(url).split("://", 1)[-1].split("/", 1)[0]


def _make_error(
    message: str,
    url: str,
    hint: str,
    *,
    method: str = "GET",
    is_transient: bool = True,
    is_slow: bool = False,
    **more: str,
) -> NetworkFailed:
    """The error for a request to `url`, whose secrets are left out; `more` is context, where it is not empty."""
    context = {"request": f"{method} {redact_url(url)}", **{key: text for key, text in more.items() if text}}
    return NetworkFailed(message, context=context, hint=hint, is_transient=is_transient, is_slow=is_slow)


def explain_failure(failure: ConnectionFailure, method: str, url: str, proxy: str | None = None) -> NetworkFailed:
    """The error for a request that got no answer; `is_transient` says whether trying again may help."""
    host = _find_host(url)
    return _make_error(
        f"cannot reach {host}: {failure.kind}",
        url,
        _HINTS[failure.kind].format(host=host),
        method=method,
        is_transient=failure.kind in TRANSIENT,
        detail=failure.detail,
        proxy=proxy or "",
    )


def explain_break(url: str, received: int, expected: int | None, detail: str = "") -> NetworkFailed:
    """The error for an answer that stopped before its end."""
    promised = f" of {expected}" if expected is not None else ""
    message = f"the connection to {_find_host(url)} broke after {received}{promised} bytes"
    return _make_error(message, url, _HINTS[FailureKind.BROKEN], detail=detail)


def explain_silence(url: str, seconds: float) -> NetworkFailed:
    """The error for an answer that stopped while the connection still stands."""
    hint = "try again later; --stall-timeout SECONDS waits longer"
    return _make_error(f"no data from {_find_host(url)} for {seconds:g} s", url, hint)


def explain_low_speed(url: str, speed: float, least: int) -> NetworkFailed:
    """The error for an answer that is slower than the user accepts."""
    minimum = f"less than the minimum of {format_size(least)}/s"
    return _make_error(
        f"{_find_host(url)} sends {format_size(int(speed))}/s, {minimum}",
        url,
        "try again later, from another network, or with a lower --minimum-speed",
        is_slow=True,
    )


def explain_slowness(url: str, seconds: float) -> NetworkFailed:
    """The error for an answer that trickles: each piece comes in time, the whole does not."""
    message = f"{_find_host(url)} sends its answer too slowly: incomplete after {seconds:.0f} s"
    return _make_error(message, url, "try again later, or from another network")
