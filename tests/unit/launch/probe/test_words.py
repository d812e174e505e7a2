# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

from kedge.launch.probe.words import MACHINES, find_probe, probe_words


def test_words_of_a_rank() -> None:
    words = probe_words("/proc/self/fd/9", "world", library="libmpi.so.40", task=3)
    assert words == ["/proc/self/fd/9", "world", "--library", "libmpi.so.40", "--task", "3"]
    assert probe_words("p", "pi", task=-1, numbers={"intervals": 5}) == ["p", "pi", "--intervals", "5"]


def test_words_probe_is_there_and_may_be_executed() -> None:
    for machine in MACHINES:
        assert os.access(find_probe(machine), os.X_OK)
        assert Path(find_probe(machine)).stat().st_size < 16_000
    assert find_probe("riscv64") == ""
