# SPDX-License-Identifier: BSD-3-Clause
"""Integrates 4/(1+x²) on all ranks of a launch; rank 0 adds the parts, at MASTER_ADDR and MASTER_PORT.

Needs Python alone: no NumPy, no MPI. Without RANK and WORLD_SIZE it is one process.
"""

import os
import socket
import sys
import time

PATIENCE = 30  # seconds for rank 0 to open its port


def main():
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    steps = int(os.environ.get("STEPS", "3000000"))
    if rank == 1 and "--fail" in sys.argv:
        os.open("/data/train.h5", os.O_RDONLY)
    began = time.perf_counter()
    part = sum(4 / (1 + ((i + 0.5) / steps) ** 2) for i in range(rank, steps, size)) / steps
    if rank:
        send(part)
        return
    total = part + receive(size - 1)
    rate = steps / (time.perf_counter() - began) / 1e6
    print(f"pi = {total:.9f} ({size} {'process' if size == 1 else 'ranks'}, {rate:.2f} million steps/s)")


def receive(count):
    """The parts of the other ranks, added."""
    if not count:
        return 0.0
    total = 0.0
    with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
        for _ in range(count):
            with server.accept()[0] as connection:
                total += float(connection.makefile().read())
    return total


def send(part):
    """Hand the part to rank 0, which may still be computing its own."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as connection:
                connection.sendall(repr(part).encode())
            return
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


main()
