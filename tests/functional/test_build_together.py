# SPDX-License-Identifier: BSD-3-Clause
"""Builds at the same time that share steps and cache mounts, on one cache, also on a file system without xattrs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.requirements import require_program, require_root

shop = warm_shop

COUNT = 3


@pytest.fixture
def plain_disk(shop: Workshop) -> Iterator[dict[str, str]]:
    """Cache and node on a file system that has no user xattrs, so that no layer has an overlay form there."""
    require_root()
    folder = shop.runner.folder / "plain"
    folder.mkdir()
    subprocess.run([require_program("mount"), "-t", "ramfs", "ramfs", folder], check=True)
    try:
        for name in ("xdg", "node"):
            (folder / name).mkdir()
            subprocess.run(["chown", str(shop.runner.uid), folder / name], check=True)
        yield {"KEDGE_CACHEDIR": "", "XDG_CACHE_HOME": str(folder / "xdg"), "KEDGE_NODEDIR": str(folder / "node")}
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def build_together(shop: Workshop, env: dict[str, str] | None = None) -> None:
    """Build `0.Dockerfile`, `1.Dockerfile`, … all at once; each has to succeed."""
    children = [shop.begin(f"{number}.sif", f"{number}.Dockerfile", env=env) for number in range(COUNT)]
    for child in children:
        output, _ = child.communicate(timeout=110)
        assert child.returncode == 0, output


def write_recipes(shop: Workshop, mount: str, command: str) -> None:
    """Recipes that share all but the last step."""
    shop.write("seed/given", "given\n")
    for number in range(COUNT):
        text = f"{SHELL}FROM scratch AS seeds\nCOPY seed /seed\nFROM base\n"
        text += f"RUN cat /proc/sys/kernel/random/uuid > /shared\nRUN {mount} : {number}; {command}\n"
        shop.write(f"{number}.Dockerfile", text)


@pytest.mark.parametrize(
    "sharing",
    # of one directory tests/unit/image/store has all kinds
    ["locked", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("private", "shared"))],
)
def test_builds_share_steps_and_a_cache_mount(shop: Workshop, sharing: str) -> None:
    mount = f"--mount=type=cache,target=/cache,sharing={sharing},from=seeds,source=seed"
    command = "cat /cache/given && ls /cache | grep -c in- > /others; touch /cache/in-$$; sleep 1; rm /cache/in-$$; "
    write_recipes(shop, mount, f"{command} echo x >> /cache/log")
    build_together(shop)
    assert len({shop.read(f"{number}.sif", "/shared") for number in range(COUNT)}) == 1
    if sharing != "shared":  # nobody else was in the directory
        assert {shop.read(f"{number}.sif", "/others") for number in range(COUNT)} == {"0\n"}
    logs = [path.read_text() for path in (shop.runner.folder / "cache/mounts").rglob("log")]
    assert sum(len(text.split()) for text in logs) == COUNT
    assert sharing == "private" or len(logs) == 1
    assert not list((shop.runner.folder / "cache/mounts").rglob("filling*"))
    assert "Removed 0 damaged items" in shop.runner.read("cache", "verify")
    assert shop.list_builds() == []


def test_builds_on_a_disk_without_xattrs(shop: Workshop, plain_disk: dict[str, str]) -> None:
    mount = "--mount=type=cache,target=/cache,sharing=locked"
    write_recipes(shop, mount, "echo x >> /cache/log; rm /bin/nc; mkdir /new; echo y > /new/y")
    build_together(shop, plain_disk)
    assert len({shop.read(f"{number}.sif", "/shared") for number in range(COUNT)}) == 1
    assert shop.exec("0.sif", "sh", "-c", "test -e /bin/nc || cat /new/y") == "y\n"
    assert list(Path(plain_disk["XDG_CACHE_HOME"]).iterdir())
    assert "Removed 0 damaged items" in shop.runner.read("cache", "verify", env=plain_disk)
