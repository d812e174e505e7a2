# SPDX-License-Identifier: BSD-3-Clause
"""docker-registry on loopback, for as long as something is measured."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def registry(storage: Path) -> Iterator[str]:
    """docker-registry on loopback for the length of the block."""
    port = free_port()
    config = storage.with_suffix(".yml")
    storage.mkdir(exist_ok=True)
    config.write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {storage}}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n"
    )
    with config.with_suffix(".log").open("w") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
