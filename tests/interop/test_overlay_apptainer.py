# SPDX-License-Identifier: BSD-3-Clause
"""Overlays that kedge makes, written by the real Apptainer, and the other way round.

Needs root and the Apptainer tree (marker: peer), which lacks the programs for ext3: the host's are lent to it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.apptainer import PEER_USER, Apptainer, apptainer_folder
from tests.builders.containers import Runner, give_to, make_runner, make_sandbox
from tests.builders.servers import wait_until_unused
from tests.requirements import require_program, require_user_namespaces

pytestmark = [pytest.mark.peer, pytest.mark.root]

LENT = {"fuse2fs": "fuse2fs", "mkfs.ext3": "mke2fs"}  # the name it is called by, and the host's program


class Pair:
    """Apptainer and kedge, the same user in the same directory."""

    def __init__(self, apptainer: Apptainer, runner: Runner) -> None:
        self.apptainer = apptainer
        self.runner = runner
        self.folder = apptainer.folder
        self.image = str(give_to(runner, make_sandbox(self.folder / "sandbox")))
        self.path = f"PATH={lend_programs(self.folder / 'lent')}:/usr/bin:/bin:/usr/sbin:/sbin"

    def theirs(self, *words: str, check: bool = True) -> str:
        done = self.apptainer.run("env", self.path, "apptainer", "-s", *words, shell=True, check=check)
        return done.stdout if check else done.stderr

    def ours(self, *words: str) -> str:
        return self.runner.read(*words)


def lend_programs(folder: Path) -> Path:
    """Copies of programs of the host with the libraries that the tree may lack."""
    (folder / "lib").mkdir(parents=True)
    for name, program in LENT.items():
        path = require_program(program)
        shutil.copy(path, folder / "lib")
        listing = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"=> (/\S+)", listing):
            if not re.search(r"/lib(c|m|dl|rt|pthread)\.so", library):
                shutil.copy(library, folder / "lib")
        script = f'#!/bin/sh\nLD_LIBRARY_PATH={folder}/lib exec -a {name} {folder}/lib/{program} "$@"\n'
        (folder / name).write_text(script.replace("#!/bin/sh", "#!/bin/bash"))
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    require_user_namespaces()
    for name in ("fuse2fs", "fuse-overlayfs", "mkfs.ext3"):
        require_program(name)
    with apptainer_folder() as apptainer:
        yield Pair(apptainer, make_runner(apptainer.folder, PEER_USER))


@pytest.mark.parametrize("maker", ["ours", "theirs"])
def test_both_write_and_read_an_image_that_either_made(pair, maker):
    path = str(pair.folder / f"{maker}.img")
    getattr(pair, maker)("overlay", "create", "--create-dir", "/made", path)
    for name in ("theirs", "ours"):
        getattr(pair, name)("exec", "--overlay", path, pair.image, "sh", "-c", f"echo {name} > /made/{name}")
        wait_until_unused(Path(path))
    for read in (pair.ours, pair.theirs):
        words = ("exec", "--overlay", f"{path}:ro", pair.image, "sh", "-c", "cat /made/theirs /made/ours")
        assert read(*words) == "theirs\nours\n"
        wait_until_unused(Path(path))


def test_files_that_apptainer_deleted_stay_deleted_with_kedge(pair):
    """Apptainer itself shows them again when the overlay is read-only."""
    path = pair.folder / "deleted.img"
    folder = Path(pair.image) / "opt"
    folder.mkdir()
    (folder / "gone").write_text("")
    give_to(pair.runner, folder)
    pair.theirs("overlay", "create", str(path))
    pair.theirs("exec", "--overlay", str(path), pair.image, "sh", "-c", "rm /opt/gone; touch /opt/kept")
    wait_until_unused(path)
    assert pair.ours("exec", "--overlay", f"{path}:ro", pair.image, "ls", "-A", "/opt") == "kept\n"
    wait_until_unused(path)


def test_the_partition_that_kedge_adds_to_a_sif_is_apptainers_kind(pair):
    path = pair.folder / "image.sif"
    pair.ours("convert", pair.image, str(path))
    pair.ours("overlay", "create", str(path))
    assert re.search(r"FS \(Ext3/Overlay/", pair.theirs("sif", "list", str(path)))
    pair.theirs("exec", "--writable", str(path), "sh", "-c", "echo theirs > /theirs")
    wait_until_unused(path)
    assert pair.ours("exec", str(path), "cat", "/theirs") == "theirs\n"
    wait_until_unused(path)
    pair.ours("exec", "--writable", str(path), "sh", "-c", "echo ours > /ours")
    wait_until_unused(path)
    assert pair.theirs("exec", str(path), "cat", "/ours") == "ours\n"
    wait_until_unused(path)


def test_a_folder_is_shared_as_overlay_with_what_was_deleted(pair):
    folder = pair.folder / "overlay"
    folder.mkdir()
    pair.apptainer.own(folder)
    for name in ("one", "two"):
        (Path(pair.image) / "etc" / name).write_text("")
    give_to(pair.runner, Path(pair.image) / "etc")
    pair.ours("exec", "--overlay", str(folder), pair.image, "sh", "-c", "rm /etc/one; echo ours > /ours")
    pair.theirs(
        "exec", "--overlay", str(folder), pair.image, "sh", "-c", "rm /etc/two; cat /ours; echo theirs > /theirs"
    )
    for read in (pair.ours, pair.theirs):
        names = read("exec", "--overlay", str(folder), pair.image, "ls", "/etc").split()
        assert not {"one", "two"} & set(names)
    assert pair.ours("exec", "--overlay", f"{folder}:ro", pair.image, "cat", "/theirs") == "theirs\n"


def test_a_writer_keeps_the_other_out(pair):
    path = pair.folder / "held.img"
    pair.ours("overlay", "create", str(path))
    hold = ["exec", "--overlay", str(path), pair.image, "sh", "-c", "echo up; cat"]
    command, environment = pair.runner.argv(*hold), pair.runner.variables()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=pair.folder, text=True, **pipes) as holder:
        assert holder.stdout.readline() == "up\n"
        refused = pair.apptainer.run(
            "env", pair.path, "apptainer", "exec", "--overlay", path, pair.image, "true", shell=True, check=False
        )
        holder.communicate("")
    assert refused.returncode == 255
    assert "lock" in refused.stderr, refused.stderr
    wait_until_unused(path)
