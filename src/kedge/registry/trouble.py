# SPDX-License-Identifier: BSD-3-Clause
"""What to say when no answer came: names that do not resolve, refused and broken connections, TLS, proxies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kedge.errors import NetworkFailed
from kedge.model.size import format_size
from kedge.registry.secret import redact_url


class TroubleKind(StrEnum):
    """Why there is no answer; the value is what the message says."""

    NAME = "its name is not known here"
    NAME_LATER = "its name could not be looked up just now"
    REFUSED = "nothing listens there"
    UNREACHABLE = "there is no way to it from this machine"
    TIMEOUT = "it does not answer"
    BROKEN = "the connection broke"
    CERTIFICATE = "its certificate is signed by an authority that is not trusted here"
    CERTIFICATE_TIME = "its certificate is not valid at this machine's time"
    CERTIFICATE_NAME = "its certificate is for another name"
    CERTIFICATE_CLIENT = "it wants a client certificate"
    NOT_TLS = "it does not speak HTTPS"
    TLS = "the secure connection could not be set up"
    PROXY = "the proxy does not connect us"
    PROXY_LOGIN = "the proxy wants a login"
    NONSENSE = "it does not speak HTTP"


TRANSIENT = frozenset(
    {TroubleKind.NAME_LATER, TroubleKind.REFUSED, TroubleKind.UNREACHABLE, TroubleKind.TIMEOUT, TroubleKind.BROKEN}
)
BRIEF = frozenset(
    {TroubleKind.REFUSED, TroubleKind.UNREACHABLE}
)  # tried once more only: mostly a wrong port or no network
_NO_NETWORK = (
    "compute nodes often have no way out: pull on a login node, or set HTTPS_PROXY to the site's proxy; "
    "also check the spelling of the host"
)
_PRIVATE_CA = (
    "if this registry has a private authority, name its PEM file in KEDGE_CA_BUNDLE or SSL_CERT_FILE, "
    "or put it at /etc/docker/certs.d/{host}/ca.crt"
)
_HINTS = {
    TroubleKind.NAME: _NO_NETWORK,
    TroubleKind.NAME_LATER: _NO_NETWORK,
    TroubleKind.REFUSED: "check the host and the port; a registry of your own must be started first",
    TroubleKind.UNREACHABLE: _NO_NETWORK,
    TroubleKind.TIMEOUT: _NO_NETWORK,
    TroubleKind.BROKEN: "try again; what was downloaded is kept and resumed",
    TroubleKind.CERTIFICATE: _PRIVATE_CA,
    TroubleKind.CERTIFICATE_TIME: "check this machine's clock ('date'); if it is right, the certificate expired",
    TroubleKind.CERTIFICATE_NAME: "use the name the certificate was made for",
    TroubleKind.CERTIFICATE_CLIENT: "put client.cert and client.key into /etc/docker/certs.d/{host}/",
    TroubleKind.NOT_TLS: "if it is a plain HTTP registry that you trust, give --no-https",
    TroubleKind.TLS: "a proxy may be meddling, or the server is too old (TLS 1.2 is needed)",
    TroubleKind.PROXY: "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY names hosts to reach without it",
    TroubleKind.PROXY_LOGIN: "write the login into the proxy variable: http://USER:PASSWORD@proxy.example.org:3128",
    TroubleKind.NONSENSE: "check the host and the port",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failed exchange, named."""

    kind: TroubleKind
    detail: str = ""


def _show(url: str) -> tuple[str, str]:
    """The address without secrets, and its host."""
    shown = redact_url(url)
    return shown, shown.split("://", 1)[-1].split("/", 1)[0]


def explain_trouble(trouble: Trouble, method: str, url: str, proxy: str | None = None) -> NetworkFailed:
    """The error for a request that got no answer; `is_transient` says whether trying again may help."""
    shown, host = _show(url)
    context = {"request": f"{method} {shown}"}
    if trouble.detail:
        context["detail"] = trouble.detail
    if proxy:
        context["proxy"] = proxy
    return NetworkFailed(
        f"no answer from {host}: {trouble.kind}",
        context=context,
        hint=_HINTS[trouble.kind].format(host=host),
        is_transient=trouble.kind in TRANSIENT,
    )


def explain_break(url: str, received: int, expected: int | None, detail: str = "") -> NetworkFailed:
    """The error for an answer that stopped before its end."""
    shown, host = _show(url)
    promised = f" of {expected}" if expected is not None else ""
    context = {"request": f"GET {shown}"}
    if detail:
        context["detail"] = detail
    return NetworkFailed(
        f"the connection to {host} broke after {received}{promised} bytes",
        context=context,
        hint=_HINTS[TroubleKind.BROKEN],
        is_transient=True,
    )


def explain_silence(url: str, seconds: float) -> NetworkFailed:
    """The error for an answer that stopped, while the connection still stands."""
    shown, host = _show(url)
    return NetworkFailed(
        f"no data from {host} for {seconds:g} s",
        context={"request": f"GET {shown}"},
        hint="try again later; --stall-timeout SECONDS waits longer",
        is_transient=True,
    )


def explain_pace(url: str, speed: float, least: int) -> NetworkFailed:
    """The error for an answer that comes more slowly than the user accepts."""
    shown, host = _show(url)
    return NetworkFailed(
        f"{host} sends {format_size(int(speed))}/s, less than the minimum of {format_size(least)}/s",
        context={"request": f"GET {shown}"},
        hint="try again later, from another network, or with a lower --minimum-speed",
        is_transient=True,
        is_slow=True,
    )


def explain_slowness(url: str, seconds: float) -> NetworkFailed:
    """The error for an answer that trickles: each piece comes in time, the whole does not."""
    shown, host = _show(url)
    return NetworkFailed(
        f"{host} sends its answer too slowly: it was not complete after {seconds:.0f} s",
        context={"request": f"GET {shown}"},
        hint="try again later, or from another network",
        is_transient=True,
    )
