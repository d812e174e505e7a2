# SPDX-License-Identifier: BSD-3-Clause
"""The word that tells a rank what it is: there and back, and what is no such word."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kedge.errors import LaunchRefused
from kedge.launch.order import RankOrder
from tests.requirements import REPOSITORY

ORDER = RankOrder(
    "ranks", (2, 2), "nöde-1", 29500, 'a"\\\n', hosts=("n1", "n2"), cpus=(8, 8), is_checked=False, node=-1
)


def test_an_order_is_read_as_it_was_written() -> None:
    assert RankOrder.decode(ORDER.encode()) == ORDER


def test_an_order_is_read_the_same_without_the_parser_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_json", None)
    assert RankOrder.decode(ORDER.encode()) == ORDER


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "7", '{"contract":1}', "{} {}", '{"a":NaN}', "nonsense", '{"contract":"x\n"}', " {}"]
)
def test_what_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(LaunchRefused, match="cannot read"):
        RankOrder.decode(text)


def test_reading_an_order_loads_no_patterns_and_no_enum() -> None:
    """Each rank pays for it, and there are many."""
    code = (
        "import sys; from kedge.launch.order import RankOrder; import kedge.ops.launch.become_rank\n"
        "RankOrder.decode(sys.argv[1])\n"
        "print(*({'re', 'enum', 'json', 'collections', 'functools', 'typing', 'kedge.errors'} & {*sys.modules}))"
    )
    words = [sys.executable, "-S", "-c", code, ORDER.encode()]
    environment = {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == []
