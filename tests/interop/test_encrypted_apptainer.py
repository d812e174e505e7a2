# SPDX-License-Identifier: BSD-3-Clause
"""Images that the real Apptainer encrypted, with a passphrase or a key, run without root; nothing is left plain."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.container.mounts.squashfuse import can_use_fuse, find_squashfuse
from tests.builders.apptainer import apptainer_folder
from tests.builders.busybox import read_busybox
from tests.builders.containers import Runner, each_role
from tests.requirements import require_program

pytestmark = [pytest.mark.peer, pytest.mark.root]
SECRET = "the passphrase of a test"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    require_program("gocryptfs")
    if can_use_fuse() or not find_squashfuse()[1]:
        pytest.skip(can_use_fuse() or "squashfuse is one of libfuse 2")
    yield from each_role("user")


@pytest.fixture(scope="module")
def images(runner: Runner) -> Path:
    """`passphrase.sif` and `key.sif`, with `private.pem` and `other.pem`, where the user can read them."""
    folder = runner.folder / "encrypted"
    folder.mkdir()
    with apptainer_folder() as peer:
        if peer.run("which", "gocryptfs", shell=True, check=False).returncode:
            pytest.skip("the real Apptainer has no gocryptfs: scripts/setup-peer installs it")
        (peer.folder / "box/bin").mkdir(parents=True)
        for name in ("etc", "tmp", "proc", "dev", "sys"):
            (peer.folder / "box" / name).mkdir()
        (peer.folder / "box/bin/sh").write_bytes(read_busybox())
        (peer.folder / "box/bin/sh").chmod(0o755)
        peer.own(peer.folder / "box")
        for name in ("private", "other"):
            _run("openssl", "genrsa", "-traditional", "-out", str(peer.folder / f"{name}.pem"), "2048")
        public = ("openssl", "rsa", "-in", str(peer.folder / "private.pem"), "-RSAPublicKey_out")
        _run(*public, "-out", str(peer.folder / "public.pem"))
        (peer.folder / "public.pem").chmod(0o644)
        build = ("apptainer", "-s", "build", "--encrypt")
        variable = f"APPTAINER_ENCRYPTION_PASSPHRASE={SECRET}"
        peer.run("env", variable, *build, "passphrase.sif", "box", shell=True)
        peer.run(*build, "--pem-path", "public.pem", "key.sif", "box", shell=True)
        for name in ("passphrase.sif", "key.sif", "private.pem", "other.pem"):
            shutil.copy(peer.folder / name, folder / name)
            (folder / name).chmod(0o644)
    return folder


def _run(*words: str) -> None:
    require_program(words[0])
    subprocess.run(words, check=True, capture_output=True)


def test_encrypted_image_runs_with_its_passphrase(runner: Runner, images: Path) -> None:
    image = str(images / "passphrase.sif")
    command = ("/bin/sh", "-c", "echo inside; pwd")
    told = runner.read("exec", "--pwd", "/tmp", image, *command, env={"APPTAINER_ENCRYPTION_PASSPHRASE": SECRET})
    assert told == "inside\n/tmp\n"
    assert runner.read("exec", "--passphrase", image, *command[:2], "echo asked", stdin=f"{SECRET}\n") == "asked\n"
    told = runner.read(
        "exec", "--pid", "--fakeroot", image, *command[:2], "echo root", env={"KEDGE_ENCRYPTION_PASSPHRASE": SECRET}
    )
    assert told == "root\n"
    assert not list((runner.folder / "node").rglob("bin")), "something of it was unpacked"


def test_encrypted_image_runs_with_its_key(runner: Runner, images: Path) -> None:
    image, command = str(images / "key.sif"), ("/bin/sh", "-c", "echo inside")
    assert runner.read("exec", "--pem-path", str(images / "private.pem"), image, *command) == "inside\n"
    told = runner.read("exec", image, *command, env={"APPTAINER_ENCRYPTION_PEM_PATH": str(images / "private.pem")})
    assert told == "inside\n"


@pytest.mark.parametrize(
    ("words", "secret", "said"),
    [
        (("passphrase.sif",), "", "is encrypted: add --passphrase or --pem-path"),
        (("passphrase.sif",), "wrong", "Password incorrect"),
        (("--pem-path", "private.pem", "passphrase.sif"), "", "is encrypted with a passphrase, not with a key"),
        (("--pem-path", "other.pem", "key.sif"), "", "is not the RSA private key that it was encrypted for"),
        (("--pem-path", "none.pem", "key.sif"), "", "none.pem"),
    ],
)
def test_encrypted_image_stays_closed_without_what_opens_it(
    runner: Runner, images: Path, words: tuple[str, ...], secret: str, said: str
) -> None:
    done = runner.run(
        "exec", *words, "/bin/sh", "-c", "echo inside", cwd=images, env={"KEDGE_ENCRYPTION_PASSPHRASE": secret}
    )
    assert (done.returncode, done.stdout) == (255, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_encrypted_image_without_gocryptfs_says_so(runner: Runner, images: Path) -> None:
    gone = 'mount --bind /dev/null $(command -v gocryptfs); exec "$@"'
    command = ["unshare", "--mount", "sh", "-ec", gone, "sh", *runner.argv("exec", str(images / "key.sif"), "true")]
    done = subprocess.run(command, env=runner.variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "gocryptfs is not installed" in done.stderr
