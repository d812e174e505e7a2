# SPDX-License-Identifier: BSD-3-Clause
"""What tests, scripts and benchmarks ask the machine for: scripts/setup-system installs it, or every Debian has it."""

from __future__ import annotations

import fnmatch
import functools
import re
from pathlib import Path

import pytest

from tests.architecture.asked_programs import Asked, read_folder, read_shell
from tests.architecture.test_repository import tracked_files
from tests.requirements import REPOSITORY

# What the smallest Debian has (debootstrap --variant=minbase): by package, as far as it is asked for.
MINIMAL = {
    "bash": "bash",
    "coreutils": "basename cat chgrp chmod chown chroot comm cp cut date dd df dirname du env expr head id install"
    " ln ls md5sum mkdir mkfifo mknod mktemp mv nice nohup nproc od paste printenv readlink realpath rm rmdir seq"
    " sha256sum sleep sort split stat sync tail tee timeout touch tr true truncate tty uname uniq wc whoami yes",
    "dash": "sh",
    "debconf": "debconf-set-selections",
    "dpkg": "dpkg dpkg-deb dpkg-query",
    "apt": "apt-cache apt-config apt-get",
    "findutils": "find xargs",
    "grep": "grep",
    "gzip": "gzip",
    "libc-bin": "getent ldconfig ldd",
    "mawk": "awk",
    "sed": "sed",
    "mount": "losetup",
    "util-linux": "pivot_root setsid",
}
# What others bring, and what is done without.
ELSEWHERE = {
    "python": "of the virtual environment",
    "uv": "of the virtual environment: pyproject.toml",
    "kedge": "of the virtual environment",
    "apptainer": "scripts/bench measures it where it is; tests have it from scripts/setup-peer",
    "ch-run": "bench/start measures it where it is",
    "systemctl": "scripts/setup-system uses it where it is",
    "google-chrome": "another name of Chromium",
    "chromium-browser": "another name of Chromium",
}
# Names that the code computes: what they can be.
COMPUTED = {
    ("bench/cold_tools.py", "program"): "skopeo umoci mksquashfs",
    ("bench/tools", "name"): "bash sh python3 perl",
    ("tests/builders/mpi_images.py", "LAUNCHERS[family][0]"): "mpirun.openmpi mpirun.mpich",
    ("tests/builders/mpi_images.py", "name"): "mpirun.openmpi mpirun.mpich",
    ("tests/builders/mpi_images.py", "program"): "mpirun.openmpi mpirun.mpich",
    ("tests/builders/pytorch_standin.py", "name"): "mpirun.openmpi",
    ("tests/cluster/slurm_cluster.py", "words[0]"): "bash scontrol sinfo",
    ("tests/cluster/test_allocations.py", "program"): "mpirun.openmpi mpiexec.mpich",
    ("tests/cluster/test_launch_mpi_modes.py", "f'mpicc.{family}'"): "mpicc.openmpi mpicc.mpich",
    ("tests/cluster/test_launch_mpi_modes.py", "word"): "mpirun.openmpi mpirun.mpich",
    ("tests/functional/test_cli_completion.py", "shell"): "zsh tcsh fish",
    ("tests/functional/test_build_bootstrap.py", "name"): "debootstrap mmdebstrap",
    ("tests/functional/test_launch.py", "f'mpicc.{family}'"): "mpicc.openmpi mpicc.mpich",
    ("tests/functional/test_launch_ranks.py", "compiler"): "cc mpicc.openmpi",
    ("tests/functional/test_mpi.py", "f'mpicc.{family}'"): "mpicc.openmpi mpicc.mpich",
    ("tests/interop/test_encrypted_apptainer.py", "words[0]"): "openssl",
    ("tests/interop/test_mpi_ranks.py", "f'mpicc.{name}'"): "mpicc.openmpi mpicc.mpich",
    ("tests/interop/test_mpi_ranks.py", "f'mpirun.{mpi}'"): "mpirun.openmpi mpirun.mpich",
    ("tests/interop/test_overlay_apptainer.py", "program"): "fuse2fs fuse-overlayfs",
    ("tests/interop/test_reflink.py", "f'mkfs.{request.param}'"): "mkfs.btrfs mkfs.xfs",
    ("tests/programs/make_layers_of_changes.py", "FUSE"): "fuse-overlayfs",
    ("tests/unit/tools/bundle/test_head.py", "f'qemu-{machine}'"): "qemu-aarch64 qemu-x86_64",
    ("tests/unit/tools/bundle/test_head.py", "f'{machine}-linux-gnu-gcc'"): "x86_64-linux-gnu-gcc",
    ("tests/unit/launch/probe/test_program.py", "f'{machine}-linux-gnu-gcc'"): "aarch64-linux-gnu-gcc",
    ("tests/unit/system/test_memory_program.py", "f'qemu-{machine}'"): "qemu-aarch64 qemu-x86_64",
    ("tests/unit/container/environment/test_env_scripts.py", "name"): "bash sh",
}
READ = ("tests/", "scripts/", "bench/")
ASKING = ("tests/requirements.py", "tests/architecture/asked_programs.py")
# Run by hand, on another machine; recorded; inside of containers; what asks for the names of others.
APART = ("tests/gpu/", "tests/golden/", "scripts/demo-files/", *ASKING)
UNKNOWN = ("no-such-program", "./")  # what must not be there


