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

LONG = 40_000
SECONDS = 5.0  # of the processor; each needs less than one, and as it was, ten and more


def read_toml() -> None:
    with pytest.raises(InvalidJob):
        parse_description(f'a = x{" " * LONG}"\n', Path("kedge.toml"))


def read_exports() -> None:
    derive_section(InspectReport(environment={"/.singularity.d/env/90-environment.sh": "\n" * 4 * LONG}))


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(read_toml, id="kedge.toml"),
        pytest.param(read_exports, id="environment script"),
        pytest.param(lambda: redact("a." * LONG), id="message"),
        pytest.param(lambda: read_history_variables([f"ARG {'A' * LONG}"] * 100), id="history"),
        pytest.param(lambda: parse_challenges(["a" * LONG + "(", "a(" * LONG, 'a="' * LONG] * 10), id="challenge"),
        pytest.param(lambda: parse_netrc("".join(('"\\' * LONG, "$(" * LONG, '"a' * LONG))), id="netrc"),
    ],
)
def test_long_text_is_read_in_a_moment(work: Callable[[], object]) -> None:
    begun = time.process_time()
    work()
    assert time.process_time() - begun < SECONDS


def test_variables_of_a_history_are_found_as_before() -> None:
    lines = ["ARG PYVER=3.12", "RUN |2 A_B=1 C='x y' /bin/sh", '/bin/sh -c #(nop)  ENV NAME="a b" OTHER=2']
    assert read_history_variables(lines) == {"PYVER": "3.12", "A_B": "1", "C": "x", "NAME": "a b", "OTHER": "2"}
