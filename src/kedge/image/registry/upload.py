# SPDX-License-Identifier: BSD-3-Clause
"""Uploads: nothing when the registry has the blob, a mount from another repository, one PUT, or PATCHes that resume.

A broken transfer asks the registry how far it got (`Range`) and goes on from there; a body that some proxy in between
finds too large (413) is cut into smaller ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import BinaryIO
from urllib.parse import quote, urljoin

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.manifest import Descriptor
from kedge.base.patterns import late_pattern
from kedge.errors import (
    AccessDenied,
    AuthenticationFailed,
    DigestMismatch,
    ImageNotFound,
    NetworkFailed,
    RegistryProtocolError,
)
from kedge.image.registry.auth import append_query
from kedge.image.registry.session import Call, Session
from kedge.image.registry.transport import READ_SIZE, Response

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
