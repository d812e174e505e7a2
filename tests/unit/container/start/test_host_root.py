# SPDX-License-Identifier: BSD-3-Clause
"""The root of the host, kept open where no name leads to it; and that of an image, held, and made again if gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.container import start_container as find_image
from kedge.container.mounting import Root
from kedge.errors import FileProblem
from kedge.system import libc
from tests.requirements import require_user_namespaces


def test_stowed_descriptors_are_open_and_in_no_list(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    stowed = libc.stow_descriptor(os.open(tmp_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    added = {path.name for path in Path("/proc/self/fd").iterdir()} - before
    assert added == {str(stowed)}
    assert not os.get_inheritable(stowed)
    assert str(Path(f"/proc/self/fd/{stowed}").readlink()).startswith("socket:")
    for _ in range(3):  # it can be had again and again
        found = libc.fetch_descriptor(stowed)
        assert not os.get_inheritable(found)
        assert [path.name for path in Path(f"/proc/self/fd/{found}").iterdir()] == ["file"]
        os.close(found)
    os.close(stowed)


def test_fetching_from_nothing_is_an_error() -> None:
    with Path(os.devnull).open("rb") as file, pytest.raises(OSError, match="non-socket"):
        libc.fetch_descriptor(file.fileno())


def test_host_root_leads_out_of_a_new_root(tmp_path: Path) -> None:
    require_user_namespaces()
    code = (
        "import os, sys; from kedge.system import libc; from kedge.container.mounting import HostRoot; "
        "host_root = HostRoot(); libc.unshare(0x10000000); os.chroot(sys.argv[1]); os.chdir('/'); "
        "print(os.listdir('/')); "
        "pid = os.fork(); host_root.restore(); print(os.path.exists('/proc/self/stat')); pid and os.waitpid(pid, 0)"
    )
    (tmp_path / "inside").touch()
    done = subprocess.run([sys.executable, "-u", "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("['inside']\n")
    assert done.stdout.count("True") == 2


def test_change_directory_refuses_what_cannot_be_reached(tmp_path: Path) -> None:
    require_user_namespaces()
    (tmp_path / "root/folder").mkdir(parents=True)
    code = (
        "import os, sys; from kedge.system import libc; from kedge.container.mounting import change_directory; "
        "libc.unshare(0x10000000 | 0x20000); libc.mount('/proc', sys.argv[1] + '/proc', '', 4096 | 16384); "
        "file = os.open('/', os.O_PATH); os.chroot(sys.argv[1]); os.chdir('/'); change_directory('/folder'); "
        "print(os.getcwd())\n"
        "try: change_directory(f'/proc/self/fd/{file}')\n"
        "except PermissionError as problem: print(problem.strerror, os.getcwd())"
    )
    (tmp_path / "root/proc").mkdir()
    words = [sys.executable, "-c", code, str(tmp_path / "root")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "/folder\nit is not in the container /\n"


def test_a_root_that_is_held_or_mounted_needs_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter((-1, -1, 7))
    made: list[Root] = []
    monkeypatch.setattr(find_image, "hold_image", lambda folder: next(answers))
    root = find_image.find_held(lambda: Root("folder", "unpacked", "/node/root"), made.append, "image.sif")
    assert (root.folder, len(made)) == ("/node/root", 2)
    monkeypatch.setattr(find_image, "hold_image", lambda folder: pytest.fail("nothing is to be held"))
    assert (
        find_image.find_held(lambda: Root("squashfuse", "mounted"), lambda root: None, "image.sif").way == "squashfuse"
    )


def test_a_root_that_is_always_gone_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Root] = []
    monkeypatch.setattr(find_image, "hold_image", lambda folder: -1)
    with pytest.raises(FileProblem, match="was unpacked 3 times") as caught:
        find_image.find_held(lambda: Root("folder", "unpacked", "/node/root"), made.append, "image.sif")
    assert len(made) == 3
    assert "KEDGE_NODEDIR" in str(caught.value.hint)
