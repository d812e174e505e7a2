# SPDX-License-Identifier: BSD-3-Clause
"""Answers to a registry's challenges: basic to the registry itself, or a bearer token fetched from its realm.

A password goes to the registry's own host or to a realm known to belong to it, and nowhere else. Tokens are kept per
scope until shortly before they expire; one thread fetches, the others wait for it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit

from kedge.base.frozen import NOTHING, frozen, replace
from kedge.base.patterns import late_pattern
from kedge.errors import AccessDenied, AuthenticationFailed, ImageNotFound, RegistryProtocolError
from kedge.image.registry.credentials import NGC_REGISTRY, Credential, is_ngc_address
from kedge.image.registry.proxies import is_loopback
from kedge.image.registry.response_errors import (
    BODY_LIMIT,
    Situation,
    explain_refused,
    explain_response,
    read_error_body,
)
from kedge.image.registry.secret import Secret, encode_basic, redact_url, scrub
from kedge.image.registry.transport import HttpRequest, HttpTransport, Response, split_url

_MAXIMUM_ANSWER = 1 << 20
_DEFAULT_LIFETIME = 60.0  # seconds, as the token specification says when none is given
_MARGIN = 10.0
# Registries whose token service is documented to be on another host.
_REALMS: Mapping[str, frozenset[str]] = {
    "registry-1.docker.io": frozenset({"auth.docker.io"}),
    "docker.io": frozenset({"auth.docker.io"}),
    "registry.gitlab.com": frozenset({"gitlab.com"}),
}
# Token services of public registries, as their challenges name them: a token is asked for before the first request, as
# every request without one would be answered with 401.
_SERVICES: Mapping[str, Mapping[str, str]] = {
    "nvcr.io": {"realm": "https://nvcr.io/proxy_auth"},
    "registry-1.docker.io": {"realm": "https://auth.docker.io/token", "service": "registry.docker.io"},
}


@frozen
class _Token:
    value: Secret
    expires: float  # on the monotonic clock


class Authenticator:
    """Authorization headers for one registry host."""

    def __init__(
        self,
        transport: HttpTransport,
        base: str,
        credential: Credential | None,
        situation: Situation,
        *,
        trusted_realms: frozenset[str] = frozenset(),
    ) -> None:
        self._transport = transport
        self._base = base
        # a key of NGC is for NVIDIA, and whoever answers plain http may be anybody
        is_unproven = urlsplit(base).hostname == NGC_REGISTRY and not is_ngc_address(base)
        self._credential = None if is_unproven else credential
        self._situation = situation
        self._trusted = trusted_realms
        self._challenge: Challenge | None = None
        self._expected = _expect_challenge(base)
        self._tokens: dict[str, _Token] = {}
        self._lock = threading.Lock()
        self.withheld = ""  # the realm that the credential was not sent to

    def header(self, scope: str) -> Secret | None:
        """The header for `scope`; a registry that challenged before need not do it again."""
        with self._lock:
            if self._credential and self._credential.login.registry_token:
                return Secret(f"Bearer {self._credential.login.registry_token.reveal()}")
            if self._challenge is None:
                return self._ask_first(scope)
            if self._challenge.scheme == "basic":
                return self._basic()
            return self._bearer(self._challenge, scope)

    def _ask_first(self, scope: str) -> Secret | None:
        """A token for reading, before the registry asks for one; None if it may not be needed.

        A service that is not where it used to be is no error: the registry's own challenge tells.
        """
        if self._expected is None or not scope.endswith(":pull") or " " in scope:
            return None
        try:
            return self._bearer(self._expected, scope)
        except (RegistryProtocolError, ImageNotFound):
            self._expected = None
            return None

    def answer(self, challenges: Sequence[Challenge], scope: str, refused: Secret | None) -> bool:
        """Take a 401's challenges; whether there is something new to try, other than what was `refused`."""
        with self._lock:
            offers = {challenge.scheme: challenge for challenge in reversed(challenges)}
            bearer, basic = offers.get("bearer"), offers.get("basic")
            if bearer is not None and bearer.realm:
                self._challenge = bearer
                kept = self._tokens.get(scope)
                if kept is not None and refused is not None and refused == _as_bearer(kept.value):
                    del self._tokens[scope]
                fresh = _as_bearer(self._tokens[scope].value) if scope in self._tokens else None
                return fresh is None or fresh != refused
            if basic is not None:
                self._challenge = basic
                mine = self._basic()
                return mine is not None and mine != refused
            return False

    def _basic(self) -> Secret | None:
        login = self._credential.login if self._credential else None
        if login is None or not login.username or login.password is None:
            return None
        return encode_basic(login.username, login.password)

    def _bearer(self, challenge: Challenge, scope: str) -> Secret:
        kept = self._tokens.get(scope)
        if kept is None or kept.expires <= time.monotonic():
            kept = self._fetch_token(challenge, scope)
            self._tokens[scope] = kept
        return _as_bearer(kept.value)

    def _fetch_token(self, challenge: Challenge, scope: str) -> _Token:
        realm = _check_realm(challenge.realm, self._base)
        request = self._token_request(realm, challenge, scope)
        response = self._transport.send(request)
        if response.status != 200:
            raise self._explain_failure(response, sent=request.authorization is not None or request.method == "POST")
        with response:
            return _parse_token(response.read_all(_MAXIMUM_ANSWER, "the answer of the token service"), response.url)

    def _token_request(self, realm: str, challenge: Challenge, scope: str) -> HttpRequest:
        login = self._credential.login if self._credential else None
        if login is not None and not self._may_send_to(realm):
            self.withheld = urlsplit(realm).netloc
            login = None
        wanted = [("service", challenge.service)] if challenge.service else []
        scopes = list(dict.fromkeys(part for part in (*scope.split(" "), challenge.scope) if part))
        if login is not None and login.identity_token:
            form = [
                ("grant_type", "refresh_token"), *wanted, ("client_id", "kedge"), ("scope", " ".join(scopes)),
                ("refresh_token", login.identity_token.reveal()),
            ]  # fmt: skip
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
            return HttpRequest("POST", realm, headers, body=urlencode(form).encode(), follow=False)
        authorization = None
        if login is not None and login.username and login.password is not None:
            authorization = encode_basic(login.username, login.password)
            wanted.append(("account", login.username))
        wanted.extend(("scope", name) for name in scopes)
        return HttpRequest("GET", append_query(realm, wanted), {"Accept": "application/json"}, authorization)

    def _may_send_to(self, realm: str) -> bool:
        registry, service = urlsplit(self._base), urlsplit(realm)
        if service.scheme != "https" and registry.scheme == "https":
            return False
        own, other = (registry.hostname or "").lower(), (service.hostname or "").lower()
        if own == NGC_REGISTRY:
            return is_ngc_address(realm)
        return own == other or other in _REALMS.get(own, ()) or other in self._trusted

    def _explain_failure(self, response: Response, *, sent: bool) -> Exception:
        situation = self._situation
        if not sent:
            situation = replace(situation, credential=None)
        if response.status not in (400, 401, 403):
            return explain_response(response, situation)
        if self.withheld:
            response.close()
            return self.explain_withheld()
        if not sent or response.status == 403:
            return explain_response(response, situation)
        with response:
            said = read_error_body(response.read_start(BODY_LIMIT), response.header("Content-Type") or "")
        context = {"request": redact_url(response.url), "status": str(response.status)}
        if said.text:
            context["registry says"] = scrub(said.text, situation.secrets)
        return explain_refused(situation, context)

    def explain_withheld(self) -> AuthenticationFailed:
        """The error for a password that kedge did not send because the realm is on a foreign host."""
        host = urlsplit(self._base).netloc
        hint = f"if {self.withheld} belongs to this registry, set KEDGE_TRUSTED_REALMS={self.withheld}"
        if urlsplit(self._base).hostname == NGC_REGISTRY:
            hint = "kedge sends NGC API keys to nvcr.io and authn.nvidia.com only; ask NVIDIA or your site's proxy"
        return AuthenticationFailed(
            f"{host} wants the login sent to another host, {self.withheld}, and kedge refuses that",
            context={"registry": host, "token service": self.withheld},
            hint=hint,
        )


