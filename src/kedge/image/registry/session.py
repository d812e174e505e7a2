# SPDX-License-Identifier: BSD-3-Clause
"""One repository at one host: chooses http or https, answers challenges, and turns refusals into errors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from urllib.parse import quote, urljoin

from kedge.base.frozen import NOTHING, frozen, replace
from kedge.errors import KedgeError, NetworkFailed, RegistryProtocolError
from kedge.image.registry.auth import Authenticator, Challenge, parse_challenges
from kedge.image.registry.client_setup import Access
from kedge.image.registry.credentials import CredentialSearch
from kedge.image.registry.mirrors import Endpoint
from kedge.image.registry.proxies import is_loopback
from kedge.image.registry.response_errors import Situation, explain_response
from kedge.image.registry.secret import Secret, redact_url
from kedge.image.registry.transport import Body, HttpRequest, Response, is_same_origin, split_url


@frozen
class Call:
    """One call of the distribution API; `target` is a path below /v2/ or a whole address the registry gave."""

    method: str
    target: str
    accepted: frozenset[int] = frozenset({200})
    headers: Mapping[str, str] = NOTHING
    body: Body | None = None
    reference: str = ""  # tag or digest, for messages
    writes: bool = False
    also: str = ""  # a further scope, as mounting needs
    retries: int | None = None
    read_timeout: float | None = None


class Session:
    """Talks to one endpoint about one repository; safe to share between threads."""

    def __init__(self, registry: str, endpoint: Endpoint, access: Access) -> None:
        self.endpoint = endpoint
        self._access = access
        self._transport = access.transport
        self._found: CredentialSearch | None = None
        name = endpoint.registry if endpoint.is_mirror else registry
        self._situation = Situation(name, endpoint.repository)
        self._lock = threading.Lock()
        self._base: str | None = None
        self._verify = True
        self._authenticator: Authenticator | None = None

    @property
    def repository(self) -> str:
        """The repository's name at this endpoint."""
        return self.endpoint.repository

    def call(self, call: Call) -> Response:
        """Make a call; an answer whose status is not accepted becomes the error that explains it."""
        base = self._settle_base()
        authenticator = self._settle_authenticator(base)
        url = self.resolve(call.target)
        is_own = is_same_origin(url, base)
        scope = self._scope(call)
        authorization = authenticator.header(scope) if is_own else None
        for _ in range(3):
            request = HttpRequest(
                call.method, url, call.headers, authorization, call.body, verify=self._verify or not is_own,
                retries=call.retries, read_timeout=call.read_timeout,
            )  # fmt: skip
            response = self._transport.send(request)
            if response.status in call.accepted:
                return response
            if not is_own or not is_same_origin(response.url, base):
                break
            renewed = self._renew(authenticator, response, scope, authorization)
            if renewed is None or renewed == authorization:
                break
            response.close()
            authorization = renewed
        raise self._explain(response, call, authorization)

    def resolve(self, target: str) -> str:
        """The address of a path below /v2/, or of a Location the registry gave, made whole."""
        base = self._settle_base()
        if target.startswith(("http://", "https://")):
            return self._check_target(target, base)
        if target.startswith("/"):
            return urljoin(base, target)
        return f"{base}/v2/{quote(target, safe='/:?&=%@+,~')}"

    def is_own_host(self, url: str) -> bool:
        """Whether an address is on this registry."""
        return is_same_origin(self.resolve(url), self._settle_base())

    def situation(self, call: Call) -> Situation:
        """The situation that errors about a call describe."""
        credentials = self._credentials()
        return replace(
            self._situation,
            reference=call.reference,
            action="write" if call.writes else "read",
            credential=credentials.credential.source if credentials.credential else None,
            notes=credentials.notes,
            secrets=credentials.credential.secrets if credentials.credential else (),
        )

    def _scope(self, call: Call) -> str:
        if not self.repository:
            return ""  # the API's root: who we are, not what we want
        own = f"repository:{self.repository}:{'pull,push' if call.writes else 'pull'}"
        return f"{own} {call.also}" if call.also else own

    def _check_target(self, target: str, base: str) -> str:
        if base.startswith("https:") and target.startswith("http:"):
            upgraded = "https:" + target.removeprefix("http:")
            if split_url(upgraded).netloc == split_url(base).netloc:
                return upgraded  # a registry behind a TLS proxy that does not know it
            raise RegistryProtocolError(
                f"{self._situation.registry} redirects from https to plain http, and kedge refuses that",
                context={"target": redact_url(target)},
            )
        return target

    def _credentials(self) -> CredentialSearch:
        if self._found is None:
            self._found = self._access.sources.find(
                self.endpoint.registry, self.endpoint.repository, is_mirror=self.endpoint.is_mirror
            )
        return self._found

    def _settle_authenticator(self, base: str) -> Authenticator:
        with self._lock:
            if self._authenticator is None:
                credentials = self._credentials()
                situation = self.situation(Call("GET", ""))
                self._authenticator = Authenticator(
                    self._transport, base, credentials.credential, situation, trusted_realms=self._access.trusted_realms
                )
            return self._authenticator

    def _settle_base(self) -> str:
        """http or https: https, unless the user said otherwise; both are tried for loopback and insecure hosts only."""
        with self._lock:
            if self._base is None:
                self._base = self._probe_base()
            return self._base

    def _probe_base(self) -> str:
        host = self.endpoint.host
        split_url(f"https://{host}/")
        if self._access.plain_http and not self.endpoint.is_mirror:
            return f"http://{host}"
        may_be_plain = self.endpoint.insecure or is_loopback(split_url(f"https://{host}/").hostname or "")
        if not may_be_plain:
            return f"https://{host}"
        self._verify = not self.endpoint.insecure
        if not self._transport.is_listening(f"https://{host}/"):
            return f"http://{host}"  # what is said then is the same, and sooner
        try:
            self._transport.send(
                HttpRequest("GET", f"https://{host}/v2/", verify=self._verify, retries=0, follow=False)
            ).close()
        except NetworkFailed as problem:
            if not _may_be_plain(problem):
                raise
            return f"http://{host}"
        return f"https://{host}"

    def _explain(self, response: Response, call: Call, sent: Secret | None) -> KedgeError:
        authenticator = self._authenticator
        if authenticator is not None and authenticator.withheld and response.status in (401, 403):
            response.close()
            return authenticator.explain_withheld()
        situation = self.situation(call)
        if sent is not None:
            is_token = sent.reveal().startswith("Bearer ")
            situation = replace(situation, has_token=is_token, secrets=(sent, *situation.secrets))
        return explain_response(response, situation)

    def _renew(
        self, authenticator: Authenticator, response: Response, scope: str, refused: Secret | None
    ) -> Secret | None:
        """Another header to send after a refusal, or None."""
        try:
            if response.status == 401:
                challenges = parse_challenges(response.header_list("WWW-Authenticate"))
            elif response.status in (403, 404) and refused is None and self._credentials().credential:
                challenges = self._ask_challenges()
            else:
                return None
            return authenticator.header(scope) if authenticator.answer(challenges, scope, refused) else None
        except BaseException:
            response.close()
            raise

    def _ask_challenges(self) -> list[Challenge]:
        """What the API's root asks for: some registries hide images from strangers and do not ask who they are."""
        with self._transport.send(
            HttpRequest("GET", f"{self._settle_base()}/v2/", verify=self._verify, follow=False)
        ) as response:
            return parse_challenges(response.header_list("WWW-Authenticate")) if response.status == 401 else []


def _may_be_plain(problem: NetworkFailed) -> bool:
    """Whether a failed https probe leaves room for http: anything but a certificate that was judged and refused."""
    return "certificate" not in problem.message
