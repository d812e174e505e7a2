# SPDX-License-Identifier: BSD-3-Clause
"""The body of a blob or file as it arrives: bounded by its promised size, resumable where it broke."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.errors import DigestMismatch, RegistryProtocolError
from kedge.image.registry.connection_errors import explain_break
from kedge.image.registry.secret import redact_url
from kedge.image.registry.transport import Response

_CONTENT_RANGE = late_pattern(r"bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*\Z", re.IGNORECASE)


class BlobStream:
    """Bytes from `offset` to the end; close it, or use it as a context manager. Iterate once."""

    def __init__(self, response: Response | None, offset: int, size: int | None) -> None:
        self._response = response
        self.offset = offset  # where the bytes really start: 0 when the server ignored the range
        self.size = size  # of the whole blob; None when the server did not say
        self.seconds: float | None = None  # all of it has to come in this time; None: a large file takes what it takes
        self.validator = ""  # ETag or Last-Modified, for If-Range
        self.modified = ""  # Last-Modified
        if response is not None:
            self.modified = response.header("Last-Modified") or ""
            etag = response.header("ETag") or ""
            self.validator = etag if etag and not etag.startswith("W/") else self.modified

    def __iter__(self) -> Iterator[bytes]:
        """Pieces in order. NetworkFailed (transient) when they end early, DigestMismatch when there are too many."""
        if self._response is None:
            return
        position = self.offset
        for piece in self._response.chunks(seconds=self.seconds):
            position += len(piece)
            if self.size is not None and position > self.size:
                self.close()
                raise DigestMismatch(
                    f"{redact_url(self._response.url)} sends more than the announced {self.size} bytes"
                )
            yield piece
        if self.size is not None and position < self.size:
            raise explain_break(self._response.url, position, self.size)

    def close(self) -> None:
        """Drop the connection if it is not read to its end."""
        if self._response is not None:
            self._response.close()

    def __enter__(self) -> BlobStream:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()


@frozen
class Part:
    """A Content-Range header."""

    start: int
    end: int
    total: int | None


def parse_content_range(value: str | None) -> Part | None:
    """Read `bytes 5-9/10`; None when it is not one that makes sense."""
    match = _CONTENT_RANGE.match(value.strip()) if value else None
    if match is None:
        return None
    start, end = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    return Part(start, end, total) if start <= end and (total is None or end < total) else None


def open_stream(request: Callable[[int], Response], offset: int, size: int | None) -> BlobStream:
    """Ask for the bytes from `offset`; `request` gets the offset and accepts 200, 206 and 416.

    A server that ignores the range, or answers with another one, gives the whole from 0: `.offset` says so.
    """
    if size is not None and offset == size and size > 0:
        return BlobStream(None, offset, size)
    if offset and (size is None or offset < size):
        response = request(offset)
        if response.status == 200:
            return _whole(response, size)
        part = parse_content_range(response.header("Content-Range")) if response.status == 206 else None
        if part and part.start == offset and (size is None or part.total in (None, size)):
            return BlobStream(response, offset, part.total if size is None else size)
        response.close()
    response = request(0)
    if response.status != 200:
        response.close()
        raise RegistryProtocolError(
            f"{redact_url(response.url)} answers {response.status} to a request for the whole file"
        )
    return _whole(response, size)


def _whole(response: Response, size: int | None) -> BlobStream:
    length = response.length
    if size is not None and length is not None and length != size:
        kind = response.header("Content-Type") or "none"
        response.close()
        raise DigestMismatch(
            f"{redact_url(response.url)} has {length} bytes, not the announced {size}",
            context={"Content-Type": kind},
            hint="try again, or tell the operator: the registry or a proxy serves another file",
        )
    return BlobStream(response, 0, length if size is None else size)
