# SPDX-License-Identifier: BSD-3-Clause
"""HTTP over urllib3: the only module that opens sockets.

One `HttpTransport` keeps connections alive for all hosts. It retries what may pass (429, 5xx, broken connections),
follows redirects itself so that Authorization never leaves the host it is for, and never goes from https back to http.
"""

from __future__ import annotations

import email.utils
import http.client
import math
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import urllib3
import urllib3.exceptions as faults

from kedge.base.frozen import NOTHING, frozen, replace
from kedge.errors import NetworkFailed, RegistryProtocolError
from kedge.image.registry.connection_errors import (
    BRIEF,
    TRANSIENT,
    ConnectionFailure,
    FailureKind,
    explain_break,
    explain_failure,
    explain_low_speed,
    explain_silence,
    explain_slowness,
)
from kedge.image.registry.proxies import Proxies, Proxy
from kedge.image.registry.secret import Secret, redact_url
from kedge.image.registry.tls import (
    CERTIFICATE_FOLDERS,
    HostCertificates,
    find_certificates,
    find_hashed_folder,
    load_all_authorities,
    make_context,
)

READ_SIZE = 256 << 10
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAXIMUM_REDIRECTS = 8
_CONNECTIONS = 16
Body = bytes | Callable[[], Iterable[bytes]]


@frozen
class TransportOptions:
    """How requests are made; the defaults suit a login node."""

    user_agent: str = "kedge"
    connect_timeout: float = 15.0
    read_timeout: float = 60.0
    minimum_speed: int = 0  # bytes per second of a body; 0: any
    retries: int = 5
    patience: float = math.inf  # seconds after which a request is not tried again
    backoff: float = 0.5  # seconds before the first retry, doubled each time
    longest_wait: float = 60.0  # a server that asks for more is not waited for
    ca_bundle: Path | None = None
    certificate_folders: tuple[Path, ...] = CERTIFICATE_FOLDERS
    proxies: Proxies = Proxies()
    sleep: Callable[[float], None] = time.sleep
    notify: Callable[[str], None] = lambda _message: None
    count: Callable[[int, int], None] = lambda _answers, _received: None  # answers, and bytes of their bodies


@frozen
class HttpRequest:
    """One request; `authorization` goes to the host of `url` and nowhere else."""

    method: str
    url: str
    headers: Mapping[str, str] = NOTHING
    authorization: Secret | None = None
    body: Body | None = None
    verify: bool = True  # False: any certificate will do, for registries the user declared insecure
    retries: int | None = None  # None: as the transport's options say
    follow: bool = True  # False: a redirect is an answer like any other
    read_timeout: float | None = None  # None: as the transport's options say


