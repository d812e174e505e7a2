# SPDX-License-Identifier: BSD-3-Clause
"""A web server with one file, which knows ranges."""

from __future__ import annotations

from tests.fakes.http_server import FakeServer, Recorded, Reply


class FileServer(FakeServer):
    """The same `data` below every path but `missing.sif`, with or without an ETag."""

    def __init__(self, data: bytes, etag: str = '"1"') -> None:
        super().__init__(self.send)
        self.data = data
        self.etag = etag
        self.headers = {"Content-Type": "application/octet-stream"}

    def send(self, request: Recorded) -> Reply:
        """The file, or what a range asks for as long as the file is the same."""
        if request.path.endswith("missing.sif"):
            return Reply(404, b"no")
        headers = self.headers | ({"ETag": self.etag} if self.etag else {})
        wanted = request.headers.get("range")
        if wanted is None or request.headers.get("if-range", self.etag) != self.etag:
            return Reply(200, self.data, headers)
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        span = f"bytes {start}-{len(self.data) - 1}/{len(self.data)}"
        return Reply(206, self.data[start:], {**headers, "Content-Range": span})
