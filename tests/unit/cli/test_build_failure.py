# SPDX-License-Identifier: BSD-3-Clause
"""What is shown of a step that failed."""

from __future__ import annotations

from pathlib import Path

from kedge.builds.request import BuildRequest, StepLabel, StepOutcome
from kedge.cli.build_failure import describe_failure, describe_problem, show_excerpt
from kedge.cli.build_steps import FailedStep
from kedge.cli.progress import leave_plain
from kedge.errors import BuildFailed, KedgeError

TEXT = "FROM a\nENV B=1\nRUN make && \\\n    make install\nCMD x\nUSER y\nEXPOSE 1\n"


def test_failure_shows_output_and_the_marked_lines(tmp_path: Path) -> None:
    recipe = tmp_path / "Dockerfile"
    recipe.write_text(TEXT)
    failed = FailedStep(StepOutcome(StepLabel("", 2, 3, "RUN make"), 1.5, "failed"), ("cc: error", ""))
    problem = BuildFailed("step failed", context={"file": "Dockerfile", "line": "3"})
    lines = list(describe_failure(failed, problem, BuildRequest(str(recipe)), leave_plain))
    assert lines == [
        "failed after 1.5s: [2/3] RUN make", "  | cc: error", "  |", "Dockerfile:3", "     1 | FROM a",
        "     2 | ENV B=1", ">    3 | RUN make && \\", ">    4 |     make install", "     5 | CMD x",
        "     6 | USER y",
    ]  # fmt: skip


def test_excerpt_of_a_recipe_from_standard_input() -> None:
    request = BuildRequest("-", text=b"FROM a\nRUN \033[2Jx\n")
    lines = list(show_excerpt({"file": "-", "line": "2"}, request, leave_plain))
    assert lines[-1] == ">    2 | RUN \\x1b[2Jx"


def test_excerpt_without_a_place_is_empty(tmp_path: Path) -> None:
    request = BuildRequest(str(tmp_path / "gone"))
    assert list(show_excerpt({}, request, leave_plain)) == []
    assert list(show_excerpt({"file": "gone", "line": "7"}, request, leave_plain)) == []
    assert list(show_excerpt({"file": "gone", "line": "x"}, request, leave_plain)) == []


def test_excerpt_of_a_section_shows_its_lines() -> None:
    body = "".join(f"    line {number}\n" for number in range(20))
    request = BuildRequest("-", text=f"Bootstrap: x\n%post\n    a\n    b\n\n%test\n    c\n%help\n{body}".encode())
    lines = list(show_excerpt({"file": "-", "line": "2"}, request, leave_plain))
    assert lines == ["-:2", "     1 | Bootstrap: x", ">    2 | %post", "     3 |     a", "     4 |     b"]
    assert len(list(show_excerpt({"file": "-", "line": "8"}, request, leave_plain))) == 1 + 2 + 1 + 12


def test_a_base_that_failed_shows_what_its_program_printed() -> None:
    request = BuildRequest("-", text=b"Bootstrap: debootstrap\n")
    problem = KedgeError("failed", context={"file": "-", "line": "1", "output": "E: no mirror\nE: \x1b[2J"})
    lines = list(describe_problem(problem, request, leave_plain))
    assert lines[0] == "  | E: no mirror"
    assert "\x1b" not in lines[1]
    assert lines[-1] == ">    1 | Bootstrap: debootstrap"
