# SPDX-License-Identifier: BSD-3-Clause
"""The probe in images with another libc: musl, and a glibc whose libdl still was a library of its own."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
from pathlib import Path

import pytest

from kedge.launch.probe.answers import read_lines
from tests.builders.containers import Runner, as_user, give_to, make_sandbox
from tests.builders.debian_bases import find_mirror
from tests.builders.mpi_images import probe_rank
from tests.requirements import require_program
from tests.unit.launch.probe.test_program import PLAYED_MPI

DEBIAN_NAMES = {"aarch64": "arm64", "x86_64": "amd64"}
_PATIENCE = 60  # seconds


def fetch(address: str) -> bytes:
    """A file of the mirror that this host's apt is configured for; skips where it does not deliver."""
    argv = [require_program("curl"), "--silent", "--fail", "--location", "--max-time", str(_PATIENCE), address]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the mirror of this host does not deliver (curl ends with {done.returncode})")
    return done.stdout


def unpack_package(suite: str, package: str, folder: Path) -> None:
    """The files of a Debian package."""
    mirror, machine = find_mirror().rstrip("/"), DEBIAN_NAMES[os.uname().machine]
    listing = lzma.decompress(fetch(f"{mirror}/dists/{suite}/main/binary-{machine}/Packages.xz")).decode()
    found = re.search(rf"^Package: {package}\n(?:.+\n)*?Filename: (\S+)\n", listing, re.MULTILINE)
    if found is None:
        pytest.skip(f"{suite} of this host's mirror has no {package}")
    (folder.parent / "package.deb").write_bytes(fetch(f"{mirror}/{found[1]}"))
    subprocess.run([require_program("dpkg-deb"), "-x", folder.parent / "package.deb", folder], check=True)


@pytest.mark.parametrize(
    ("suite", "package"), [("bookworm", "musl"), ("bullseye", "libc6")], ids=["musl", "glibc 2.31"]
)
def test_probe_asks_mpi_with_any_libc(runner: Runner, tmp_path: Path, suite: str, package: str) -> None:
    box = make_sandbox(runner.folder / package)
    unpack_package(suite, package, box)
    (tmp_path / "mpi.c").write_text(PLAYED_MPI)
    library = box / "opt/libmpi.so.12"
    library.parent.mkdir(exist_ok=True)
    compiler = require_program("gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-nostdlib", "-o", library, tmp_path / "mpi.c"], check=True)
    give_to(runner, box)
    for command, kinds in (("version", ["version"]), ("world", ["world", "met"]), ("pi", ["pi"])):
        done = runner.call(as_user(runner.uid, probe_rank(box, command, "--library", "/opt/libmpi.so.12")))
        values = list(read_lines(done.stdout))
        assert [value["kedge"] for value in values] == kinds, done.stdout + done.stderr
