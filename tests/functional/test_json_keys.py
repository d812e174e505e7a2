# SPDX-License-Identifier: BSD-3-Clause
"""The keys that `--json` prints are those of docs/reference/json.md, no more and no fewer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.main import main
from kedge.tools.bench.sweep import list_scaling
from kedge.tools.jupyter.kernel_specs import Kernel, describe_kernel
from kedge.tools.jupyter.lab import LabPlan
from tests.requirements import REPOSITORY
from tests.unit.answers.pages.test_bench_plot import RANKS as SWEPT
from tests.unit.tools.bench.test_record import RECORD

PAGE = (REPOSITORY / "docs/reference/json.md").read_text()
GPU = ("--gpu", "A100", "--offline")
OPEN = ("totals", "not_searched", "machine", "seconds", "images")  # keys below them are names, or told elsewhere


def read_page(heading: str) -> set[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def list_keys(value: Any, path: str = "") -> Iterator[str]:
    """Where each value stands; facts and verdicts are values, as the page tells of them apart."""
    if isinstance(value, dict) and path.rpartition(".")[2] not in ("verdict", "other", *OPEN):
        if value.keys() == {"value", "source"}:
            yield path
        for name, each in value.items() if value.keys() != {"value", "source"} else ():
            yield from list_keys(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict) and path not in OPEN:
        for each in value:
            yield from list_keys(each, f"{path}[]")
    else:
        yield path


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    main(["--json", *words])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KEDGE_CACHEDIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "words",
    [
        ("search", "pytorch", "--offline"),
        ("tags", "pytorch", *GPU, "--driver", "535", "--limit", "3"),
        ("explain", "nvcr.io/nvidia/pytorch:24.03-py3", *GPU, "--driver", "535"),
        ("doctor", "--offline", "--only", "locale"),
        ("data",),
    ],
    ids=lambda words: words[0],
)
def test_json_keys_are_those_of_the_page(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert set(list_keys(ask(capsys, *words))) == read_page(f"kedge {words[0]}")


def test_json_keys_of_a_diagnosis(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "log").write_text("MemoryError\n")
    shown = set(list_keys(ask(capsys, "diagnose", str(tmp_path / "log"))))
    assert shown - {"jobs"} == {key for key in read_page("kedge diagnose") if not key.startswith("jobs[]")}


def test_json_keys_of_builds_and_recipes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEDGE_NODEDIR", str(tmp_path / "node"))
    monkeypatch.chdir(tmp_path)
    Path("Dockerfile").write_text("FROM scratch\nCOPY data /\nENV TOKEN=abcdefgh12345678\n")
    Path("data").write_text("data")
    monkeypatch.setattr(
        "kedge.cli.guard.run_guarded", lambda _name, work, _report: work()
    )  # whose child prints past capsys
    planned = ask(capsys, "build", "--dry-run", "-t", "tools", ".")
    assert set(list_keys(planned)) == read_page("kedge build --dry-run")
    assert set(list_keys(ask(capsys, "build", "-t", "tools", "."))) == read_page("kedge build")
    shown = ask(capsys, "recipe", "show", "Dockerfile")
    assert {key for key in list_keys(shown) if not key.startswith("syntax.")} | {"syntax"} == read_page(
        "kedge recipe show"
    )
    for words, heading in ((("recipe", "lint", "Dockerfile"), "lint"), (("image", "list"), "list")):
        capsys.readouterr()
        main(["--json", *words])
        listed = json.loads(capsys.readouterr().out)
        assert {f"[].{key}" for item in listed for key in item} == read_page(f"kedge {words[0]} {heading}")


def test_json_keys_of_a_recommendation_with_and_without_a_driver(capsys: pytest.CaptureFixture[str]) -> None:
    known = ask(capsys, "recommend", "pytorch", *GPU, "--driver", "535")
    unknown = ask(capsys, "recommend", "pytorch", *GPU)
    assert known.keys() == unknown.keys()
    assert known["best"].keys() == known["other"].keys()
    both = {*list_keys(known), *list_keys(unknown)} - {"best", "by_driver"}  # which are null and empty in one of them
    assert both == read_page("kedge recommend")


def test_json_keys_of_a_verdict_are_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    explained = ask(capsys, "explain", "nvcr.io/nvidia/pytorch:24.03-py3", *GPU, "--driver", "535")["verdict"]
    best = ask(capsys, "recommend", "pytorch", *GPU, "--driver", "535")["best"]["verdict"]
    assert set(list_keys(explained)) == set(list_keys(best)) == read_page("Verdict")


def test_json_keys_of_benches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(RECORD.as_dict()))
    assert set(list_keys(RECORD.as_dict())) == read_page("kedge bench")
    compared = ask(capsys, "bench", "compare", str(path), str(path))
    assert set(list_keys(compared)) == read_page("kedge bench compare")
    many = ask(capsys, "bench", "compare", str(path), str(path), str(path))
    assert many.keys() == {"bench", "first", "comparisons"}
    assert set(list_keys(many["comparisons"][1])) == {"name", *read_page("kedge bench compare")}
    swept = list_scaling(SWEPT)[0].as_dict()
    assert {f"scaling[].{key}" for key in swept} == read_page("kedge bench, swept")


def test_json_keys_of_kernels_and_servers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "share/jupyter/kernels"
    kernel = Kernel("k", "K", str(folder / "k"), "/a.sif", "3.11", "6.29", "", job=False)
    (folder / "k").mkdir(parents=True)
    (folder / "k/kernel.json").write_text(json.dumps(describe_kernel(kernel, [], {})))
    assert set(list_keys(ask(capsys, "jupyter", "list", "--prefix", str(tmp_path)))) == read_page("kedge jupyter list")
    assert set(LabPlan.__match_args__) == read_page("kedge jupyter lab")