def append_query(url: str, pairs: Sequence[tuple[str, str]]) -> str:
    """`url` with more query parameters behind those it has; a pair that is there already is not repeated."""
    present = set(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    added = urlencode([pair for pair in pairs if pair not in present], safe=":/,")
    if not added:
        return url
    bare, _, _fragment = url.partition("#")
    return bare + ("&" if "?" in bare and not bare.endswith(("?", "&")) else "" if "?" in bare else "?") + added


def _expect_challenge(base: str) -> Challenge | None:
    parts = urlsplit(base)
    service = _SERVICES.get(parts.netloc.lower()) if parts.scheme == "https" else None
    return Challenge("bearer", service) if service else None


def _as_bearer(token: Secret) -> Secret:
    return Secret(f"Bearer {token.reveal()}")


def _check_realm(realm: str, base: str) -> str:
    parts = split_url(realm)
    if parts.scheme == "http" and base.startswith("https:") and not is_loopback(parts.hostname or ""):
        raise AccessDenied(
            f"the registry {base} wants tokens fetched over plain http from {parts.netloc}, and kedge refuses that",
            hint="ask the registry's operator for a token service with https",
        )
    return realm


def _parse_token(raw: bytes, address: str) -> _Token:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RegistryProtocolError(f"{redact_url(address)} sent an answer that is not a token")
    value = document.get("token") or document.get("access_token")
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise RegistryProtocolError(f"{redact_url(address)} sent no usable token")
    lifetime = document.get("expires_in")
    seconds = float(lifetime) if isinstance(lifetime, int | float) and 0 < lifetime < 1e9 else _DEFAULT_LIFETIME
    return _Token(Secret(value), time.monotonic() + max(seconds - _MARGIN, seconds / 2))


# WWW-Authenticate headers, read as RFC 9110 section 11 writes them.
#
# nvcr.io sends a realm that is one quoted string holding a query, `=` and a comma, so splitting at commas does not do.

_MAXIMUM = 16 << 10  # bytes of one header that are looked at
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SEPARATORS = late_pattern(r"[\s,]*")
_PARAMETER = late_pattern(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)(?:"|\Z)|([^\s,"]*))', re.DOTALL)
_SCHEME = late_pattern(rf"({_TOKEN})(?=[\s,]|\Z)")
_TOKEN68 = late_pattern(r"[ \t]+([A-Za-z0-9\-._~+/]+=*)[ \t]*(?=,|\Z)")
_ESCAPED = late_pattern(r"\\(.)", re.DOTALL)


