# SPDX-License-Identifier: BSD-3-Clause
"""The heads in the wheel are what the source says, and unpack what the writer packs; x86_64 is emulated."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import re
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

import pytest
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program
from tests.wording import assert_says

from kedge.errors import UnsupportedFormat
from kedge.image.formats.elf import read_elf
from kedge.tools.bundle import WrittenBundle, layout, write_bundle
from kedge.tools.bundle.write_bundle import BundledFile, find_head, pack_files

SOURCES = [*(REPOSITORY / "src/kedge/tools/bundle/head").glob("*.[ch]"), REPOSITORY / "src/kedge/system/no_libc.h"]
LOADER = b'#!/bin/sh\necho "$0"\nprintf \'%s\\n\' "$@"\n'  # in the place of the dynamic loader: it shows its words


def read_origin(path: Path) -> str:
    found = re.search(rb"kedge-bundle-head made of ([^\0]+)\0", path.read_bytes())
    return found[1].decode()


def choose_emulator(machine: str) -> list[str]:
    return [] if machine == os.uname().machine else [require_program(f"qemu-{machine}")]


@functools.cache
def make_files() -> dict[str, BundledFile]:
    """Contents that make every kind of deflate block: none that compresses, little, much, and more than one block."""
    chance = random.Random(1)
    words = [b"%d word " % number for number in range(3000)]
    return {
        layout.LOADER: BundledFile(LOADER, is_program=True, is_vital=True),
        layout.INTERPRETER: BundledFile(b"interpreter", is_program=True, is_vital=True),
        layout.START: BundledFile(b"start", is_vital=True),
        "lib/noise": BundledFile(chance.randbytes(300_000)),
        "lib/text": BundledFile(b"".join(chance.choices(words, k=100_000))),
        "lib/zeros": BundledFile(bytes(4 << 20)),
        "lib/short": BundledFile(b"x"),
        "lib/empty": BundledFile(b""),
        "lib/deep/er/é": BundledFile(b"name"),
    }


@functools.cache
def make_content(machine: str) -> tuple[WrittenBundle, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        made = write_bundle(Path(folder, "kedge"), machine, make_files())
        return made, Path(folder, "kedge").read_bytes()


def put_bundle(path: Path, machine: str) -> WrittenBundle:
    made, content = make_content(machine)
    path.write_bytes(content)
    path.chmod(0o755)
    return made


def run_head(machine: str, path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": "/nowhere", "PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(
        [*choose_emulator(machine), str(path), *words], env=environment, capture_output=True, text=True, check=False
    )


@each_row("machine", layout.MACHINES)
def test_head_is_made_of_this_source(machine: str) -> None:
    by_name = sorted(SOURCES, key=lambda path: path.name)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in by_name)).hexdigest()
    assert read_origin(find_head(machine)).startswith(f"sha256:{digest} by "), "run scripts/build-bundle-head"


@each_row("machine", layout.MACHINES)
def test_head_needs_nothing_of_the_host(machine: str) -> None:
    head = read_elf(find_head(machine))
    assert (head.needed, head.interpreter) == ((), "")
    assert find_head(machine).stat().st_size < 32 << 10


def test_head_comes_out_the_same_from_the_same_compiler(tmp_path: Path) -> None:
    for machine in layout.MACHINES:
        require_program(f"{machine}-linux-gnu-gcc")
    done = subprocess.run([REPOSITORY / "scripts/build-bundle-head", tmp_path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for machine in layout.MACHINES:
        made = tmp_path / f"head-{machine}"
        if read_origin(made) == read_origin(find_head(machine)):
            assert made.read_bytes() == find_head(machine).read_bytes()


@pytest.mark.parametrize("machine", layout.MACHINES)
def test_head_unpacks_and_starts(machine: str, tmp_path: Path) -> None:
    files = make_files()
    made = put_bundle(tmp_path / "kedge", machine)
    done = run_head(machine, tmp_path / "kedge", "exec", "an image", KEDGE_NODEDIR=f"{tmp_path}/node")
    copy = f"{tmp_path}/node/bundle/{made.digest}"
    assert done.stdout.splitlines() == [
        *(f"{copy}/so/ld.so", "--library-path", f"{copy}/so", "--argv0", f"{copy}/bin/python3"),
        *(f"{copy}/bin/interpreter", "-X", f"kedge={tmp_path}/kedge", "-IS", f"{copy}/start.pyc", "exec", "an image"),
    ], done.stderr
    for name, file in files.items():
        assert Path(copy, name).read_bytes() == file.content
        assert os.access(Path(copy, name), os.X_OK) == file.is_program or os.geteuid() == 0
    assert Path(copy, layout.PYTHON).read_bytes() == find_head(machine).read_bytes()
    assert Path(copy).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("machine", layout.MACHINES)
def test_head_hands_words_to_python(machine: str, tmp_path: Path) -> None:
    put_bundle(tmp_path / "kedge", machine)
    node = {"KEDGE_NODEDIR": f"{tmp_path}/node"}
    words = run_head(machine, tmp_path / "kedge", "python", "-c", "pass", **node).stdout.splitlines()
    assert words[-4:] == ["-X", f"kedge={tmp_path}/kedge", "-c", "pass"]
    (tmp_path / "kedge-pyxis").symlink_to("kedge")
    words = run_head(machine, tmp_path / "kedge-pyxis", "get", **node).stdout.splitlines()
    assert words[-2:] == ["pyxis", "get"]


@pytest.mark.parametrize("machine", layout.MACHINES)
def test_head_in_the_copy_is_its_python(machine: str, tmp_path: Path) -> None:
    made = put_bundle(tmp_path / "kedge", machine)
    run_head(machine, tmp_path / "kedge", KEDGE_NODEDIR=f"{tmp_path}/node")
    copy = tmp_path / f"node/bundle/{made.digest}"
    words = run_head(machine, copy / layout.PYTHON, "-c", "pass").stdout.splitlines()
    assert words[1:] == [
        *("--library-path", f"{copy}/so", "--argv0", f"{copy}/bin/python3", f"{copy}/bin/interpreter", "-c", "pass")
    ]
    (copy / layout.COMPLETE).unlink()
    broken = run_head(machine, copy / layout.PYTHON, "-c", "pass")
    assert (broken.returncode, broken.stdout) == (30, "")
    assert "start kedge again" in broken.stderr


@pytest.mark.parametrize("machine", layout.MACHINES)
def test_head_knows_by_times_what_changed_and_what_nobody_used(machine: str, tmp_path: Path) -> None:
    made = put_bundle(tmp_path / "kedge", machine)
    copies = tmp_path / "node/bundle"
    first = run_head(machine, tmp_path / "kedge", KEDGE_NODEDIR=f"{tmp_path}/node")
    (copies / made.digest / layout.LOADER).write_bytes(LOADER.replace(b"echo", b"true"))
    written = time.time() + 1
    os.utime(copies / made.digest / layout.LOADER, (written, written))  # clocks of file systems tick slowly
    for name, days in (("a" * 32, 31), ("b" * 32, 29), (f"old-{'a' * 32}-1", 31)):
        (copies / name).mkdir()
        (copies / name / layout.COMPLETE).write_text("")
        os.utime(copies / name / layout.COMPLETE, (written - days * 86400, written - days * 86400))
    again = run_head(machine, tmp_path / "kedge", KEDGE_NODEDIR=f"{tmp_path}/node")
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert {path.name for path in copies.iterdir()} == {made.digest, "b" * 32, "lock"}


@pytest.mark.parametrize("machine", layout.MACHINES)
def test_head_refuses_a_truncated_file(machine: str, tmp_path: Path) -> None:
    made = put_bundle(tmp_path / "kedge", machine)
    for size in (made.bytes - 1, find_head(machine).stat().st_size, find_head(machine).stat().st_size + 1):
        os.truncate(tmp_path / "kedge", size)
        done = run_head(machine, tmp_path / "kedge", KEDGE_NODEDIR=f"{tmp_path}/node")
        assert done.returncode == 30
        assert_says(done.stderr, "bundle/bytes-copy-again", size, made.bytes)
        put_bundle(tmp_path / "kedge", machine)


def test_writer_keeps_blocks_to_their_size() -> None:
    payload = pack_files(make_files())
    (count,) = layout.COUNT.unpack_from(payload)
    place, sizes = layout.COUNT.size + count * layout.BLOCK.size, layout.BLOCK.iter_unpack
    for size, packed in sizes(payload[layout.COUNT.size : place]):
        assert len(zlib.decompress(payload[place : place + packed], -zlib.MAX_WBITS)) == size
        place += packed
    assert (place, count > 1) == (len(payload), True)
    with pytest.raises(UnsupportedFormat, match="no bundle for riscv64"):
        find_head("riscv64")
