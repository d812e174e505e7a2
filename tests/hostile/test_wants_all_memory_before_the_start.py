# SPDX-License-Identifier: BSD-3-Clause
"""An image wants all memory or time of the login node: its scripts are read before anything is contained."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.container.env_scripts import Entrypoint, NotPlain, Variables, resolve_oci_words, run_script
from kedge.system.views import DirectoryView
from tests.builders.rows import each_row

LONG = "A=aaaaaaaaaaaaaaaa\n" + "A=$A$A\n" * 13  # the longest value that is allowed
MANY = "$A" * 2000


@pytest.fixture
def memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20, f"{peak >> 20} MiB"


@each_row("text", [f"B=x{MANY}", f'B="{MANY}"', f"export B=${{C:-{MANY}}}", f'if [ -n "{MANY}" ]; then\nfi'])
def test_values_in_values_do_not_fill_the_memory(memory: None, text: str) -> None:
    with pytest.raises(NotPlain):
        run_script(f"{LONG}{text}\n", Variables(), None)


def test_words_of_an_entrypoint_do_not_fill_the_memory(memory: None) -> None:
    script = f"#!/bin/sh\nOCI_ENTRYPOINT='\"x{MANY}\"'\nOCI_CMD=''\n"
    environ = {"A": "a" * 131_072}
    with pytest.raises(NotPlain):
        resolve_oci_words(Entrypoint(["x"], script=script), Variables(environ).lookup, is_literal=False)


def test_scripts_that_source_each_other_come_to_an_end(tmp_path: Path) -> None:
    folder = tmp_path / ".singularity.d"
    folder.mkdir()
    for number in range(1, 8):
        (folder / f"{number}.sh").write_text(f". /.singularity.d/{number + 1}.sh\n" * 1000)
    (folder / "8.sh").write_text("A=1\n")
    with pytest.raises(NotPlain):
        run_script(". /.singularity.d/1.sh\n", Variables(), DirectoryView(str(tmp_path)))
