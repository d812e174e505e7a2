# SPDX-License-Identifier: BSD-3-Clause
"""A crafted image takes over the program that serves it (squashfuse, fuse2fs), and wants the home and the network.

A program in the server's place tells what it can reach: by what it says before it ends, which kedge passes on.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, make_sandbox
from tests.builders.rows import each_row
from tests.builders.strangers import KEY, KEY_FILE
from tests.requirements import open_way, require_program

WAYS = ((), ("--pid",), ("--fakeroot",), ("--containall",))
# libfuse3 uid=% gid=%: what kedge looks for in a squashfuse; what it says goes to stderr, and the mount fails
LOOK = """#!/bin/bash
# libfuse3 uid=% gid=% offset= fakeroot
{{
    echo "[begins]"
    cat {home}/{key} && echo "[home]"
    for place in {image}.neighbour /home /root /run /proc/1 /proc/self/fd /dev/shm; do
        [ ! -e "$place" ] || echo "[sees $place]"
    done
    exec 9<>/dev/tcp/127.0.0.1/{port} && echo "[network]"
    [ ! -r {image} ] || echo "[image]"
    [ -z "$SECRET" ] || echo "[variables]"
    echo "[ends]"
}} >&2
exit 1
"""


@pytest.fixture(name="port")
def listen() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(name="place")
def make_place(runner: Runner) -> Iterator[Path]:
    """A directory for programs, below another one of the root than the home's."""
    folder = Path("/var/tmp") / f"kedge-programs-{os.getpid()}"
    assert not runner.home.is_relative_to("/var")
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(name="sif", scope="module")
def pack_image(runner: Runner) -> Path:
    (runner.home / KEY_FILE).parent.mkdir(mode=0o700)
    (runner.home / KEY_FILE).write_text(KEY)
    folder = make_sandbox(runner.folder / "packed")
    give_to(runner, runner.folder)
    sif = runner.folder / "packed.sif"
    runner.read("convert", str(folder), str(sif))
    return sif


def write_look(runner: Runner, program: Path, image: Path, port: int) -> None:
    require_program("bash")
    program.write_text(LOOK.format(home=runner.home, key=KEY_FILE, image=image, port=port))
    program.chmod(0o755)
    open_way(program)
    Path(f"{image}.neighbour").touch()


def check(said: str) -> None:
    assert "[begins]" in said
    assert "[image]" in said
    assert "[ends]" in said
    for reach in ("[home]", KEY, "[network]", "[variables]", "[sees"):
        assert reach not in said, said


@each_row("way", WAYS)
def test_squashfuse(runner: Runner, sif: Path, place: Path, port: int, way: tuple[str, ...]) -> None:
    program = place / "squashfuse_ll"
    write_look(runner, program, sif, port)
    done = runner.run(
        *("exec", "--root-from", "squashfuse", *way, str(sif), "true"),
        env={"KEDGE_SQUASHFUSE": str(program), "SECRET": "x"},
    )
    assert done.returncode != 0
    check(done.stderr)


@each_row("way", WAYS)
def test_fuse2fs(runner: Runner, image: str, place: Path, port: int, way: tuple[str, ...]) -> None:
    overlay = runner.folder / "overlay.img"
    if not overlay.exists():
        runner.read("overlay", "create", str(overlay))
    write_look(runner, place / "fuse2fs", overlay, port)
    done = runner.run(
        *("exec", "--overlay", str(overlay), *way, image, "true"), env={"PATH": f"{place}:/usr/bin:/bin", "SECRET": "x"}
    )
    assert done.returncode != 0
    check(done.stderr)