class Response:
    """An answer whose body has not been read yet; close it, or use it as a context manager."""

    def __init__(
        self,
        raw: urllib3.BaseHTTPResponse,
        url: str,
        count: Callable[[int, int], None] = lambda _a, _b: None,
        pace: SpeedLimits | None = None,
    ) -> None:
        self._raw, self._count, self._pace = raw, count, pace or SpeedLimits()
        self.url = url
        self.status = raw.status

    def header(self, name: str) -> str | None:
        """Return one header; several of one name are joined by commas."""
        return self._raw.headers.get(name)

    def header_list(self, name: str) -> list[str]:
        """Every header of this name, apart."""
        return list(self._raw.headers.getlist(name))

    @property
    def length(self) -> int | None:
        """Content-Length, when there is a sensible one."""
        text = self.header("Content-Length") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    def chunks(self, size: int = READ_SIZE, *, seconds: float | None = None) -> Iterator[bytes]:
        """The body in pieces; raises NetworkFailed (transient) when it ends before its announced length.

        With `seconds` the pieces are as they come, and a body that takes longer, however it trickles, is an error.
        """
        received, end = 0, time.monotonic() + (seconds or 0.0)
        meter = SpeedMeter(self._pace)
        while True:
            began = time.monotonic()
            piece = self._read_piece(size, received, at_once=seconds is not None or not meter.is_fast)
            if not piece:
                return
            speed = meter.add(time.monotonic() - began, len(piece))
            received += len(piece)
            self._count(0, len(piece))
            yield piece
            if speed is not None:
                self._raw.close()
                raise explain_low_speed(self.url, speed, self._pace.least)
            if seconds is not None and time.monotonic() > end:
                self._raw.close()
                raise explain_slowness(self.url, seconds)

    def _read_piece(self, size: int, received: int, *, at_once: bool) -> bytes:
        """Read so many bytes, which is quicker; `at_once` those that are here, so a break loses none. Empty: end."""
        try:
            read = self._raw.read1 if at_once else self._raw.read
            return read(size, decode_content=False)
        except (faults.HTTPError, OSError, http.client.HTTPException) as problem:
            self._raw.close()
            if classify(problem).kind is FailureKind.TIMEOUT:
                raise explain_silence(self.url, self._pace.stall) from None
            raise explain_break(self.url, received, self.length, _describe(problem)) from None

    def read_start(self, limit: int) -> bytes:
        """At most `limit` bytes of the body, whatever follows; a broken body gives what came."""
        collected = bytearray()
        try:
            for piece in self.chunks(min(limit, READ_SIZE)):
                collected += piece
                if len(collected) >= limit:
                    break
        except NetworkFailed:
            pass
        return bytes(collected[:limit])

    def read_all(self, limit: int, what: str, *, seconds: float | None = None) -> bytes:
        """The whole body; RegistryProtocolError when it is longer than `limit`, NetworkFailed when it takes longer."""
        if self.length is None or self.length <= limit:
            collected = bytearray()
            for piece in self.chunks(seconds=seconds):
                collected += piece
                if len(collected) > limit:
                    break
            else:
                return bytes(collected)
        raise RegistryProtocolError(
            f"{what} is longer than the limit of {limit} bytes",
            context={"address": redact_url(self.url), "Content-Length": str(self.length)},
        )

    def close(self) -> None:
        """Give the connection back when the body is read, or drop it."""
        if self._raw.closed:
            self._raw.release_conn()
            return
        remaining = getattr(self._raw, "length_remaining", None)
        if self.length is not None and remaining is not None and remaining <= 16 << 10:
            self.read_start(16 << 10)  # short rest: reading it is cheaper than a new connection
        else:
            self._raw.close()
        self._raw.release_conn()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()


