# SPDX-License-Identifier: BSD-3-Clause
"""A client of the OCI distribution API (and Docker's, version 2): manifests, blobs, tags, uploads.

Specification: https://github.com/opencontainers/distribution-spec. Reading tries the mirrors first and falls through
to the registry itself; writing goes to the registry only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar
from urllib.parse import quote, urljoin

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.image_name import is_tag
from kedge.base.manifest import ACCEPTED_MANIFESTS, MAXIMUM_MANIFEST, Descriptor, Index, Manifest, parse_manifest
from kedge.base.patterns import late_pattern
from kedge.errors import (
    AccessDenied,
    AuthenticationFailed,
    CorruptImage,
    DigestMismatch,
    ImageNotFound,
    InvalidReference,
    KedgeError,
    NetworkFailed,
    RegistryProtocolError,
)
from kedge.image.registry.auth import append_query
from kedge.image.registry.blob_stream import BlobStream, open_stream
from kedge.image.registry.client_setup import Access
from kedge.image.registry.mirrors import Endpoint
from kedge.image.registry.proxies import is_loopback
from kedge.image.registry.response_errors import explain_web_page, is_web_page
from kedge.image.registry.secret import redact_url
from kedge.image.registry.session import Call, Session
from kedge.image.registry.transport import READ_SIZE, HttpRequest, Response, split_url

_ACCEPT = {"Accept": ", ".join(ACCEPTED_MANIFESTS)}
_SMALL_SECONDS = 120.0  # a manifest or config has to come in this time, however it trickles
_OK = frozenset({200})
_T = TypeVar("_T")


class RegistryClient:
    """A client of one registry; threads may share it."""

    def __init__(self, registry: str, access: Access) -> None:
        self.registry = registry
        self._access = access
        self._sessions: dict[Endpoint, Session] = {}
        self._silent: dict[Endpoint, str] = {}  # mirrors that gave no answer, and why: they are not waited for again
        self._lock = threading.Lock()

    def get_manifest(self, repository: str, tag_or_digest: str) -> Manifest | Index:
        """The manifest or index, with one request; its digest is checked against what was asked and what was said."""
        return self._read(repository, tag_or_digest, lambda session: _get_manifest(session, tag_or_digest))

    def head_manifest(self, repository: str, tag_or_digest: str) -> Digest | None:
        """The digest a tag stands for now, without counting as a pull; None when there is no such tag."""
        try:
            return self._read(repository, tag_or_digest, lambda session: _head_manifest(session, tag_or_digest))
        except ImageNotFound:
            return None

    def read_blob(self, repository: str, descriptor: Descriptor, limit: int) -> bytes:
        """A small blob, whole and verified; raises CorruptImage when its promised size is over `limit`."""
        if descriptor.size > limit:
            raise CorruptImage(
                f"{descriptor.digest} is too large: {descriptor.size} bytes",
                context={"limit": str(limit), "mediaType": descriptor.media_type},
            )
        return self._read(repository, str(descriptor.digest), lambda session: _read_blob(session, descriptor))

    def open_blob(self, repository: str, descriptor: Descriptor, offset: int = 0) -> BlobStream:
        """The bytes of a blob from `offset`; the caller verifies and closes. `.offset` is where they really start."""
        return self._read(repository, str(descriptor.digest), lambda session: self._open(session, descriptor, offset))

    def list_tags(self, repository: str, limits: TagLimits | None = None) -> Iterator[str]:
        """Yield all tags, each once, page by page, in the registry's order; a list without an end is an error."""
        walk = TagWalk(limits or TagLimits())
        yield from self._read(repository, "", walk.begin)
        yield from walk.finish()

    def has_blob(self, repository: str, digest: Digest) -> bool:
        """Whether the registry itself (no mirror) has a blob in this repository; for those who may push to it."""
        return is_there(self._own_session(repository), digest)

    def upload_blob(
        self,
        repository: str,
        descriptor: Descriptor,
        open_content: Callable[[], BinaryIO],
        mount_from: str | None = None,
        *,
        advance: Callable[[int], None] | None = None,
    ) -> bool:
        """Send a blob; False if the registry has it already or takes it from `mount_from`.

        `open_content` opens a seekable file with the blob's bytes; it may be called again when a transfer breaks.
        """
        upload = Upload(descriptor, open_content, mount_from, advance or (lambda _amount: None))
        return put_blob(self._own_session(repository), upload)

    def put_manifest(self, repository: str, reference: str, raw: bytes, media_type: str) -> Digest:
        """Store a manifest under a tag or digest; idempotent. Returns its digest, compared with the registry's."""
        session = self._own_session(repository)
        call = Call(
            method="PUT",
            target=f"{session.repository}/manifests/{reference}",
            accepted=frozenset({200, 201, 202}),
            headers={"Content-Type": media_type},
            body=raw,
            reference=reference,
            writes=True,
        )
        digest = Digest.of(raw)
        with session.call(call) as response:
            said = response.header("Docker-Content-Digest")
        if said and said.startswith("sha256:") and said != str(digest):
            raise DigestMismatch(
                f"{self.registry} stored {said}, but {digest} was sent", context={"reference": reference}
            )
        return digest

    def check_login(self) -> bool:
        """Whether the registry asks for credentials at all; raises AuthenticationFailed when it refuses ours."""
        session = self._own_session("")
        with session.call(Call("GET", "", frozenset({200, 401}))) as response:
            if response.status == 200:
                return False
        session.call(Call("GET", "")).close()
        return True

    def _open(self, session: Session, descriptor: Descriptor, offset: int) -> BlobStream:
        try:
            return _open_blob(session, descriptor, offset)
        except ImageNotFound as problem:
            return self._open_elsewhere(descriptor, offset, problem)

    def _open_elsewhere(self, descriptor: Descriptor, offset: int, problem: KedgeError) -> BlobStream:
        """A foreign layer from the first of its addresses that has it; no credentials go there."""
        for url in filter(self._may_ask, descriptor.urls):
            try:
                return self._open_foreign(url, descriptor, offset)
            except KedgeError as other:
                problem = other
        raise problem

    def _may_ask(self, url: str) -> bool:
        """Whether an address of a manifest is one to ask: https, and http as far as the registry may be asked so."""
        try:
            parts = split_url(url)
        except RegistryProtocolError:
            return False
        here = is_loopback(parts.hostname or "") and is_loopback(self.registry.partition(":")[0])
        return parts.scheme == "https" or self._access.plain_http or here

    def _open_foreign(self, url: str, descriptor: Descriptor, offset: int) -> BlobStream:
        def request(start: int) -> Response:
            headers = {"Range": f"bytes={start}-"} if start else {}
            response = self._access.transport.send(HttpRequest("GET", url, headers))
            if response.status not in (200, 206, 416):
                response.close()
                raise ImageNotFound(
                    f"layer {descriptor.digest} is kept outside the registry; the answer there is {response.status}",
                    context={"address": redact_url(url)},
                )
            return response

        return open_stream(request, offset, descriptor.size)

    def _read(self, repository: str, reference: str, operation: Callable[[Session], _T]) -> _T:
        """Try the endpoints in order; the error of the last one, the registry itself, is what the user sees."""
        endpoints = self._access.registries.list_endpoints(self.registry, repository, by_digest=":" in reference)
        tried: list[str] = []
        for endpoint in endpoints:
            is_last = endpoint == endpoints[-1]
            if endpoint in self._silent and not is_last:
                tried.append(self._silent[endpoint])
                continue
            try:
                return operation(self._session(endpoint))
            except KedgeError as problem:
                if is_last:
                    problem.context.update({f"mirror {n}": text for n, text in enumerate(tried, 1)})
                    raise
                tried.append(f"{endpoint.registry}: {problem.message}")
                if isinstance(problem, NetworkFailed):
                    self._silent[endpoint] = tried[-1]
        raise AssertionError("there is always an endpoint")

    def _own_session(self, repository: str) -> Session:
        endpoints = self._access.registries.list_endpoints(self.registry, repository)
        return self._session(endpoints[-1])

    def _session(self, endpoint: Endpoint) -> Session:
        with self._lock:
            if endpoint not in self._sessions:
                self._sessions[endpoint] = Session(self.registry, endpoint, self._access)
            return self._sessions[endpoint]


