# SPDX-License-Identifier: BSD-3-Clause
"""The real docker-registry (Debian's package) on a free loopback port: plain, with htpasswd, with TLS.

with docker_registry(tmp_path, htpasswd={"user": "password"}) as registry:
    registry.host                       # 127.0.0.1:PORT
    registry.copy_in(layout, "a/b:1")   # by skopeo
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders.certificates import Authority
from tests.builders.skopeo import run_skopeo
from tests.requirements import require_program

_START_LIMIT = 20.0


@dataclass
class DockerRegistry:
    """A running registry."""

    host: str
    port: int
    folder: Path
    users: Mapping[str, str] = field(default_factory=dict)
    authority: Authority | None = None
    process: subprocess.Popen[bytes] | None = None

    def copy_in(self, source: str, name: str, *options: str) -> None:
        """Let skopeo push `source` (`oci:FOLDER:TAG`, `docker-archive:FILE`, …) as `name`, with options of `copy`."""
        self._skopeo("copy", "-q", *self._options("dest"), *options, source, f"docker://{self.host}/{name}")

    def copy_out(self, name: str, target: str) -> None:
        """Let skopeo pull `name` to `target`."""
        self._skopeo("copy", "-q", *self._options("src"), f"docker://{self.host}/{name}", target)

    def inspect(self, name: str) -> dict[str, object]:
        """The raw manifest of `name`, as skopeo sees it."""
        options = self._options("")
        found: dict[str, object] = json.loads(
            self._skopeo("inspect", "--raw", *options, f"docker://{self.host}/{name}")
        )
        return found

    def stop(self) -> None:
        """End the registry; ending it twice is fine."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _options(self, side: str) -> list[str]:
        prefix = f"--{side}-" if side else "--"
        options = [f"{prefix}tls-verify=false"]
        if self.users:
            user, password = next(iter(self.users.items()))
            options.append(f"{prefix}creds={user}:{password}")
        return options

    def _skopeo(self, *words: str) -> bytes:
        return run_skopeo(self.folder, *words)


@contextlib.contextmanager
def docker_registry(
    folder: Path, *, htpasswd: Mapping[str, str] | None = None, tls: Authority | None = None
) -> Iterator[DockerRegistry]:
    """Start a registry that keeps its data below `folder`; it is ended when the block ends."""
    program = require_program("docker-registry")
    home = folder / "docker-registry"
    (home / "data").mkdir(parents=True, exist_ok=True)
    port = find_free_port()
    document: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(home / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "fixed"},
    }
    if htpasswd:
        document["auth"] = {"htpasswd": {"realm": "test, realm", "path": str(_write_htpasswd(home, htpasswd))}}
    if tls is not None:
        certificate, key = tls.issue("127.0.0.1", "localhost")
        document["http"] = {
            "addr": f"127.0.0.1:{port}", "secret": "fixed", "tls": {"certificate": str(certificate), "key": str(key)},
        }  # fmt: skip
    (home / "config.yml").write_text(json.dumps(document))  # JSON is YAML
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(home / "config.yml")], stdout=log, stderr=log)
    registry = DockerRegistry(f"127.0.0.1:{port}", port, home, htpasswd or {}, tls, process)
    try:
        _wait_until_listening(registry)
        yield registry
    finally:
        registry.stop()


def find_free_port() -> int:
    """A port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _write_htpasswd(folder: Path, users: Mapping[str, str]) -> Path:
    path = folder / "htpasswd"
    lines = [
        subprocess.run(
            [require_program("htpasswd"), "-niB", user], input=password.encode(), capture_output=True, check=True
        ).stdout.decode()
        for user, password in users.items()
    ]
    path.write_text("".join(line.strip() + "\n" for line in lines))
    return path


def _wait_until_listening(registry: DockerRegistry) -> None:
    assert registry.process is not None
    end = time.monotonic() + _START_LIMIT
    while time.monotonic() < end:
        if registry.process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", registry.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"docker-registry did not start: {(registry.folder / 'log').read_text()[-2000:]}")