class HttpTransport:
    """Sends requests; safe to share between threads."""

    def __init__(self, options: TransportOptions | None = None) -> None:
        self.options = options or TransportOptions()
        self._managers: dict[tuple[str, str, bool], urllib3.PoolManager] = {}
        self._contexts: dict[tuple[HostCertificates, bool], ssl.SSLContext] = {}
        self._knows_all = False  # whether all authorities of the system are read, not only those that were needed
        self._lock = threading.Lock()

    def send(self, request: HttpRequest) -> Response:
        """The answer behind all redirects, after retries; any status. Raises NetworkFailed when there is none."""
        visited = [request.url]
        while True:
            response = self._send_patiently(request)
            location = _redirect_location(request, response)
            if location is None:
                return response
            response.close()
            target = urljoin(request.url, location)
            split_url(target)
            if len(visited) > _MAXIMUM_REDIRECTS:
                shown = ", ".join(redact_url(url) for url in visited[:3])
                raise RegistryProtocolError(f"more than {_MAXIMUM_REDIRECTS} redirects: {shown}, …")
            visited.append(target)
            request = _redirect(request, target, response.status)

    def send_once(self, request: HttpRequest) -> Response:
        """Make one exchange without redirects and retries; any status."""
        return self._exchange(request, knows_all=False)

    def _exchange(self, request: HttpRequest, *, knows_all: bool) -> Response:
        """The exchange, and once more with all authorities of the system where those at hand do not suffice."""
        parts = split_url(request.url)
        headers = {"User-Agent": self.options.user_agent, "Accept-Encoding": "identity", **request.headers}
        if request.authorization is not None:
            headers["Authorization"] = request.authorization.reveal()
        manager = self._manager(parts, verify=request.verify)
        body = request.body() if callable(request.body) else request.body
        pace = SpeedLimits(request.read_timeout or self.options.read_timeout, self.options.minimum_speed)
        timeout = urllib3.Timeout(connect=self.options.connect_timeout, read=pace.stall)
        try:
            raw = manager.urlopen(
                request.method, request.url, body=body, headers=headers, redirect=False, preload_content=False,
                decode_content=False, retries=False, assert_same_host=False, timeout=timeout,
            )  # fmt: skip
        except (faults.HTTPError, OSError, http.client.HTTPException, ValueError) as problem:
            if isinstance(problem, ValueError) and not isinstance(problem, faults.HTTPError | OSError):
                raise RegistryProtocolError(f"'{redact_url(request.url)}' is not a valid address") from None
            if not knows_all and self._trust_all(problem):
                return self._exchange(request, knows_all=True)
            proxy = self._proxy(parts)
            shown = f"{redact_url(proxy.url)} (from {proxy.variable})" if proxy else None
            raise _UnansweredError(
                classify(problem, proxied=proxy is not None), request.method, request.url, shown
            ) from None
        self.options.count(1, 0)
        return Response(raw, request.url, self.options.count, pace)

    def try_once(self, request: HttpRequest) -> Response | ConnectionFailure:
        """Make one exchange as `send_once`, or return why it failed: for callers that report an error."""
        try:
            return self.send_once(request)
        except _UnansweredError as problem:
            return problem.failure

    def look_up(self, url: str) -> ConnectionFailure | None:
        """Why the host name of an address cannot be resolved; None if it can, or if a proxy does that."""
        parts = split_url(url)
        if self._proxy(parts) is not None:
            return None
        try:
            socket.getaddrinfo(parts.hostname, parts.port or _default_port(parts.scheme), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as problem:
            return classify(problem)
        return None

    def is_listening(self, url: str) -> bool:
        """Whether a server accepts connections there: cheaper than a TLS handshake, which reads certificates."""
        parts = split_url(url)
        if self._proxy(parts) is not None:
            return True
        try:
            place = (parts.hostname or "", parts.port or _default_port(parts.scheme))
            socket.create_connection(place, self.options.connect_timeout).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            managers, self._managers = list(self._managers.values()), {}
        for manager in managers:
            manager.clear()

    def _send_patiently(self, request: HttpRequest) -> Response:
        attempts = 1 + (self.options.retries if request.retries is None else request.retries)
        began = time.monotonic()
        for attempt in range(attempts):
            is_last = attempt == attempts - 1
            try:
                response = self.send_once(request)
            except _UnansweredError as problem:
                is_hopeless = self._is_late(began) or (problem.failure.kind in BRIEF and attempt >= 1)
                if is_last or is_hopeless or problem.failure.kind not in TRANSIENT:
                    raise problem.explain() from None
                self._pause(attempt, None, f"{request.method} {redact_url(request.url)}: {problem.failure.kind}")
                continue
            asked = parse_retry_after(response.header("Retry-After"), time.time())
            too_long = self._is_late(began) or (asked is not None and asked > self.options.longest_wait)
            if response.status not in _RETRIED or is_last or too_long:
                return response
            response.close()
            self._pause(attempt, asked, f"{redact_url(request.url)} answers with status {response.status}")
        raise AssertionError("the last attempt returns or raises")

    def _is_late(self, began: float) -> bool:
        return time.monotonic() - began > self.options.patience

    def _pause(self, attempt: int, asked: float | None, why: str) -> None:
        # Half fixed, half random: a thousand ranks that fail together must not come back together.
        backoff = min(self.options.backoff * 2**attempt, self.options.longest_wait)
        wait = backoff * (0.5 + random.random() / 2) + (asked or 0.0)
        self.options.notify(f"{why}; trying again in {wait:.1f} s")
        self.options.sleep(wait)

    def _proxy(self, parts: SplitResult) -> Proxy | None:
        return self.options.proxies.choose(
            parts.scheme, parts.hostname or "", parts.port or _default_port(parts.scheme)
        )

    def _manager(self, parts: SplitResult, *, verify: bool) -> urllib3.PoolManager:
        key = (parts.scheme, parts.netloc, verify)
        with self._lock:
            if key not in self._managers:
                self._managers[key] = self._open_manager(parts, verify=verify)
            return self._managers[key]

    def _open_manager(self, parts: SplitResult, *, verify: bool) -> urllib3.PoolManager:
        settings: dict[str, Any] = {"maxsize": _CONNECTIONS}
        if parts.scheme == "https":
            settings["ssl_context"] = self._open_context(parts.netloc, verify=verify)
        proxy = self._proxy(parts)
        if proxy is None:
            return urllib3.PoolManager(**settings)
        headers = {"Proxy-Authorization": proxy.authorization.reveal()} if proxy.authorization else None
        if proxy.url.startswith("https:"):
            settings["proxy_ssl_context"] = self._open_context(split_url(proxy.url).netloc, verify=True)
        return urllib3.ProxyManager(proxy.url, proxy_headers=headers, **settings)

    def _open_context(self, host: str, *, verify: bool) -> ssl.SSLContext:
        files = find_certificates(host, self.options.certificate_folders, self.options.ca_bundle)
        key = (files, verify)
        if not verify:
            urllib3.disable_warnings(faults.InsecureRequestWarning)  # the user said so, once is enough
        if key not in self._contexts:  # reading all authorities takes tens of milliseconds: once for all hosts
            self._contexts[key] = make_context(files, verify=verify)
            if self._knows_all:
                load_all_authorities(self._contexts[key])
        return self._contexts[key]

    def _trust_all(self, problem: BaseException) -> bool:
        """Read all authorities after a certificate of none in the system's directory; whether that can change it."""
        if not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(problem)):
            return False
        if find_hashed_folder() is None:
            return False
        with self._lock:
            for context in () if self._knows_all else self._contexts.values():
                load_all_authorities(context)
            self._knows_all = True
        return True


