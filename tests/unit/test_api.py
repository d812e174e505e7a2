# SPDX-License-Identifier: BSD-3-Clause
"""The Python interface: light to import, typed results, errors of our own, and the guide's example."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kedge
from kedge.base.image_format import ImageFormat
from kedge.base.release import VERSION
from kedge.builds.request import StepLabel, StepOutcome
from kedge.errors import (
    FileProblem,
    InvalidRecipe,
    InvalidReference,
    InvalidSetting,
    NothingFits,
    OutputExists,
    SiteProblem,
    UnknownGpu,
    UsageError,
)
from tests.requirements import REPOSITORY, require_user_namespaces

GUIDE = REPOSITORY / "docs/guides/python.md"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEDGE_CACHEDIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KEDGE_NODEDIR", str(tmp_path / "node"))


def test_api_import_is_light_and_has_names() -> None:
    program = "import sys, kedge; print(sorted(m for m in sys.modules if m.startswith('kedge')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['kedge']"
    assert kedge.__version__ == VERSION
    assert {"pull", "push", "convert", "inspect", "Pulled"} <= set(dir(kedge))
    with pytest.raises(AttributeError, match="no attribute 'fly'"):
        kedge.fly  # type: ignore[attr-defined]  # noqa: B018


def test_api_build_writes_an_image_or_refuses() -> None:
    Path("Dockerfile").write_text("FROM scratch\nCOPPY a b\n")
    with pytest.raises(InvalidRecipe, match="Dockerfile:2:1"):
        kedge.build("Dockerfile", "a.sif")
    with pytest.raises(UsageError, match="pull='often' is not valid"):
        kedge.build("Dockerfile", "a.sif", options=kedge.BuildOptions(pull="often"))
    assert not Path("a.sif").exists()

    class Watcher:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def begin(self, label: StepLabel) -> None:
            self.seen.append(f"begin {label.number}/{label.total}")

        def output(self, label: StepLabel, data: bytes) -> None:
            self.seen.append(f"{label.number}: {data!r}")

        def end(self, outcome: StepOutcome) -> None:
            self.seen.append(outcome.state)

    Path("hello").write_text("hello\n")
    Path("Dockerfile").write_text("ARG NAME\nFROM scratch\nARG NAME\nCOPY hello /$NAME\n")
    watcher = Watcher()
    options = kedge.BuildOptions(labels={"a": "b"})
    built = kedge.build("Dockerfile", "a.sif", build_args={"NAME": "there"}, options=options, display=watcher)
    assert isinstance(built, kedge.BuildResult)
    assert (built.path, built.size) == (Path("a.sif"), Path("a.sif").stat().st_size)
    assert watcher.seen == ["begin 1/1", "done"]
    again = kedge.build("Dockerfile", Path("b.sif"), build_args={"NAME": "there"}, options=options)
    assert (again.digest, [step.state for step in again.steps]) == (built.digest, ["cached"])
    assert (kedge.inspect("a.sif").oci_config or {}).get("Labels") == {"a": "b"}


def test_api_pull_convert_inspect_agree() -> None:
    pulled = kedge.pull("host:sh", "a.sif", threads=1)
    assert isinstance(pulled, kedge.Pulled)
    assert (pulled.output, pulled.form, pulled.size) == (Path("a.sif"), ImageFormat.SIF, Path("a.sif").stat().st_size)
    again = kedge.pull("host:sh", Path("b.sif"), force=True)
    assert Path("b.sif").read_bytes() == Path("a.sif").read_bytes()
    assert again.size == pulled.size
    assert kedge.inspect(Path("a.sif")) == kedge.inspect("a.sif")
    assert kedge.inspect("a.sif").report == kedge.inspect("host:sh").report
    made = kedge.convert("a.sif", "oci:layout:name")
    assert (made.form, made.size) == (ImageFormat.OCI, None)
    assert kedge.inspect("oci:layout:name").oci_config == kedge.inspect("a.sif").oci_config
    assert kedge.pull("host:sh").output == Path("sh.sif")
    assert kedge.pull("host:sh", format="sandbox").output == Path("sh")
    assert Path("sh/.singularity.d/runscript").exists()


def test_api_failures_are_kedge_errors() -> None:
    with pytest.raises(FileProblem):
        kedge.inspect("missing.sif")
    with pytest.raises(FileProblem):
        kedge.convert(Path("missing"), "x.sif")
    with pytest.raises(InvalidReference):
        kedge.pull("docker:ubuntu")
    with pytest.raises(InvalidSetting, match="threds"):
        kedge.pull("host:sh", "x.sif", threds=1)
    with pytest.raises(InvalidSetting):
        kedge.pull("host:sh", "x.sif", threads="many")
    with pytest.raises(UsageError, match="'ova'"):
        kedge.pull("host:sh", "x", format="ova")
    with pytest.raises(UsageError):
        kedge.push("x.sif", "host:sh")
    Path("x.sif").touch()
    with pytest.raises(OutputExists):
        kedge.pull("host:sh", "x.sif")


def test_api_explain_tells_what_is_in_an_image_and_whether_it_runs() -> None:
    found = kedge.explain(
        "nvcr.io/nvidia/pytorch:22.03-py3", gpu="A100", driver="535.104.05", architecture="amd64", offline=True
    )
    assert isinstance(found, kedge.Explanation)
    assert (found.traits.cuda.value, found.traits.os.value) == ("11.6.1.005", "Ubuntu 20.04.4")
    assert found.verdict is not None
    assert found.verdict.runs
    assert found.requests == 0
    kedge.pull("host:sh", "sh.sif")
    assert kedge.explain(Path("sh.sif"), gpu="A100", driver="535").traits.name == "sh.sif"


def test_api_tags_recommend_and_search_without_a_network() -> None:
    listing = kedge.tags(
        "pytorch",
        kedge.TagQuery(since="24.01", runs_here=True, architecture="amd64"),
        gpu="V100",
        driver="550",
        offline=True,
    )
    assert isinstance(listing, kedge.TagListing)
    assert "24.03-py3" in {row.tag for row in listing.rows}
    assert "25.10-py3" not in {row.tag for row in listing.rows}
    assert [row.tag for row in kedge.tags("pytorch:24.03-py3", offline=True).rows] == ["24.03-py3"]
    advice = kedge.recommend("pytorch", gpu="V100", driver="535.104.05", architecture="amd64", offline=True)
    assert isinstance(advice, kedge.Advice)
    assert (advice.name, advice.command) == (
        "nvcr.io/nvidia/pytorch:23.10-py3",
        "kedge pull docker://nvcr.io/nvidia/pytorch:23.10-py3",
    )
    open_advice = kedge.recommend("pytorch", gpu="V100", architecture="amd64", offline=True)
    assert open_advice.best is None
    assert {each.branch: each.tag for each in open_advice.recommendation.by_driver}[535] == "23.10-py3"
    found = kedge.search("pytorch", offline=True)
    assert isinstance(found, kedge.SearchResult)
    assert "nvcr.io/nvidia/pytorch" in {entry.name for entry in found.entries}


def test_api_diagnose_and_choosing_failures() -> None:
    diagnosis = kedge.diagnose(checks=["locale", "memory"], offline=True)
    assert isinstance(diagnosis, kedge.Diagnosis)
    assert {each.check for each in diagnosis.findings} == {"locale", "memory"}
    with pytest.raises(UnknownGpu):
        kedge.explain("nvcr.io/nvidia/pytorch:22.03-py3", gpu="Voodoo2", offline=True)
    with pytest.raises(NothingFits, match="is known to have kernels for Tesla K40"):
        kedge.recommend("pytorch", gpu="K40", driver="470", offline=True)
    with pytest.raises(UsageError):
        kedge.search(" ", offline=True)
    with pytest.raises(SiteProblem):
        kedge.diagnose(site="nowhere-at-all", offline=True)
    with pytest.raises(InvalidSetting, match="threds"):
        kedge.tags("pytorch", offline=True, threds=1)


def test_api_progress_hears_what_is_done() -> None:
    heard: list[str] = []

    class Listener:
        def task(self, label: str, total: int | None, unit: str = "bytes") -> object:
            heard.append(label)
            raise AssertionError("nothing is downloaded here")

        def note(self, message: str) -> None:
            heard.append(message)

        detail = warn = note

    kedge.pull("host:sh", "x.sif", progress=Listener())  # type: ignore[arg-type]
    assert any("packed" in line for line in heard)


def test_api_guide_examples_run(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        require_user_namespaces()
    example = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sh.sif exists already" in done.stdout
    assert "0 hello" in done.stdout
    assert {"sh.sif", "sh.sqsh", "layout"} <= {path.name for path in tmp_path.iterdir()}
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (example,) = [text for text in examples if "kedge.explain(" in text]
    program = f"import kedge\n{example}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "11.6.1.005" in done.stdout
    assert "nvcr.io/nvidia/pytorch:23.10-py3\n" in done.stdout


def test_api_guide_calls_have_the_parameters_that_they_are_shown_with() -> None:
    trees = [ast.parse(text) for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    seen = 0
    for call in calls:
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "kedge":
            positional = [None for _ in call.args]
            named = {each.arg: None for each in call.keywords if each.arg}
            inspect.signature(getattr(kedge, call.func.attr)).bind(*positional, **named)
            seen += 1
    assert seen >= 7
