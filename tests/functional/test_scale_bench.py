# SPDX-License-Identifier: BSD-3-Clause
"""The instruments of bench/scale: the reader of traces, and the shared file system that counts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import REPOSITORY, open_way, require_root

TRACE = """\
7 execve("/usr/bin/env", ["env"], 0x7 /* 4 vars */) = 0
7 execve("/home/ada/bin/kedge", ["kedge"], 0x7 /* 4 vars */) = 0
7 openat(AT_FDCWD</home/ada>, "/usr/lib/a.so", O_RDONLY) = 3</usr/lib/a.so>
7 openat(AT_FDCWD</home/ada>, "lib/a.py", O_RDONLY) = 3</home/ada/lib/a.py>
7 read(3</home/ada/lib/a.py>, "x"..., 4096) = 100
8 read(4<pipe:[12]>, "x"..., 4096) = 5
7 newfstatat(AT_FDCWD</home/ada>, "/home/ada/none", 0xf, 0) = -1 ENOENT (No such file or directory)
7 newfstatat(3</home/ada/lib/a.py>, "", {st_mode=S_IFREG|0644, ...}, AT_EMPTY_PATH) = 0
7 openat(5</home/ada/lib>, "b.py", O_RDONLY <unfinished ...>
8 readlinkat(AT_FDCWD</>, "/home/adam", 0xf, 4096) = -1 EINVAL (Invalid argument)
7 <... openat resumed>) = 6</home/ada/lib/b.py>
7 +++ exited with 0 +++
"""


@pytest.fixture(autouse=True)
def bench_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(REPOSITORY / "bench"))
    yield
    for name in ("file_calls", "shared_server"):
        sys.modules.pop(name, None)


def test_calls_are_counted_by_file_system() -> None:
    from file_calls import Calls, count_calls

    shared, node = count_calls(TRACE.splitlines(), "/home/ada", "/kedge")
    assert shared == Calls(named=4, opened=3, reads=1, bytes=100)
    assert node == Calls(named=2, opened=1)  # the library, and a name that only begins alike


@pytest.mark.root
def test_server_counts_what_a_client_does_not_remember(tmp_path: Path) -> None:
    from shared_server import SharedFiles

    require_root()
    (tmp_path / "text").write_text("x" * 1000)
    open_way(tmp_path)
    shared = SharedFiles(tmp_path, tmp_path)
    first, later, three = shared.run(2, [1, 1, 3], lambda _: ("cat", str(tmp_path / "text")))
    assert later.bytes == 0
    assert first.bytes == 2 * 1000  # each of two nodes reads it once
    assert 0 < later.operations < first.operations
    assert later.operations < three.operations <= 3 * later.operations  # what is asked at once may be asked once


@pytest.mark.root
def test_files_look_the_same_through_the_server(tmp_path: Path) -> None:
    from shared_server import SharedFiles

    require_root()
    (tmp_path / "text").write_text("x")
    (tmp_path / "link").symlink_to("text")
    open_way(tmp_path)
    seen = tmp_path.parent / f"{tmp_path.name}.seen"
    show = f"cd {tmp_path} && {{ stat -c '%n %i %s %Y %y %a %u %g %h %F' text link; ls; readlink link; }} >{seen}"
    SharedFiles(tmp_path, tmp_path).run(1, [1], lambda _: ("sh", "-c", show))
    through = seen.read_text()
    subprocess.run(["sh", "-c", show], check=True)
    assert through == seen.read_text()


@pytest.mark.root
def test_server_answers_no_faster_than_its_rate(tmp_path: Path) -> None:
    from shared_server import SharedFiles

    require_root()
    (tmp_path / "text").write_text("x")
    open_way(tmp_path)
    done = SharedFiles(tmp_path, tmp_path, rate=50).run(2, [4], lambda _: ("cat", str(tmp_path / "text")))[0]
    assert done.seconds >= (done.operations - 4) / 50


def test_page_and_picture_are_made_of_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    from scaling_page import PAGE, PICTURE, make_picture, read_figures, write_page

    figures = read_figures()
    assert write_page(figures, PAGE.read_text()) == PAGE.read_text(), "run scripts/make-scaling"
    assert make_picture(figures) == PICTURE.read_text(), "run scripts/make-scaling"


def test_constants_of_the_model_are_the_measured_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    from scaling_page import make_costs, read_figures

    from kedge.launch.start_model import BUNDLE, INSTALLED, STAGED

    measured = {cost.name: cost for cost in make_costs(read_figures())}
    for constant in (BUNDLE, INSTALLED, STAGED):
        found = measured[constant.name]
        for name in ("first", "later", "node_bytes"):
            assert getattr(constant, name) == pytest.approx(getattr(found, name), rel=0.2), (constant.name, name)
