# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recipe`: recipes are shown, converted and checked without building anything."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.main import main
from tests.wording import assert_says

DOCKERFILE = """ARG V=12
FROM debian:$V AS builder
RUN make && \\
    make install
FROM alpine AS unused
COPY --from=nowhere:1 /x /y
FROM debian:$V-slim
ENV A=1
COPY --from=builder /a /b
"""
DEFINITION = """# comment
Bootstrap: docker
From: debian:{{ V }}
Stage: builder

%arguments
    V=12
%post
    make

Bootstrap: docker
From: debian:12-slim

%files from builder
    /a /b
%environment
    export A=1
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "tools.def").write_text(DEFINITION)
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["recipe", *words])
    captured = capfd.readouterr()
    return status, captured.out, captured.err


def ask(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    status, out, _ = run(capfd, *words, "--json")
    assert status == 0
    return json.loads(out)


def test_show_lists_stages_and_steps(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "show", "Dockerfile")
    assert status == 0
    assert out.splitlines() == [
        "Dockerfile: Dockerfile, 3 stages",
        "",
        "[builder] docker debian:12",
        "      3  RUN make && make install",
        "",
        "[unused] docker alpine not built: nothing needs it",
        "      6  COPY --from=nowhere:1 /x /y",
        "",
        "[stage-2] docker debian:12-slim, needs [builder]",
        "      8  ENV A=1",
        "      9  COPY --from=builder /a /b",
    ]


def test_show_json_has_the_graph_and_the_syntax(capfd: pytest.CaptureFixture[str]) -> None:
    graph = ask(capfd, "show", "Dockerfile", "--build-arg", "V=13", "--build-arg", "W=1")
    assert [stage["base"] for stage in graph["stages"]] == ["debian:13", "alpine", "debian:13-slim"]
    assert [stage["is_used"] for stage in graph["stages"]] == [True, False, True]
    assert graph["unused_arguments"] == ["W"]
    assert graph["syntax"]["instructions"][1]["name"] == "FROM"
    graph = ask(capfd, "show", "tools.def")
    assert [stage["base"] for stage in graph["stages"]] == ["debian:12", "debian:12-slim"]
    assert graph["stages"][1]["needs"] == [0]
    assert graph["syntax"][0]["header"]["bootstrap"] == "docker"


def test_show_target_ends_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert len(ask(capfd, "show", "Dockerfile", "--target", "builder")["stages"]) == 1
    assert run(capfd, "show", "Dockerfile", "--target", "bilder")[0] == 90


def test_show_syntax_as_other_parsers_print_it(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "show", "--ast", "Dockerfile")
    assert status == 0
    assert '(copy ["--from=builder"] "/a" "/b")' in out.splitlines()
    assert ask(capfd, "show", "--ast", "tools.def")[1]["header"]["from"] == "debian:12-slim"
    status, _, err = run(capfd, "show", "--ast", "tools.def")
    assert (status, "--json" in err) == (2, True)


def test_recipes_come_from_standard_input(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DEFINITION.encode())))
    assert ask(capfd, "show", "-")["kind"] == "definition"


MISTAKES: list[tuple[str, bytes | None, int, str]] = [
    ("bad", b"hello\n", 90, "neither a definition file nor a Dockerfile"),
    ("Dockerfile", b"FROM a\nRUNN x\n", 90, "Dockerfile:2:1"),
    ("x.def", b"Bootstrap: docker\nFrom: a\n%pots\nx\n", 90, "x.def:3"),
    ("Dockerfile", b"", 90, "no instruction"),
    ("Dockerfile", b"\0\1\2", 90, "binary"),
    ("gone/x", None, 30, "gone/x"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_their_place(place, capfd, mistake):
    name, data, status, shown = mistake
    if data is not None:
        (place / name).write_bytes(data)
    result, _, err = run(capfd, "show", name)
    assert (result, shown in err) == (status, True), err
    assert "Traceback" not in err


def test_convert_writes_the_other_kind(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "convert", "tools.def")
    assert status == 0
    assert "COPY --from=builder /a /b" in out
    (place / "out").write_text("mine")
    assert run(capfd, "convert", "tools.def", "-o", "out")[0] == 31
    assert run(capfd, "convert", "tools.def", "-F", "-o", "out")[0] == 0
    assert "FROM" in (place / "out").read_text()
    assert ask(capfd, "convert", "tools.def")["kind"] == "dockerfile"
    status, _, err = run(capfd, "convert", "--to", "definition", "tools.def")
    assert (status, "already" in err) == (2, True)


def test_lint_reports_findings_with_reason_and_better_line(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "Dockerfile").write_text("FROM nvcr.io/nvidia/pytorch\nRUN pip install -U numpy\n")
    status, out, _ = run(capfd, "lint", "Dockerfile")
    assert status == 1
    assert "Dockerfile:1:6: warning:" in out
    assert_says(out.splitlines(), "build/better-pip-install-no-deps-u")
    main(["--json", "recipe", "lint", "--rule", "pip-replaces", "Dockerfile"])
    (finding,) = json.loads(capfd.readouterr().out)
    assert (finding["line"], finding["rule"], bool(finding["reason"])) == (2, "pip-replaces", True)


def test_lint_has_nothing_to_say_about_a_good_recipe(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "Dockerfile").write_text(
        "FROM nvcr.io/nvidia/pytorch:24.03-py3\n# kedge: ignore=pip-replaces\nRUN pip install -U numpy\n"
    )
    status, out, err = run(capfd, "lint", "Dockerfile")
    assert (status, out, "no problems found" in err) == (0, "", True)


def test_recipe_alone_shows_help(capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capfd)
    assert (status, "convert" in err) == (2, True)