def _get_manifest(session: Session, reference: str) -> Manifest | Index:
    call = Call("GET", f"{session.repository}/manifests/{reference}", _OK, _ACCEPT, reference=reference)
    with session.call(call) as response:
        content_type = response.header("Content-Type") or ""
        raw = response.read_all(
            MAXIMUM_MANIFEST, f"the manifest of {session.situation(call).image}", seconds=_SMALL_SECONDS
        )
        if is_web_page(raw, content_type):
            raise explain_web_page(session.situation(call), response.url, content_type)
        said = response.header("Docker-Content-Digest") or ""
    where = session.situation(call).image
    _check_digest(raw, reference, f"the manifest of {where} is not the requested one")
    _check_digest(raw, said, f"the manifest of {where} does not match the digest that the registry sends")
    return parse_manifest(raw, content_type, where)


def _check_digest(raw: bytes, promised: str, complaint: str) -> None:
    try:
        digest = Digest.parse(promised)
    except InvalidReference:  # a tag, or a header in a form we do not know
        return
    actual = hashlib.new(digest.algorithm, raw).hexdigest()
    if actual != digest.hex:
        raise DigestMismatch(
            complaint,
            context={"promised": promised, "received": f"{digest.algorithm}:{actual}", "bytes": str(len(raw))},
            hint="try again later: the registry is damaged, or something on the network changes data",
        )


