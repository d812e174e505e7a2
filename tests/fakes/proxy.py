# SPDX-License-Identifier: BSD-3-Clause
"""Proxies on loopback: one that answers CONNECT for chosen names, one that cuts TCP connections after so many bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping


class _Listener:
    """Accepts connections on a free port and handles each in a thread; `listener` may be of another network."""

    def __init__(self, listener: socket.socket | None = None) -> None:
        self._socket = listener or socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> _Listener:
        self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._guarded, args=(client,), daemon=True).start()

    def _guarded(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self.handle(client)

    def handle(self, client: socket.socket) -> None:
        raise NotImplementedError


class ConnectProxy(_Listener):
    """An HTTP proxy for CONNECT: `routes` maps `name:port` to a loopback port; anything else is refused."""

    def __init__(
        self, routes: Mapping[str, int], authorization: str | None = None, listener: socket.socket | None = None
    ) -> None:
        super().__init__(listener)
        self.routes = routes
        self.authorization = authorization
        self.log: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def handle(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(4096)
            if not piece:
                return
            head += piece
        lines = head.decode("latin-1").split("\r\n")
        self.log.append(head.decode("latin-1"))
        method, target, _ = lines[0].split(" ")
        sent = next((line for line in lines if line.lower().startswith("proxy-authorization:")), "")
        if self.authorization and sent.partition(": ")[2] != self.authorization:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        if method != "CONNECT" or target not in self.routes:
            client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.routes[target])) as server:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            _join(client, server)


class CuttingProxy(_Listener):
    """Passes TCP through to `port`; connection number N is cut when `limits[N]` bytes went one way (None: never)."""

    def __init__(self, port: int, limits: list[int | None], *, towards_server: bool = False) -> None:
        super().__init__()
        self._target = port
        self._limits = list(limits)
        self._towards_server = towards_server
        self.connections = 0

    def handle(self, client: socket.socket) -> None:
        self.connections += 1
        limit = self._limits.pop(0) if self._limits else None
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            if self._towards_server:
                _join(client, server, limit_out=limit)
            else:
                _join(client, server, limit_back=limit)


def _join(
    client: socket.socket, server: socket.socket, *, limit_out: int | None = None, limit_back: int | None = None
) -> None:
    for each in (client, server):  # as real proxies do; else small pieces wait 40 ms for the answer to the last one
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_pump, args=(server, client, limit_back), daemon=True)
    back.start()
    _pump(client, server, limit_out)
    back.join()


def _pump(source: socket.socket, sink: socket.socket, limit: int | None) -> None:
    left = limit
    with contextlib.suppress(OSError):
        while left is None or left > 0:
            piece = source.recv(65536 if left is None else min(65536, left))
            if not piece:
                break
            sink.sendall(piece)
            left = None if left is None else left - len(piece)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
