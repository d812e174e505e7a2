# SPDX-License-Identifier: BSD-3-Clause
"""Layers of builds that were damaged in the cache: noticed, dropped and made again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.wording import assert_says

shop = warm_shop

BIG = "RUN seq 30000 > /big\n"


def find_layer(shop: Workshop, least: int, most: int) -> Path:
    blobs = [path for path in (shop.runner.folder / "cache/blobs").rglob("*") if path.is_file()]
    (layer,) = [path for path in blobs if least < path.stat().st_size < most]
    return layer


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("forgets_node", [False, True])
def test_build_makes_a_damaged_layer_again(shop: Workshop, forgets_node: bool) -> None:
    shop.write("Dockerfile", SHELL + BIG + "RUN echo one > /one\n")
    assert shop.states("out.sif", ".") == ["cached", "cached", "done", "done"]
    damage(find_layer(shop, 20_000, 200_000))
    if forgets_node:
        shutil.rmtree(shop.runner.folder / "node/images")
    shop.write("Dockerfile", SHELL + BIG + "RUN echo two > /one\n")
    done = shop.start("out2.sif", ".")
    assert done.returncode == 0, done.stderr
    assert_says(done.stderr, "build/layer-cache-damaged-makes-again")
    numbers = "".join(f"{number}\n" for number in range(1, 30001))
    assert shop.read("out2.sif", "/one", "/big") == f"two\n{numbers}"
    assert shop.states("out3.sif", ".") == ["cached"] * 4
    assert not shop.list_builds()