def _head_manifest(session: Session, reference: str) -> Digest:
    call = Call(
        "HEAD", f"{session.repository}/manifests/{reference}", frozenset({200, 405}), _ACCEPT, reference=reference
    )
    with session.call(call) as response:
        said = response.header("Docker-Content-Digest") if response.status == 200 else None
    try:
        return Digest.parse(said or "")
    except InvalidReference:  # no HEAD or no header: the manifest itself tells
        return Digest.of(_get_manifest(session, reference).raw)


def _open_blob(session: Session, descriptor: Descriptor, offset: int) -> BlobStream:
    def request(start: int) -> Response:
        headers = {"Range": f"bytes={start}-"} if start else {}
        accepted = frozenset({200, 206, 416}) if start else _OK
        target = f"{session.repository}/blobs/{descriptor.digest}"
        return session.call(Call("GET", target, accepted, headers, reference=str(descriptor.digest)))

    return open_stream(request, offset, descriptor.size)


def _read_blob(session: Session, descriptor: Descriptor) -> bytes:
    with _open_blob(session, descriptor, 0) as stream:
        stream.seconds = _SMALL_SECONDS
        raw = b"".join(stream)
    _check_digest(raw, str(descriptor.digest), f"the blob {descriptor.digest} of {session.repository} is damaged")
    return raw


# The list of a repository's tags, which the registry pages: read with limits on pages, tags, bytes and time.

_LINK = late_pattern(r'<([^<>]*)>((?:[^<>"]|"[^"]*")*)')  # an address may hold commas, which part links, too
_NEXT = late_pattern(r';\s*rel\s*=\s*"?next"?\s*(?:[;,]|\Z)', re.IGNORECASE)


@frozen
class TagLimits:
    """How much of a list of tags is read; no honest repository has more."""

    pages: int = 2000
    tags: int = 200_000
    size: int = 32 << 20  # bytes of all pages
    seconds: float = 120.0
    fruitless: int = 5  # pages in a row without a tag that is new


