# SPDX-License-Identifier: BSD-3-Clause
"""An image, a server or a file wants to keep the processor busy: texts whose search takes the square of their size."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.cli.redaction import redact
from kedge.errors import InvalidJob
from kedge.image.clean_config import read_history_variables
from kedge.image.formats.singularityd.derive_config import derive_section
from kedge.image.formats.singularityd.inspect_report import InspectReport
from kedge.image.registry.auth import parse_challenges
from kedge.image.registry.credentials import parse_netrc
from kedge.jobs.description import parse_description
from kedge.jobs.scripts.convert import convert_script
from kedge.jobs.scripts.reader import read_script
from kedge.jobs.scripts.rules import check_script
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row

LONG = 40_000
SECONDS = 5.0  # of the processor; each needs less than one, and as it was, ten and more


def read_toml() -> None:
    with pytest.raises(InvalidJob):
        parse_description(f'a = x{" " * LONG}"\n', Path("kedge.toml"))


def read_exports() -> None:
    derive_section(InspectReport(environment={"/.singularity.d/env/90-environment.sh": "\n" * 4 * LONG}))


TEXTS: dict[str, Callable[[], object]] = {
    "kedge.toml": read_toml,
    "environment script": read_exports,
    "message": lambda: redact("a." * LONG),
    "history": lambda: read_history_variables([f"ARG {'A' * LONG}"] * 100),
    "challenge": lambda: parse_challenges(["a" * LONG + "(", "a(" * LONG, 'a="' * LONG] * 10),
    "netrc": lambda: parse_netrc("".join(('"\\' * LONG, "$(" * LONG, '"a' * LONG))),
}


@each_row("name", TEXTS)
def test_long_text_is_read_in_a_moment(name: str) -> None:
    begun = time.process_time()
    TEXTS[name]()
    assert time.process_time() - begun < SECONDS


def test_variables_of_a_history_are_found_as_before() -> None:
    lines = ["ARG PYVER=3.12", "RUN |2 A_B=1 C='x y' /bin/sh", '/bin/sh -c #(nop)  ENV NAME="a b" OTHER=2']
    assert read_history_variables(lines) == {"PYVER": "3.12", "A_B": "1", "C": "x", "NAME": "a b", "OTHER": "2"}


# -- batch scripts that nobody would write

SIZE = 1 << 15
HEAD = "#!/bin/bash\n#SBATCH -N 1\n"
PIECES = {
    "one word": "a",
    "directives": "#SBATCH -N 1\n",
    "options": "#SBATCH " + "-v " * 40 + "\n",
    "words": " -- singularity",
    "calls": "singularity exec $A a\n",
    "variables": "A1=b\n",
    "exports": "export A1=b\n",
    "commands": "$(",
    "braces": "${",
    "backquotes": "`",
    "quotes": '"',
    "here documents": "cat <<E\n",
    "redirections": "<",
    "brackets": "(",
    "placeholders": " <a",
    "underscores": "a_",
}


@EVERY
@each_row("name", PIECES)
def test_scripts_cost_no_more_than_their_size(name: str, is_every: bool) -> None:
    piece, times = PIECES[name], 4 if is_every else 1
    text = HEAD + piece * (times * SIZE // len(piece)) + "\nsingularity exec x.sif a\n"
    began = time.process_time()
    script = read_script(text)
    check_script(script)
    convert_script(script, target="pbs")
    assert time.process_time() - began < 4 * times  # squares of the size would be many times that


def test_scripts_with_one_endless_directive_are_read() -> None:
    began = time.process_time()
    assert read_script(HEAD + '#SBATCH -J "' + "a" * SIZE + '"\n').live[1].value == "a" * SIZE
    assert len(read_script(HEAD + "#SBATCH " + "-v " * SIZE + "\n").live) == SIZE + 1
    assert time.process_time() - began < 5