class _UnansweredError(Exception):
    """A request that got no answer: raised by one exchange, explained or retried by the caller."""

    def __init__(self, failure: ConnectionFailure, method: str, url: str, proxy: str | None) -> None:
        super().__init__(str(failure.kind))
        self.failure, self.method, self.url, self.proxy = failure, method, url, proxy

    def explain(self) -> NetworkFailed:
        return explain_failure(self.failure, self.method, self.url, self.proxy)


def split_url(url: str) -> SplitResult:
    """An http or https address in parts; RegistryProtocolError for anything else."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() or ord(character) < 32 for character in url):
        raise RegistryProtocolError(f"'{redact_url(url)}' is not an http or https address")
    return parts


def _default_port(scheme: str) -> int:
    """The port that an address without one means."""
    return 443 if scheme == "https" else 80


def is_same_origin(first: str, second: str) -> bool:
    """Whether two addresses have the same scheme, host and port."""
    left, right = split_url(first), split_url(second)
    return (left.scheme, (left.hostname or "").lower(), left.port or _default_port(left.scheme)) == (
        right.scheme, (right.hostname or "").lower(), right.port or _default_port(right.scheme)
    )  # fmt: skip


def _redirect_location(request: HttpRequest, response: Response) -> str | None:
    if not request.follow or response.status not in _REDIRECTS:
        return None
    if request.method not in ("GET", "HEAD") and response.status not in (307, 308):
        return None
    return response.header("Location") or None


def _redirect(request: HttpRequest, target: str, status: int) -> HttpRequest:
    if request.url.startswith("https:") and not target.startswith("https:"):
        raise RegistryProtocolError(
            f"{redact_url(request.url)} redirects from https to plain http, and kedge refuses that",
            context={"target": redact_url(target), "status": str(status)},
            hint="tell the registry's operator: a proxy in front of it may be misconfigured",
        )
    keep = is_same_origin(request.url, target)
    return replace(
        request,
        url=target,
        authorization=request.authorization if keep else None,
        verify=request.verify or not keep,  # "insecure" was said of the registry, not of where it sends us
    )


def classify(problem: BaseException, *, proxied: bool = False) -> ConnectionFailure:
    """Name what went wrong, from whatever urllib3, ssl or the kernel raised."""
    chain = list(_causes(problem))
    detail = _describe(chain[-1])
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            certificate_kind = _CERTIFICATE_KINDS.get(cause.verify_code, FailureKind.CERTIFICATE)
            return ConnectionFailure(certificate_kind, cause.verify_message or detail)
    if any(isinstance(cause, faults.ProxyError) for cause in chain) or (proxied and "Tunnel" in detail):
        return ConnectionFailure(FailureKind.PROXY_LOGIN if "407" in detail else FailureKind.PROXY, detail)
    for cause in chain:
        if isinstance(cause, ssl.SSLError):
            return ConnectionFailure(_classify_tls(cause), detail)
    for kind, classes in _KINDS:
        for cause in chain:
            if isinstance(cause, classes):
                is_later = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN
                return ConnectionFailure(FailureKind.NAME_LATER if is_later else kind, detail)
    return ConnectionFailure(FailureKind.UNREACHABLE, detail)


_CERTIFICATE_KINDS = {
    9: FailureKind.CERTIFICATE_TIME,  # X509_V_ERR_CERT_NOT_YET_VALID
    10: FailureKind.CERTIFICATE_TIME,  # X509_V_ERR_CERT_HAS_EXPIRED
    62: FailureKind.CERTIFICATE_NAME,  # X509_V_ERR_HOSTNAME_MISMATCH
    64: FailureKind.CERTIFICATE_NAME,  # X509_V_ERR_IP_ADDRESS_MISMATCH
}
_KINDS: tuple[tuple[FailureKind, tuple[type[BaseException], ...]], ...] = (
    (FailureKind.NAME, (socket.gaierror, faults.NameResolutionError)),
    (FailureKind.REFUSED, (ConnectionRefusedError,)),
    (FailureKind.TIMEOUT, (TimeoutError, faults.TimeoutError)),
    (FailureKind.BROKEN, (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead)),
    (FailureKind.NONSENSE, (http.client.HTTPException, faults.LocationValueError)),
    (FailureKind.BROKEN, (faults.ProtocolError,)),
)


def _classify_tls(problem: ssl.SSLError) -> FailureKind:
    reason = (problem.reason or str(problem)).upper().replace(" ", "_")
    plain = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH")
    if any(word in reason for word in plain):
        return FailureKind.NOT_TLS
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason or "BAD_CERTIFICATE" in reason:
        return FailureKind.CERTIFICATE_CLIENT
    return FailureKind.BROKEN if "EOF" in reason else FailureKind.TLS


def _causes(problem: BaseException) -> Iterator[BaseException]:
    waiting, seen = [problem], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        inner = [*cause.args, cause.__cause__, cause.__context__, getattr(cause, "original_error", None)]
        waiting.extend(item for item in inner if isinstance(item, BaseException))


def _describe(problem: BaseException) -> str:
    return str(getattr(problem, "strerror", None) or str(problem) or type(problem).__name__)[:300]


# Limits on slow transfers: seconds without data, bytes per second; and when a server asks to try again.

_FAST = 4 << 20  # bytes per second
_PROVEN = 1 << 20  # bytes that a connection has to bring before it counts as fast


@frozen
class SpeedLimits:
    """The limits that the user accepts."""

    stall: float = 60.0  # seconds without data after which the connection is given up
    least: int = 0  # bytes per second, on average over `stall` seconds; 0: any speed will do


class SpeedMeter:
    """Adds up bytes and the time spent waiting for them: time in which nobody reads does not count."""

    def __init__(self, pace: SpeedLimits) -> None:
        self._pace = pace
        self._seconds = 0.0
        self._received = 0
        self._total = 0
        self.is_fast = False  # whether the last pieces came so quickly that waiting for many at once is no wait

    def add(self, seconds: float, received: int) -> float | None:
        """Count a piece; returns the speed if it was too low, else None."""
        self._total += received
        is_any = not self._pace.least  # else each piece is wanted at once, to be measured
        self.is_fast = is_any and self._total >= _PROVEN and received >= seconds * _FAST
        self._seconds += seconds
        self._received += received
        if not self._pace.least or self._seconds < self._pace.stall:
            return None
        speed = self._received / self._seconds
        self._seconds, self._received = 0.0, 0
        return speed if speed < self._pace.least else None


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, from a number or an HTTP date; None when absent or unreadable."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
