# SPDX-License-Identifier: BSD-3-Clause
"""The real Apptainer runs images of `host:` programs, names outputs as we do, and converts archives that we wrote."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.image.formats.oci.writer import write_docker_archive, write_layout, write_oci_archive
from tests.builders.oci_images import make_image
from tests.requirements import require_peer

pytestmark = [pytest.mark.peer, pytest.mark.root]
Peer = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A directory that the other user of the peer's tree can read and write."""
    with tempfile.TemporaryDirectory(prefix="kedge-peer-", dir="/var/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="module")
def peer(folder: Path) -> Peer:
    script = require_peer()

    def run(*argv: str, program: str = "apptainer") -> subprocess.CompletedProcess[str]:
        start = [str(script), "run", "-d", str(folder), "--", program, *argv]
        return subprocess.run(start, capture_output=True, text=True, cwd=folder, check=False, timeout=120)

    return run


def test_apptainer_runs_programs_of_this_machine(folder: Path, peer: Peer) -> None:
    pull = [sys.executable, "-m", "kedge", "pull", "--quiet"]
    subprocess.run([*pull, str(folder / "tools.sif"), "host:bash,cat"], check=True, timeout=120)
    subprocess.run([*pull, str(folder / "bash.sif"), "host:bash"], check=True, timeout=120)
    done = peer("exec", "tools.sif", "bash", "-c", "cat /etc/nsswitch.conf; echo $BASH_VERSION >&2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("passwd: files\n")
    done = peer("run", "bash.sif", "-c", "echo entry point")
    assert done.stdout == "entry point\n", done.stderr


@pytest.mark.parametrize("kind", ["oci", "oci-archive", "docker-archive"])
def test_apptainer_converts_what_we_write(folder: Path, peer: Peer, kind: str) -> None:
    image = make_image([{"etc/a": b"1"}, {"b": b"2"}], architecture=Platform.host().architecture)
    path = folder / f"made-{kind}"
    if kind == "oci":
        write_layout(path, [image])
    else:
        with path.open("w+b") as file:
            (write_oci_archive if kind == "oci-archive" else write_docker_archive)(file, [image])
    done = peer("pull", "--force", f"{kind}.sif", f"{kind}:{path}")
    assert done.returncode == 0, done.stderr
    assert (folder / f"{kind}.sif").stat().st_size > 4096


NAMED = (
    "docker://localhost:1/a/name:tag",
    "docker://localhost:1/name",
    "docker://localhost:1/name@sha256:" + "a" * 64,
    "oras://localhost:1/name:tag",
    "oci:layout",
    "oci:layout:tag",
    "oci-archive:image.tar",
    "oci-archive:image.tar:tag",
    "docker-archive:image.tar",
    "docker-daemon:name:tag",
    "https://localhost:1/folder/image.sif",
    "library://localhost:1/entity/collection/name:tag",
)


def test_apptainer_chooses_the_same_output_names(folder: Path, peer: Peer) -> None:
    """A pull stops at an output that exists before it asks any registry, and says its name."""
    for text in NAMED:
        (folder / Reference.parse(text).default_name()).touch()
    script = "\n".join(
        f"apptainer pull {shlex.quote(text)} 2>&1 | grep 'already exists' || echo none" for text in NAMED
    )
    said = peer("-c", script, program="sh").stdout.splitlines()
    for text, line in zip(NAMED, said, strict=True):
        assert f'Image file already exists: "{Reference.parse(text).default_name()}"' in line, text
