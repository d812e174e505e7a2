# SPDX-License-Identifier: BSD-3-Clause
"""The probe's words and its answers."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as some

from kedge.launch.probe.answers import read_answers, read_failures, read_lines
from kedge.launch.probe.words import MACHINES, find_probe, probe_words
from tests.wording import assert_begins


def test_words_of_a_rank_and_its_program() -> None:
    words = probe_words("/proc/self/fd/9", "world", library="libmpi.so.40", task=3)
    assert words == ["/proc/self/fd/9", "world", "--library", "libmpi.so.40", "--task", "3"]
    assert probe_words("p", "pi", task=-1, numbers={"intervals": 5}) == ["p", "pi", "--intervals", "5"]
    for machine in MACHINES:
        assert os.access(find_probe(machine), os.X_OK)
        assert Path(find_probe(machine)).stat().st_size < 16_000
    assert find_probe("riscv64") == ""


TEXT = """\
Loading modules ...
1: {"kedge":"world","host":"n1","pid":7,"task":1,"rank":1,"size":2}
0: {"kedge":"world","host":"n1","pid":6,"task":0,"rank":0,"size":2}
0: {"kedge":"met","host":"n1","pid":6,"task":0,"rank":0,"size":2}
{"kedge":"failure","host":"n2","pid":9,"task":2,"reason":"the image has no MPI library in its library path"}
[1,1]<stdout>:{"kedge":"world","host":"n
{"kedge":["no text"]}
"""


def test_answers_are_found_with_reasons_of_failures() -> None:
    first, second = read_answers(TEXT)
    assert (first.task, first.rank, first.size, first.host, first.pid, first.has_met) == (0, 0, 2, "n1", 6, True)
    assert (second.task, second.rank, second.has_met) == (1, 1, False)
    (failure,) = read_failures(TEXT.splitlines())
    assert (failure.task, failure.host) == (2, "n2")
    assert_begins(failure.reason, "compat/image-no-mpi-library")


@given(some.text(some.sampled_from('{"kedge:world,rank0size1[]\n\\u '), max_size=200))
def test_answers_survive_any_text(text: str) -> None:
    read_answers(text + '\n{"kedge":"world","rank":true,"size":"x","host":5}' + text)
    assert all(isinstance(each["kedge"], str) for each in read_lines(text))