class TagWalk:
    """One reading of a list of tags, which a registry pages: it must end, and stay on that registry."""

    def __init__(self, limits: TagLimits) -> None:
        self._limits = limits
        self._end = time.monotonic() + limits.seconds
        self._size = 0
        self._fruitless = 0
        self._seen = set[str]()
        self._visited = set[str]()
        self._following: str | None = None
        self._session: Session

    def begin(self, session: Session) -> list[str]:
        """The first page."""
        self._session = session
        return self._read_page(f"{session.repository}/tags/list?n=1000")

    def finish(self) -> Iterator[str]:
        """The pages behind the first one."""
        while self._following is not None:
            if self._following in self._visited or not self._session.is_own_host(self._following):
                raise self._refuse("goes in a circle or leaves the registry")
            self._visited.add(self._following)
            yield from self._read_page(self._following)

    def _read_page(self, target: str) -> list[str]:
        left = self._end - time.monotonic()
        if left <= 0:
            raise self._refuse(f"has no end after {self._limits.seconds:.0f} s")
        document = self._get(target, left)
        tags = document.get("tags") or []  # null where there is none
        if not isinstance(tags, list):
            raise RegistryProtocolError(f"the list of tags of {self._session.repository} is not a JSON list")
        # what is no tag cannot be pulled, and may steer terminals
        usable = dict.fromkeys(tag for tag in tags if isinstance(tag, str) and is_tag(tag))
        fresh = [tag for tag in usable if tag not in self._seen]
        self._seen.update(fresh)
        self._fruitless = 0 if fresh else self._fruitless + 1
        self._check()
        return fresh

    def _get(self, target: str, seconds: float) -> dict[str, object]:
        session = self._session
        what = f"the list of tags of {session.repository}"
        call = Call("GET", target, _OK, {"Accept": "application/json"})
        with session.call(call) as response:
            content_type = response.header("Content-Type") or ""
            raw = response.read_all(self._limits.size - self._size, what, seconds=seconds)
            if is_web_page(raw, content_type):
                raise explain_web_page(session.situation(call), response.url, content_type)
            link = next_link(response.header_list("Link"))
            self._following = urljoin(response.url, link) if link else None
        self._size += len(raw)
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise RegistryProtocolError(f"{what} is not a JSON object")
        return document

    def _check(self) -> None:
        limits = self._limits
        if self._following is None:
            return
        if len(self._visited) >= limits.pages or len(self._seen) > limits.tags or self._size >= limits.size:
            raise self._refuse(f"has no end: {len(self._seen)} tags on {len(self._visited) + 1} pages, and more follow")
        if self._fruitless >= limits.fruitless:
            raise self._refuse(f"has no end: {self._fruitless} pages without a new tag, and more follow")

    def _refuse(self, why: str) -> RegistryProtocolError:
        return RegistryProtocolError(
            f"the list of tags of {self._session.repository} {why}",
            context={"next page": redact_url(self._following or "")},
            hint="tell the registry's operator; pulling an image by its tag still works",
        )


def next_link(headers: list[str]) -> str | None:
    """The target of the Link header with rel="next", or None."""
    for header in headers:
        for address, parameters in _LINK.findall(header):
            if _NEXT.search(parameters):
                return str(address)
    return None


# Uploads: nothing when the registry has the blob, a mount from another repository, one PUT, or PATCHes that resume.
#
# A broken transfer asks the registry how far it got (`Range`) and goes on from there; a body that some proxy in between
# finds too large (413) is cut into smaller ones.

_MONOLITHIC = 1 << 20  # blobs up to this size go in one PUT
_SMALLEST_PIECE = 1 << 20
_ATTEMPTS = 5  # without any progress in between
_COMMIT_TIMEOUT = 900.0  # seconds: object stores copy a large blob once more before they answer
_RANGE = late_pattern(r"(?:bytes=)?0-(\d{1,19})\Z")


@frozen
class Upload:
    """A blob to send and how to get at its bytes."""

    descriptor: Descriptor
    open_content: Callable[[], BinaryIO]
    mount_from: str | None
    advance: Callable[[int], None]


def put_blob(session: Session, upload: Upload) -> bool:
    """Send the blob; returns whether bytes had to be sent."""
    descriptor = upload.descriptor
    location = None if is_there(session, descriptor.digest) else _mount_or_begin(session, upload)
    if location is None:
        upload.advance(descriptor.size)
        return False
    if descriptor.size <= _MONOLITHIC:
        _finish(session, upload, location, is_whole=True)
        upload.advance(descriptor.size)
        return True
    try:
        location = _send_pieces(session, upload, location)
    except ImageNotFound:  # the registry lost the broken upload: once more from the start
        location = _send_pieces(session, upload, _begin(session))
    _finish(session, upload, location, is_whole=False)
    return True


def is_there(session: Session, digest: Digest) -> bool:
    """Whether the repository has the blob; a registry without HEAD counts as having nothing.

    The right to push is asked for at once: some registries give no token to read what is not there yet.
    """
    accepted = frozenset({200, 404, 405})
    target = f"{session.repository}/blobs/{digest}"
    with session.call(Call("HEAD", target, accepted, reference=str(digest), writes=True)) as response:
        return response.status == 200


def _mount_or_begin(session: Session, upload: Upload) -> str | None:
    """Where to send the bytes; None when the registry took the blob from the other repository."""
    if upload.mount_from:
        query = f"?mount={upload.descriptor.digest}&from={quote(upload.mount_from, safe='/')}"
        call = replace(_begin_call(session, query), also=f"repository:{upload.mount_from}:pull")
        # whatever speaks against the mount, such as no right to read over there: the blob can still be sent
        with (
            contextlib.suppress(AccessDenied, AuthenticationFailed, ImageNotFound, RegistryProtocolError),
            session.call(call) as response,
        ):
            return None if response.status == 201 else _location(response, session)
    return _begin(session)


