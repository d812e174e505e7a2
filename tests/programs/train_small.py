# SPDX-License-Identifier: BSD-3-Clause
"""A training without PyTorch, for images of gigabytes that tests do not have: its processes find each other and add up.

Reads a directory with `train/CLASS/*.JPEG` when one is named, writes the file that `--raport-file` names, and says what
it had: data, processes and the hosts they are on, GPUs, and the options that were not for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path


def gather(rank: int, world: int, said: str) -> list[str]:
    """What all processes said, in rank 0; they meet where the variables of PyTorch say."""
    if world == 1:
        return [said]
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        with connect(place) as line:
            line.sendall(said.encode())
        return []
    with socket.create_server(place) as server:
        server.settimeout(60)
        return [said, *(receive(server) for _ in range(world - 1))]


def connect(place: tuple[str, int]) -> socket.socket:
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(place)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def receive(server: socket.socket) -> str:
    line, _ = server.accept()
    with line:
        return line.makefile(encoding="utf-8").read()


def main() -> None:
    words = sys.argv[1:]
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    pictures = sorted(Path(words[-1]).glob("train/*/*.JPEG")) if words and Path(words[-1]).is_dir() else []
    mine = sum(path.stat().st_size for path in pictures[rank::world])
    told = json.dumps({"rank": rank, "host": socket.gethostname(), "bytes": mine})
    found = [json.loads(each) for each in gather(rank, world, told)]
    if not found:
        return
    hosts = sorted({each["host"] for each in found})
    total = sum(each["bytes"] for each in found)
    assert sorted(each["rank"] for each in found) == list(range(world))
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    if "--raport-file" in words:
        report = {"pictures": len(pictures), "bytes": total, "processes": world, "hosts": hosts}
        Path(words[words.index("--raport-file") + 1]).write_text(json.dumps(report))
    print(
        f"trained on {len(pictures)} pictures ({total} bytes) by {world} on {'+'.join(hosts)}; GPUs {gpus}", flush=True
    )


if __name__ == "__main__":
    main()
