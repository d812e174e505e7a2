# SPDX-License-Identifier: BSD-3-Clause
"""Small whole images for end-to-end tests: layers with everything a file system can hold, and a config."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.fakes.registry import FakeRegistry

MACHINE = {"aarch64": "arm64", "x86_64": "amd64"}.get(os.uname().machine, os.uname().machine)
CREATED = "2024-02-03T04:05:06.789Z"
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")  # cap_net_raw+ep


def noise(size: int, seed: str) -> bytes:
    """Bytes that no codec makes smaller."""
    out, block = bytearray(), seed.encode()
    while len(out) < size:
        block = hashlib.sha512(block).digest()
        out += block
    return bytes(out[:size])


def rich_layers() -> list[bytes]:
    """Three tars, lowest first: every kind of file, and changes over layers."""
    times = {"mtime": 1_600_000_000}
    base = build.layer(
        build.folder("bin", **times),
        build.file("bin/busybox", read_busybox(), mode=0o755, **times),
        *(
            build.symlink(f"bin/{name}", "busybox", **times)
            for name in ("sh", "env", "ls", "cat", "true", "printf", "id")
        ),
        build.folder("etc", **times),
        build.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", **times),
        build.file("etc/group", b"root:x:0:\n", **times),
        build.folder("data", **times),
        build.file("data/big", noise(700_001, "big"), **times),
        build.file("data/zeros", bytes(400_000), **times),
        build.file("data/text", b"kedge " * 30_000, **times),
        build.file("data/old", b"gone", **times),
        build.file("data/replaced", b"below", **times),
        build.folder("data/full", **times),
        build.file("data/full/hidden", b"hidden", **times),
        build.folder("tmp", mode=0o1777, **times),
    )
    middle = build.layer(
        build.file("data/owned", b"mine", owner=(1000, 100), mode=0o640, **times),
        build.file("data/setuid", b"#!", mode=0o4755, **times),
        build.hard_link("data/twin", "data/owned"),
        build.device("data/null", 1, 3, mode=0o666, **times),
        build.fifo("data/pipe", **times),
        build.whiteout("data/old"),
        build.opaque("data/full"),
        build.file("data/full/seen", b"seen", **times),
        build.file(
            "data/capable", b"cap", mode=0o755, xattrs={b"security.capability": CAPABILITY, b"user.note": b"hello"}
        ),
    )
    top = build.layer(
        build.file("data/replaced", b"above", **times),
        build.file("data/" + "n" * 200, b"long", **times),
        build.file("data/ünï", "näme".encode(), **times),
        build.hard_link("data/across", "data/text"),
        build.symlink("data/link", "../etc/passwd", **times),
    )
    return [base, middle, top]


def make_config(
    layers: Sequence[bytes], section: Mapping[str, object] | None = None, architecture: str = MACHINE
) -> bytes:
    """The config of an image with these (uncompressed) layers."""
    return json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "created": CREATED,
            "config": section if section is not None else {
                "Env": ["PATH=/bin", "GREETING=hello world"],
                "Entrypoint": ["/bin/printf", "[%s]"],
                "Cmd": ["default"],
                "Labels": {"maker": "kedge tests"},
                "WorkingDir": "/data",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(x).hexdigest()}" for x in layers]},
        }
    ).encode()  # fmt: skip


def add_rich_image(registry: FakeRegistry, repository: str = "team/rich", tag: str = "1") -> str:
    """Put the rich image into a registry; returns its digest."""
    return str(registry.add_image(repository, tag, *_make_rich_blobs()))


@functools.cache
def _make_rich_blobs() -> tuple[list[bytes], bytes]:
    tars = rich_layers()
    return [build.compress(tar) for tar in tars], make_config(tars)


def add_shell_image(registry: FakeRegistry, name: str, files: Mapping[str, bytes]) -> str:
    """Put `REPOSITORY:TAG` with a shell and these files into a registry, in place of what has that name; its digest."""
    repository, _, tag = name.partition(":")
    return str(registry.add_image(repository, tag, *_make_shell_blobs(tuple(files.items()))))


@functools.lru_cache(8)
def _make_shell_blobs(files: tuple[tuple[str, bytes], ...]) -> tuple[list[bytes], bytes]:
    tar = build.layer(
        build.file("bin/sh", read_busybox(), mode=0o755), *(build.file(path, data) for path, data in files)
    )
    return [build.compress(tar)], make_config([tar], {})


def kedge(*words: str | Path, cache: Path, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, with a store of its own."""
    environment = {**os.environ, "KEDGE_CACHEDIR": str(cache), **options.pop("environment", {})}  # type: ignore[dict-item]
    argv = [sys.executable, "-m", "kedge", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=240, check=False, **options)  # type: ignore[call-overload]
    if check:
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done  # type: ignore[no-any-return]


def read_here(*words: str | Path, cache: Path) -> tuple[int, str]:
    """Status and output of a command line in this process, which saves a start of Python."""
    from kedge.cli.main import main  # late: most tests that use this module start programs

    out = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8")) as text:
        patch.setenv("KEDGE_CACHEDIR", str(cache))
        status = main([*map(str, words)])
        text.flush()
        return status, out.getvalue().decode()


def kedge_here(*words: str | Path, cache: Path) -> str:
    """The output of one that must end well."""
    status, out = read_here(*words, cache=cache)
    assert status == 0, words
    return out


def hash_file(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
