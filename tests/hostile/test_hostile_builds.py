# SPDX-License-Identifier: BSD-3-Clause
"""Recipes, steps, contexts and bases that do their worst: a named error or an image, nothing of the host changes."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path

import pytest

from kedge.base.platform import Platform
from tests.builders.builds import SHELL, Workshop
from tests.builders.oci_archive import Entry, OciArchive
from tests.builders.old_kernels import play_refusals
from tests.builders.rows import each_row
from tests.wording import assert_says

WAYS = ("overlay", "directory")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, shop: Workshop) -> dict[str, str]:
    return choose_way(request.param, shop)


def choose_way(name: str, shop: Workshop) -> dict[str, str]:
    """The variables for a build with overlays, and without."""
    if name == "overlay":
        return {}
    return play_refusals(shop.runner.folder, "overlay", "fuse.fuse-overlayfs", "in children")


def refuse(shop: Workshop, code: int, text: str, recipe: str, env: dict[str, str] | None = None) -> str:
    """Build what has to fail, and look at what is left; returns what was said."""
    shop.write("Dockerfile", recipe)
    done = shop.start("out.sif", "Dockerfile", env=env)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "bug" not in done.stderr
    assert not (shop.context / "out.sif").exists()
    assert shop.list_builds() == []
    return done.stderr


# -- what steps do


def test_step_that_deletes_everything_deletes_nothing_of_the_host(shop: Workshop, way: dict[str, str]) -> None:
    shop.write("kept", "kept")
    shop.write("Dockerfile", f"{SHELL}RUN rm -rf /* 2>/dev/null; true\n")
    shop.build("--format", "sandbox", "out", "Dockerfile", env=way)
    assert (shop.context / "kept").read_text() == "kept"
    assert not (shop.context / "out/bin/busybox").exists()
    said = refuse(shop, 62, "/bin/sh does not exist", f"{SHELL}RUN rm -rf /* 2>/dev/null; true\nRUN true\n", way)
    assert "Dockerfile:5:1" in said


def test_step_reaches_nothing_of_the_kernel(shop: Workshop) -> None:
    names = "/proc/sys/kernel/panic /proc/sysrq-trigger /sys/kernel/uevent_helper /proc/self/oom_score_adj"
    shop.write("Dockerfile", f"{SHELL}RUN for n in {names}; do echo 17 > $n; done 2>/dev/null; rm -rf /dev/*; true\n")
    before = Path("/proc/sys/kernel/panic").read_text()
    shop.build("out.sif", "Dockerfile")
    assert Path("/proc/sys/kernel/panic").read_text() == before
    assert Path("/dev/null").is_char_device()
    assert shop.exec("out.sif", "sh", "-c", "echo x > /dev/null && echo fine") == "fine\n"


def test_closed_directories_odd_names_and_links_survive(shop: Workshop, way: dict[str, str]) -> None:
    shop.write(
        "Dockerfile",
        f"{SHELL}RUN mkdir -p /a/b && echo x > /a/b/f && chmod 000 /a/b/f /a/b /a\n"
        "RUN mkdir /d && echo 1 > \"$(printf '/d/a\\nb')\" && echo 2 > \"$(printf '/d/\\377\\001')\"\n"
        "RUN echo 1 > /one && ln /one /two && ln /bin/busybox /shell\nRUN rm /one && cat /two && ls /a/b/f\n"
        "FROM base\nCOPY --from=base /a /x\nRUN ls /x/b/f && ls -ld /a /x/b | grep -c ^d--------- | grep 2\n"
        "RUN [ $(cat /d/* | wc -l) = 2 ]\n",
    )
    shop.build("out.sif", "Dockerfile", env=way)
    assert shop.exec("out.sif", "cat", "/two") == "1\n"
    assert shop.list_builds() == []


UNFIT = (
    ("echo > /.wh.bin", 23, "mark deleted files"),
    ("mkdir /x && echo > /x/.wh..wh..opq", 23, "mark deleted files"),
    ("dd if=/dev/zero of=/var bs=1 count=1 seek=1099511627775", 23, "1,100 GB of nothing but a hole"),
    ("i=0; while [ $i -lt 900 ]; do mkdir ddddd && cd ddddd; i=$((i+1)); done; echo x > f", 30, "too long"),
)


# Both ways write a layer by the same code, which knows of the names; sizes and paths are those of either's reader
@each_row("unfit,way", [*((unfit, WAYS[0]) for unfit in UNFIT), *((unfit, WAYS[1]) for unfit in UNFIT[2:])])
def test_what_a_layer_cannot_hold_is_named_with_its_line(shop: Workshop, unfit: tuple[str, int, str], way: str) -> None:
    command, code, text = unfit
    said = refuse(shop, code, text, f"{SHELL}RUN {command}\n", choose_way(way, shop))
    assert "kedge: Dockerfile:4:1: " in said
    assert len(said.partition("kedge: ")[2]) < 2000


def test_much_output_is_bounded_on_the_screen_and_whole_in_the_log(shop: Workshop) -> None:
    shop.write("Dockerfile", f"{SHELL}RUN dd if=/dev/zero bs=1M count=16; yes abcdefg | head -c 8000000\n")
    began = time.monotonic()
    done = shop.start("--progress", "plain", "--log", "log", "out.sif", "Dockerfile")
    assert done.returncode == 0, done.stderr[-2000:]
    assert time.monotonic() - began < 60
    assert len(done.stderr) < 4 << 20
    assert_says(done.stderr, "build/rest-log-only")
    assert (shop.context / "log").stat().st_size > 24_000_000


def test_output_cannot_steer_the_terminal(shop: Workshop) -> None:
    said = refuse(shop, 91, "hello", SHELL + r"RUN printf '\033]0;x\007\033[2Jhello\r\n\033[31mred'; exit 3" + "\n")
    assert "\033" not in said
    assert "\007" not in said


# -- recipes


@each_row(
    ("name", "data", "text"),
    [
        ("Dockerfile", SHELL.encode() + b"RUN echo a\0b\n", "binary"),
        ("Dockerfile", random.Random(13).randbytes(1 << 20), "binary"),
        ("x.def", random.Random(31).randbytes(1 << 20), "binary"),
        ("x.def", b"Bootstrap: scratch\n%post\n echo a\0b\n", "binary"),
        ("Dockerfile", SHELL.encode() + b"RUN true " + b"x" * 5_000_000 + b"\n", "at most 65535"),
        ("Dockerfile", SHELL.encode() + b"ENV A=b\n" * 65_000, "65,003 instructions"),
    ],
    ids=["nul", "random", "random-definition", "nul-definition", "long-line", "many-lines"],
)
def test_recipes_that_are_none_are_refused_soon(shop: Workshop, name: str, data: bytes, text: str) -> None:
    (shop.context / name).write_bytes(data)
    began = time.monotonic()
    done = shop.start("out.sif", name)
    assert done.returncode == 90, done.stderr[-2000:]
    assert text in done.stderr
    assert len(done.stderr) < 10_000
    assert time.monotonic() - began < 60


# -- contexts


def test_context_gives_nothing_from_outside(shop: Workshop) -> None:
    for name, target in {"absolute": "/etc/passwd", "up": "../" * 12 + "etc/passwd", "top": "/"}.items():
        (shop.context / name).symlink_to(target)
    refuse(shop, 90, "is a link to /etc/passwd, which is not in the build context", f"{SHELL}COPY absolute /x\n")
    refuse(shop, 90, "which is not in the build context", f"{SHELL}COPY up /x\n")
    refuse(shop, 90, "does not exist in the build context", f"{SHELL}COPY top/etc/passwd /x\n")
    refuse(shop, 90, "does not exist in the build context", f"{SHELL}COPY {'../' * 12}etc/passwd /x\n")
    shop.write("Dockerfile", f"{SHELL}COPY . /x\nRUN [ $(readlink /x/absolute) = /etc/passwd ] && ! test -s /x/up\n")
    shop.build("out.sif", "Dockerfile")


def test_pipes_are_copied_and_sockets_and_closed_files_named(shop: Workshop) -> None:
    os.mkfifo(shop.context / "pipe")
    shop.write("closed", "x").chmod(0)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(shop.context / "socket"))
        refuse(shop, 90, "is a socket", f"{SHELL}COPY socket /x\n")
        assert ".dockerignore" in refuse(shop, 30, "Permission denied", f"{SHELL}COPY . /x\n")
        shop.write(".dockerignore", "closed\n")
        shop.write("Dockerfile", f"{SHELL}COPY . /x\nRUN test -p /x/pipe && ! test -e /x/socket\n")
        shop.build("out.sif", "Dockerfile")


def test_large_context_is_not_walked_into(shop: Workshop) -> None:
    (shop.context / "data").mkdir(mode=0o700)  # of another user: whoever looks inside fails
    for name in range(1000):
        os.close(os.open(shop.context / f"data/{name}", os.O_CREAT | os.O_WRONLY, 0o600))
    shop.write("wanted", "1")
    shop.write(".dockerignore", "data\nout*\n")
    os.chown(shop.context / "data", 0, 0)
    shop.write("Dockerfile", f"{SHELL}COPY . /x\nRUN ls /x\n")
    os.chown(shop.context / "data", 0, 0)
    (shop.context / "data").chmod(0o700)
    began = time.monotonic()
    shop.build("out.sif", "Dockerfile")
    assert time.monotonic() - began < 30


# -- bases


ATTACKS = ("dots", "link", "whiteout by link", "whiteout by dots")


# Overlays and directories are unpacked by code of their own; names with dots are refused before, by what reads the tar
@each_row("attack,way", [*((each, WAYS[0]) for each in ATTACKS), *((each, WAYS[1]) for each in ATTACKS[1:3])])
def test_base_cannot_write_or_delete_outside(shop: Workshop, attack: str, way: str) -> None:
    victim = shop.write("outside/victim", "safe").parent
    link = Entry("link", target=str(victim))
    attacks = {
        "dots": [Entry("../../escaped", b"x")],
        "link": [link, Entry("link/escaped", b"x"), Entry("link/victim", b"x")],
        "whiteout by link": [link, Entry("link/.wh.victim", b""), Entry("link/.wh..wh..opq", b"")],
        "whiteout by dots": [Entry("../.wh.images", b"")],
    }
    OciArchive(attacks[attack], {}, Platform.host().architecture).write(shop.context / "base.tar")
    shop.write("x.def", "Bootstrap: oci-archive\nFrom: base.tar\n%files\nbusybox /bin/sh\n%post\necho done\n")
    done = shop.start("--force", "out.sif", "x.def", env=choose_way(way, shop))
    assert done.returncode in (0, 21, 22), done.stderr
    assert "bug" not in done.stderr
    assert [path.name for path in victim.iterdir()] == ["victim"]
    assert (victim / "victim").read_text() == "safe"
    outside = [path for path in shop.runner.folder.rglob("escaped") if "/images/" not in str(path)]
    assert not outside
    assert shop.list_builds() == []
