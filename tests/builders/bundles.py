# SPDX-License-Identifier: BSD-3-Clause
"""A bundle of this kedge, and hosts that have no Python: root file systems that a program is started in as a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.builders.busybox import read_busybox
from tests.builders.containers import USER
from tests.builders.debian_bases import make_debian
from tests.builders.old_kernels import below_4_18
from tests.builders.once import make_once
from tests.requirements import REPOSITORY, require_root

_COMMAND = "/usr/local/bin/kedge"
_MUCH = 400 << 20
_ENTER = REPOSITORY / "tests/programs/enter_root.py"


def make_bundle() -> Path:
    """The file, made once in a run of the tests."""
    return make_once("kedge", _bundle)


def _bundle(path: Path) -> None:
    subprocess.run([sys.executable, "-m", "kedge", "--quiet", "bundle", path], check=True)


@dataclass(frozen=True, slots=True)
class BareHost:
    """A root file system with the bundle in it, and a home."""

    root: Path
    is_old: bool = False  # the kernel answers as RHEL 8's does

    @property
    def command(self) -> Path:
        """The bundle, seen from outside."""
        return self.root / _COMMAND.lstrip("/")

    @property
    def home(self) -> Path:
        """The user's home, seen from outside."""
        return self.root / "home/user"

    def copy(self, place: str = "var/tmp") -> Path:
        """The unpacked copy below a directory, seen from outside."""
        return next(each for each in (self.root / place).glob(f"kedge-{USER}/bundle/*") if len(each.name) == 32)

    def argv(self, *words: str, shm: int = _MUCH, program: str = _COMMAND) -> list[str]:
        """The command line that starts kedge there as the user."""
        entered = [sys.executable, str(_ENTER), str(self.root), str(USER), str(shm), program, *words]
        return below_4_18(entered) if self.is_old else entered

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the user's shell would have."""
        return {"HOME": "/home/user", "USER": "user", "PATH": "/usr/local/bin:/usr/bin:/bin", **(more or {})}

    def run(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        shm: int = _MUCH,
        program: str = _COMMAND,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.argv(*words, shm=shm, program=program),
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_busybox_host(folder: Path) -> BareHost:
    """A root with busybox and nothing else; `bash`, which job scripts name, is its shell."""
    require_root()
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/busybox").write_bytes(read_busybox())
    (folder / "bin/busybox").chmod(0o755)
    listed = subprocess.run([folder / "bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if name not in ("busybox", "bash"):
            (folder / "bin" / name).symlink_to("busybox")
    (folder / "bin/bash").write_text('#!/bin/sh\nexec /bin/sh "$@"\n')
    (folder / "bin/bash").chmod(0o755)
    (folder / "etc").mkdir()
    (folder / "etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\nuser:x:{USER}:{USER}::/home/user:/bin/sh\n")
    (folder / "etc/group").write_text(f"root:x:0:\nuser:x:{USER}:\n")
    return _finish(folder)


def make_debian_host(folder: Path, suite: str) -> BareHost:
    """A minimal Debian."""
    archive = make_debian(suite)
    folder.mkdir()
    subprocess.run(["tar", "-xpf", archive, "-C", folder, "--exclude=./dev/*"], check=True)
    with (folder / "etc/passwd").open("a") as file:
        file.write(f"user:x:{USER}:{USER}::/home/user:/bin/sh\n")
    return _finish(folder)


def _finish(folder: Path) -> BareHost:
    folder.chmod(0o755)
    for name in ("proc", "sys", "dev", "mnt", "usr/local/bin", "home/user", "var", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(0o1777)
    os.chown(folder / "home/user", USER, USER)
    host = BareHost(folder)
    shutil.copy2(make_bundle(), host.command)
    return host
