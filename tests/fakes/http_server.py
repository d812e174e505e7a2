# SPDX-License-Identifier: BSD-3-Clause
"""A real HTTP/1.1 server on a free loopback port that records every request and can misbehave on demand."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")


@dataclass(frozen=True)
class Reply:
    """What to answer; Content-Length is added."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str | list[str]] = field(default_factory=dict)


@dataclass
class Fault:
    """Something to do wrong, `times` times, for requests whose `METHOD /path` matches `pattern`."""

    pattern: str
    times: int = 1
    reply: Reply | None = None  # answer this instead
    cut_at: int | None = None  # send so many bytes of the body, then drop the connection
    reset: bool = False  # drop it with RST
    corrupt_at: int | None = None  # flip the bits of this byte
    length: int | None = None  # announce this Content-Length instead of the true one
    unframed: bool = False  # no Content-Length: the end of the connection is the end of the body
    delay: float = 0.0
    stall_at: int | None = None  # send so many bytes of the body, then nothing, while the connection stands
    trickle: float = 0.0  # seconds between two pieces of 1000 bytes
    cut_request_at: int | None = None  # read so many bytes of the request's body, then drop the connection


Answer = Callable[[Recorded], Reply]


class FakeServer:
    """Serves `answer` until the block ends."""

    def __init__(self, answer: Answer, *, tls: tuple[Path, Path] | None = None) -> None:
        self.answer = answer
        self.log: list[Recorded] = []
        self.faults: list[Fault] = []
        self.connections = 0
        self.ended = threading.Event()  # lets go of those that are stalled
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            # The handshake is done by the connection's own thread, so that a client that breaks it off stops nobody.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"{self.scheme}://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def fail(self, pattern: str, **settings: object) -> None:
        """Misbehave at the next request whose `METHOD /path` matches."""
        self.faults.append(Fault(pattern, **settings))  # type: ignore[arg-type]

    def record(self, request: Recorded) -> None:
        with self._lock:
            self.log.append(request)

    def take_fault(self, line: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.pattern, line):
                    fault.times -= 1
                    return fault
        return None

    def seen(self, pattern: str) -> list[Recorded]:
        """The requests whose `METHOD /path` matches."""
        return [each for each in self.log if re.search(pattern, f"{each.method} {each.path}")]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: FakeServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients of tests break connections on purpose; that is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    disable_nagle_algorithm = True  # as servers of registries; else the body waits 40 ms for the answer to the head
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.owner.connections += 1

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _serve(self) -> None:
        owner = self.server.owner
        parts = urlsplit(self.path)
        line = f"{self.command} {parts.path}" + (f"?{parts.query}" if parts.query else "")
        fault = owner.take_fault(line)
        if fault and fault.cut_request_at is not None:
            self.rfile.read(fault.cut_request_at)
            self._drop(reset=fault.reset)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(
            self.command, unquote(parts.path), parse_qs(parts.query, keep_blank_values=True), headers, body
        )
        owner.record(request)
        if fault and fault.delay:
            time.sleep(fault.delay)
        reply = fault.reply if fault and fault.reply else owner.answer(request)
        self._send(reply, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _send(self, reply: Reply, fault: Fault | None) -> None:
        body = reply.body
        if fault and fault.corrupt_at is not None and body:
            at = fault.corrupt_at % len(body)
            body = body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :]
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            for each in value if isinstance(value, list) else [value]:
                self.send_header(name, each)
        if fault and fault.unframed:
            self.send_header("Connection", "close")
            self.close_connection = True
        elif "Content-Length" not in reply.headers:
            length = fault.length if fault and fault.length is not None else len(body)
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault and fault.cut_at is not None:
            self.wfile.write(body[: fault.cut_at])
            self.wfile.flush()
            self._drop(reset=fault.reset)
            return
        if fault and fault.stall_at is not None:
            self.wfile.write(body[: fault.stall_at])
            self.server.owner.ended.wait()
            self._drop(reset=False)
            return
        if fault and fault.trickle:
            self._trickle(body, fault.trickle)
            return
        self.wfile.write(body)
        if fault and fault.length is not None:
            self._drop(reset=False)

    def _trickle(self, body: bytes, pause: float) -> None:
        for start in range(0, len(body), 1000):
            self.wfile.write(body[start : start + 1000])
            if self.server.owner.ended.wait(pause):
                break

    def _drop(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
