# SPDX-License-Identifier: BSD-3-Clause
"""Plain http and https files: images that lie on a web server, resumed where the connection broke."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urlsplit

from kedge.base.digest import Digest
from kedge.base.size import format_size
from kedge.errors import (
    AccessDenied,
    AuthenticationFailed,
    CorruptImage,
    ImageNotFound,
    NetworkFailed,
    UnsupportedFormat,
)
from kedge.image.registry.blob_stream import BlobStream, open_stream
from kedge.image.registry.response_errors import BODY_LIMIT, Situation, explain_response, read_error_body
from kedge.image.registry.secret import redact_url
from kedge.image.registry.transport import HttpRequest, HttpTransport, Response

_ATTEMPTS = 5  # breaks without a single new byte in between


@dataclass(frozen=True, slots=True)
class _Downloaded:
    """The result of a download."""

    digest: Digest
    size: int
    modified: str = ""  # Last-Modified, as the server has it


def open_url(
    transport: HttpTransport, url: str, offset: int = 0, validator: str = "", *, takes_pages: bool = False
) -> BlobStream:
    """The bytes behind an address from `offset`; with a `validator` only if the file is still the same, else from 0.

    A web page is no image, and refused unless `takes_pages`.
    """

    def request(start: int) -> Response:
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and validator:
            headers["If-Range"] = validator
        response = transport.send(HttpRequest("GET", url, headers))
        accepted = (200, 206, 416) if start else (200,)
        if response.status not in accepted:
            raise _explain(response, url)
        if not takes_pages and (response.header("Content-Type") or "").lower().startswith("text/html"):
            response.close()
            raise UnsupportedFormat(
                f"{redact_url(url)} is a web page, not an image",
                hint="copy the address of the file itself; a login page looks the same",
            )
        return response

    return open_stream(request, offset, None)


def download_url(
    transport: HttpTransport,
    url: str,
    file: BinaryIO,
    *,
    limit: int | None = None,
    announce: Callable[[int | None], Callable[[int], None]] | None = None,
    takes_pages: bool = False,
) -> _Downloaded:
    """Write the file behind an address to `file` (seekable, empty); breaks are resumed, a changed file starts again.

    `announce` is told the size once it is known, and gives the function that is called with every advance.
    """
    writer = _Writer(file, limit, redact_url(url))
    advance: Callable[[int], None] | None = None
    validator, version, failures = "", "", 0
    while True:
        before = writer.furthest
        try:
            with open_url(transport, url, writer.position, validator, takes_pages=takes_pages) as stream:
                validator, modified = stream.validator, stream.modified
                current = validator or f"{stream.size} bytes"
                if stream.offset != writer.position or version not in ("", current):
                    writer.begin_again()
                version = current
                if stream.offset != writer.position:
                    continue  # not every server knows If-Range: these bytes are of a newer version than those we had
                if advance is None:
                    advance = announce(stream.size) if announce else _ignore
                for piece in stream:
                    advance(writer.write(piece))
            return _Downloaded(Digest("sha256", writer.digest.hexdigest()), writer.position, modified)
        except NetworkFailed as problem:
            failures = 1 if writer.furthest > before and not problem.is_slow else failures + 1
            arrived = f"{format_size(writer.position)} received"
            if failures >= _ATTEMPTS or not problem.is_transient:
                problem.context["received"] = arrived
                raise
            transport.options.notify(f"{problem.message}; trying again ({arrived})")
            transport.options.sleep(transport.options.backoff * failures)


class _Writer:
    """Writes and hashes what arrives; knows how far it ever got, for a server that cannot resume is no progress."""

    def __init__(self, file: BinaryIO, limit: int | None, shown: str) -> None:
        self._file, self._limit, self._shown = file, limit, shown
        self.digest = hashlib.sha256()
        self.position = 0
        self.furthest = 0

    def begin_again(self) -> None:
        self.digest, self.position = hashlib.sha256(), 0
        self._file.seek(0)
        self._file.truncate()

    def write(self, piece: bytes) -> int:
        """How many bytes further than ever before this led."""
        self.position += len(piece)
        if self._limit is not None and self.position > self._limit:
            raise CorruptImage(f"{self._shown} is longer than the {self._limit} bytes allowed")
        self._file.write(piece)
        self.digest.update(piece)
        gained = max(0, self.position - self.furthest)
        self.furthest += gained
        return gained


def _ignore(_amount: int) -> None:
    pass


def _explain(response: Response, url: str) -> Exception:
    host, shown, status = urlsplit(url).netloc.rpartition("@")[2], redact_url(url), response.status
    if status == 429 or status >= 500:
        return explain_response(response, Situation(host))
    with response:
        said = read_error_body(response.read_start(BODY_LIMIT), response.header("Content-Type") or "")
    context = {"status": str(status), **({"server says": said.text} if said.text else {})}
    if status in (404, 410):
        return ImageNotFound(f"no file at {shown}", context=context, hint="open the address in a browser to check it")
    if status == 401:
        return AuthenticationFailed(
            f"{host} requires a login for {shown}", context=context, hint="download the file with another tool"
        )
    return AccessDenied(f"{host} refuses access to {shown} (status {status})", context=context)