@frozen
class Challenge:
    """One way the server offers to authenticate; scheme and parameter names are lower case."""

    scheme: str
    parameters: Mapping[str, str] = NOTHING

    @property
    def realm(self) -> str:
        """Where a token is fetched (bearer), or the name of the protected area (basic)."""
        return self.parameters.get("realm", "")

    @property
    def service(self) -> str:
        """The name the token service knows this registry by."""
        return self.parameters.get("service", "")

    @property
    def scope(self) -> str:
        """What the registry says is needed."""
        return self.parameters.get("scope", "")


def parse_challenges(headers: Sequence[str]) -> list[Challenge]:
    """Parse all challenges of all WWW-Authenticate headers, in order; what cannot be read is passed over."""
    return [challenge for header in headers for challenge in _parse_header(header[:_MAXIMUM])]


def _parse_header(header: str) -> list[Challenge]:
    challenges: list[Challenge] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(header):
        position = _skip(header, position)
        parameter = _PARAMETER.match(header, position)
        if parameter and challenges:
            name, quoted, bare = parameter.groups()
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted is not None else bare)
            position = parameter.end()
            continue
        scheme = _SCHEME.match(header, position)
        if scheme is None:
            position += 1  # a stray character: go on behind it
            continue
        parameters = {}
        challenges.append(Challenge(scheme[1].lower(), parameters))
        position = scheme.end()
        token68 = _TOKEN68.match(header, position)
        if token68:  # as `Negotiate YII=` has: of no use to us
            position = token68.end()
    return challenges


def _skip(header: str, position: int) -> int:
    match = _SEPARATORS.match(header, position)
    return match.end() if match else position
