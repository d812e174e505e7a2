# SPDX-License-Identifier: BSD-3-Clause
"""Checks in bounded time whether registries can be reached and accept our login.

Names are looked up by the C library, which cannot be told to hurry: threads that are late are left alone, so this is
for processes that end soon.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from kedge.base.frozen import replace
from kedge.errors import AccessDenied, AuthenticationFailed, KedgeError
from kedge.image.registry.client import RegistryClient
from kedge.image.registry.client_setup import Access
from kedge.image.registry.connection_errors import ConnectionFailure, FailureKind
from kedge.image.registry.mirrors import Endpoint
from kedge.image.registry.secret import redact_url, scrub
from kedge.image.registry.transport import HttpRequest, HttpTransport, split_url
from kedge.system.threads import answer_within


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One registry, asked once; `failure` is why it gave no answer."""

    host: str
    seconds: float
    failure: ConnectionFailure | None = None
    is_page: bool = False  # it answered with a web page: a login page or a proxy stands in between
    proxy: str = ""  # its address without login, and the variable that names it


@dataclass(frozen=True, slots=True)
class LoginAnswer:
    """A registry's answer to our login; `is_valid` is None if unknown, and `said` tells why."""

    is_valid: bool | None
    said: str = ""


def _make_hasty(access: Access, seconds: float) -> Access:
    """Return an access that waits no longer than `seconds` for a connection or an answer, and tries once."""
    options = replace(access.transport.options, connect_timeout=seconds, read_timeout=seconds, retries=0)
    return replace(access, transport=HttpTransport(options))


def probe_registries(endpoints: Iterable[Endpoint], access: Access, seconds: float) -> list[ProbeResult]:
    """Ask each registry for its API's root, all at once; no login is sent. Takes `seconds` at most."""
    hasty = _make_hasty(access, seconds)
    probes = {endpoint.host: _Probe(endpoint, hasty) for endpoint in endpoints}
    answers = answer_within(seconds, {host: probe.run for host, probe in probes.items()})
    return [answers.get(host) or probe.describe_late(seconds) for host, probe in probes.items()]


def is_listening_within(urls: Iterable[str], seconds: float) -> dict[str, bool]:
    """Whether a server accepts connections at each address, without a proxy."""
    transport = HttpTransport(replace(HttpTransport().options, connect_timeout=seconds, retries=0))
    known = list(urls)
    answers = answer_within(seconds, {url: partial(transport.is_listening, url) for url in known})
    return {url: answers.get(url, False) for url in known}


def try_login(registry: str, access: Access, seconds: float) -> LoginAnswer:
    """Let a registry check the login that kedge would use; the answer holds no secret."""
    hasty = _make_hasty(access, seconds)

    def ask() -> LoginAnswer:
        credential = hasty.sources.find(registry, "").credential
        if credential is None:
            return LoginAnswer(None, "no login")
        try:
            was_asked = RegistryClient(registry, hasty).check_login()
        except KedgeError as problem:
            is_refused = isinstance(problem, AuthenticationFailed | AccessDenied)
            return LoginAnswer(False if is_refused else None, scrub(problem.message, credential.secrets))
        return LoginAnswer(True if was_asked else None, "" if was_asked else "it accepts any login")

    answers = answer_within(seconds, {registry: ask})
    return answers.get(registry) or LoginAnswer(None, "no answer in time")


class _Probe:
    """One registry; remembers how far it came, for when it is late."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        self._endpoint = endpoint
        self._transport = access.transport
        scheme = "http" if access.plain_http and not endpoint.is_mirror else "https"
        self._url = f"{scheme}://{endpoint.host}/v2/"
        self._has_address = False

    def run(self) -> ProbeResult:
        began = time.monotonic()
        failure = self._transport.look_up(self._url)
        self._has_address = True
        is_page = False
        if failure is None:
            failure, is_page = self._exchange()
        return self._describe(time.monotonic() - began, failure, is_page=is_page)

    def _exchange(self) -> tuple[ConnectionFailure | None, bool]:
        request = HttpRequest("GET", self._url, verify=not self._endpoint.insecure, follow=False)
        answer = self._transport.try_once(request)
        if isinstance(answer, ConnectionFailure):
            is_plain = self._endpoint.insecure and answer.kind is FailureKind.NOT_TLS
            return (None if is_plain else answer), False
        with answer:
            return None, (answer.header("Content-Type") or "").lower().startswith("text/html")

    def describe_late(self, seconds: float) -> ProbeResult:
        if self._has_address or self._find_proxy():
            return self._describe(seconds, ConnectionFailure(FailureKind.TIMEOUT))
        return self._describe(seconds, ConnectionFailure(FailureKind.NAME_LATER, "the name server does not answer"))

    def _describe(self, seconds: float, failure: ConnectionFailure | None, *, is_page: bool = False) -> ProbeResult:
        return ProbeResult(self._endpoint.host, seconds, failure, is_page, self._find_proxy())

    def _find_proxy(self) -> str:
        parts = split_url(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        proxy = self._transport.options.proxies.choose(parts.scheme, parts.hostname or "", port)
        return f"{redact_url(proxy.url)} ({proxy.variable})" if proxy else ""