def read_set_up(text: str) -> set[str]:
    """The programs and files that setup-system looks for."""
    return {entry.partition("|")[0] for entry in re.findall(r"'([^'\s|]+\|[^'|]+)'", text)}


@functools.cache
def list_asked() -> list[Asked]:
    """Of all sources; those without a suffix are scripts."""
    shown = {path: str(path.relative_to(REPOSITORY)) for path in tracked_files() if path.suffix in ("", ".py", ".sh")}
    read = [path for path, name in shown.items() if name.startswith(READ) and not name.startswith(APART)]
    return read_folder(REPOSITORY, read)


def list_missing(asked: list[Asked], installed: set[str]) -> list[str]:
    """Who asks for something that neither set-up nor a smallest Debian brings."""
    known = {*" ".join(MINIMAL.values()).split(), *ELSEWHERE, *installed}
    missing = []
    for each in asked:
        can_be = COMPUTED.get((each.place, each.name), "?").split() if each.is_computed else [each.name]
        for name in can_be:
            names = {name, f"/usr/bin/{name}", re.sub(r"^/(usr/)?s?bin/", "", name)}
            if not names & known and not any(fnmatch.fnmatch(name, entry) for entry in installed):
                missing.append(f"{each.place}: {name if name != '?' else f'{each.name}: which? (COMPUTED)'}")
    return [line for line in missing if not line.partition(": ")[2].startswith(UNKNOWN)]


def test_what_is_asked_for_is_what_set_up_installs() -> None:
    asked = list_asked()
    assert len(asked) > 300, "programs are asked for in a way that is not read any more"
    assert list_missing(asked, read_set_up((REPOSITORY / "scripts/setup-system").read_text())) == []


@pytest.mark.parametrize("name", ["mmdebstrap", "buildah", "mkfs.xfs", "fish", "/usr/lib/python3/dist-packages/pip"])
def test_a_line_that_set_up_lacks_is_told(name: str) -> None:
    installed = read_set_up((REPOSITORY / "scripts/setup-system").read_text())
    assert name in installed
    assert any(line.endswith(f": {name}") for line in list_missing(list_asked(), installed - {name}))


def test_computed_names_are_still_computed() -> None:
    asked = {(each.place, each.name) for each in list_asked() if each.is_computed}
    assert sorted(set(COMPUTED) - asked) == []


def test_commands_of_scripts_are_read(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        '#!/bin/bash\n# curl\nif gpg --list; then A=1 sort "$(wc -l x)" | tail; fi # tar\necho "sed" \'awk\'\n'
        "own() { cut -d: ; }\nown <<END\nzstd\nEND\nwords=(xz x)\n"
    )
    assert read_shell(script.read_text()) == {"gpg", "sort", "wc", "tail", "cut"}