def _begin(session: Session) -> str:
    with session.call(_begin_call(session)) as response:
        return _location(response, session)


def _begin_call(session: Session, query: str = "") -> Call:
    target = f"{session.repository}/blobs/uploads/{query}"
    return Call("POST", target, frozenset({201, 202}), {"Content-Length": "0"}, writes=True)


def _send_pieces(session: Session, upload: Upload, location: str) -> str:
    """PATCH until all bytes are there; the address to finish at."""
    size = upload.descriptor.size
    position, piece, failures = 0, size, 0
    while position < size:
        end = min(position + piece, size)
        try:
            location, reached = _send_piece(session, upload, location, range(position, end))
        except NetworkFailed as problem:
            if failures + 1 >= _ATTEMPTS or not problem.is_transient:
                raise
            location, reached = _ask_position(session, location, position)
            if reached is not None and reached <= position:  # some proxies cut what is too long for them without a word
                piece = _shrink(piece, size)
        if reached is None:  # 413: too much at once for something in between
            if piece <= _SMALLEST_PIECE:
                raise RegistryProtocolError(
                    f"{session.endpoint.host} refuses even pieces of {piece} bytes as too large"
                )
            piece = _shrink(piece, size)
            continue
        if reached > position:
            failures = 0
        elif (failures := failures + 1) >= _ATTEMPTS:
            raise RegistryProtocolError(
                f"{session.endpoint.host} accepts pieces of an upload, but stores none of them",
                context={"reached": f"{reached} of {size} bytes"},
            )
        upload.advance(max(0, reached - position))
        position = reached
    return location


def _shrink(piece: int, size: int) -> int:
    return max(_SMALLEST_PIECE, min(piece, size) // 4)


def _send_piece(session: Session, upload: Upload, location: str, part: range) -> tuple[str, int | None]:
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(part)),
        "Content-Range": f"{part.start}-{part.stop - 1}",
    }

    def read_body() -> Iterator[bytes]:
        return _read_part(upload, part)

    accepted = frozenset({201, 202, 204, 413})
    call = Call("PATCH", location, accepted, headers, read_body, retries=0, writes=True)
    with session.call(call) as response:
        if response.status == 413:
            return location, None
        reached = _position(response)
        return _location(response, session), part.stop if reached is None else min(reached, part.stop)


def _ask_position(session: Session, location: str, fallback: int) -> tuple[str, int]:
    """How far a broken upload got; the registry may also have forgotten it, which its error says."""
    with session.call(Call("GET", location, frozenset({200, 202, 204}), writes=True)) as response:
        reached = _position(response)
        address = _location(response, session) if response.header("Location") else location
    return address, fallback if reached is None else reached


def _finish(session: Session, upload: Upload, location: str, *, is_whole: bool) -> None:
    target = append_query(location, [("digest", str(upload.descriptor.digest))])
    size = upload.descriptor.size if is_whole else 0
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    body = b"".join(_read_part(upload, range(size)))
    digest = str(upload.descriptor.digest)
    accepted = frozenset({201, 202, 204})
    try:
        session.call(
            Call(
                method="PUT",
                target=target,
                accepted=accepted,
                headers=headers,
                body=body,
                reference=digest,
                writes=True,
                read_timeout=_COMMIT_TIMEOUT,
            )
        ).close()
    except (NetworkFailed, ImageNotFound):  # the answer was lost, or a second try came too late: is it there now?
        if not is_there(session, upload.descriptor.digest):
            raise


def _read_part(upload: Upload, part: range) -> Iterator[bytes]:
    with upload.open_content() as file:
        file.seek(part.start)
        left = len(part)
        while left:
            piece = file.read(min(left, READ_SIZE))
            if not piece:
                raise DigestMismatch(
                    f"the file of {upload.descriptor.digest} is {left} of {upload.descriptor.size} bytes too short"
                )
            left -= len(piece)
            yield piece


def _location(response: Response, session: Session) -> str:
    location = response.header("Location")
    if not location:
        raise RegistryProtocolError(f"{session.endpoint.host} accepts an upload, but does not say where to send it")
    return session.resolve(urljoin(response.url, location))


def _position(response: Response) -> int | None:
    match = _RANGE.match((response.header("Range") or "").strip())
    if match is None:
        return None
    last = int(match[1])
    return last + 1 if last else 0  # `0-0` is what registries send for nothing at all
