# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recommend`: the tag for a GPU and driver, or a queue, of those the registry still has. Needs openssl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.main import main
from kedge.errors import NothingFits, SiteProblem, UnknownGpu, UsageError
from tests.fakes.http_server import Reply
from tests.fakes.ngc import NgcSite, open_ngc

V100 = ("--gpu", "V100", "--driver", "535.104.05")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    with open_ngc(tmp_path_factory.mktemp("ngc")) as site:
        yield site


@pytest.fixture
def ngc(shared: NgcSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NgcSite:
    shared.lead(monkeypatch, tmp_path)
    return shared


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    status = main(["recommend", "--json", *words])
    printed = capsys.readouterr()
    assert status == 0, printed
    document: dict[str, Any] = json.loads(printed.out)
    return document


def test_recommend_gives_the_newest_that_runs_natively(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "pytorch", *V100]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "nvcr.io/nvidia/pytorch:23.10-py3"
    assert any("is the newest that runs natively" in line for line in lines)
    assert lines[-1] == "  get:   kedge pull docker://nvcr.io/nvidia/pytorch:23.10-py3"
    assert any(line.startswith("  newer: nvcr.io/nvidia/pytorch:24.") for line in lines)
    assert "'pytorch' is taken as nvcr.io/nvidia/pytorch" in printed.err
    assert len(ngc.registry.server.seen("GET .*/tags/list")) == 1
    assert not ngc.registry.server.seen("/manifests/")


def test_recommend_leaves_out_tags_that_are_deleted(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "pytorch", *V100)["best"]["tag"] == "23.10-py3"
    held = ngc.registry.manifests.pop(("nvidia/pytorch", "23.10-py3"))
    try:
        document = ask(capsys, "pytorch", *V100)
    finally:
        ngc.registry.manifests["nvidia/pytorch", "23.10-py3"] = held
    assert document["best"]["tag"] < "23.10-py3"
    assert document["best"]["outcome"] == "native"
    assert document["is_from_registry"]


def test_recommend_tells_of_tags_that_no_table_knows(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.registry.add_image("nvidia/pytorch", "27.01-py3", [b"x"])
    try:
        document = ask(capsys, "pytorch", *V100)
    finally:
        del ngc.registry.manifests["nvidia/pytorch", "27.01-py3"]
    assert document["newer"] == ["27.01-py3"]
    assert any(
        "27.01-py3 is newer, but not in kedge's tables: 'kedge data update'" in each for each in document["notes"]
    )
    assert document["best"]["tag"] == "23.10-py3"


def test_recommend_without_the_registry_uses_the_tables(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.registry.server.fail("tags/list", times=99, reply=Reply(503))
    document = ask(capsys, "pytorch", *V100)
    assert not document["is_from_registry"]
    assert any("kedge's tables are used instead" in note for note in document["notes"])
    ngc.registry.server.log.clear()
    offline = ask(capsys, "pytorch", *V100, "--offline")
    assert offline["reference"] == document["reference"]
    assert not ngc.registry.server.log


def test_recommend_for_a_queue_of_a_site(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, "pytorch", "--on", "zih-alpha:alpha", "--driver", "550")
    assert "zih-alpha" in document["target"]
    assert document["best"]["outcome"] == "native"
    assert document["tag"] == document["best"]["tag"]
    assert document["by_driver"] == []
    assert main(["recommend", "pytorch", "--on", "zih-alpha:nowhere"]) == SiteProblem.exit_code


def test_recommend_without_a_driver_says_the_tag_of_each_branch(
    ngc: NgcSite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "pytorch", "--gpu", "V100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "nvcr.io/nvidia/pytorch: the tag depends on the driver of Tesla V100, which is not known"
    assert "  driver 535 (CUDA 12.2): 23.10-py3" in lines
    assert lines[-1] == "  get:   kedge pull docker://nvcr.io/nvidia/pytorch:TAG"
    (find,) = [line for line in lines if line.startswith("  find:  ")]
    assert all(word in find for word in ("kedge doctor", "nvidia-smi", "--driver"))
    document = ask(capsys, "pytorch", "--gpu", "V100")
    assert [document[name] for name in ("tag", "reference", "command", "best")] == [None] * 4
    assert {"branch": 535, "cuda": "12.2", "tag": "23.10-py3", "outcome": "native"} in document["by_driver"]


def test_recommend_for_a_queue_without_a_driver_claims_no_tag(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, "pytorch", "--on", "zih-alpha:alpha")
    assert document["tag"] is None
    assert len({each["tag"] for each in document["by_driver"]}) > 1
    assert not any("driver of the nodes" in note for note in document["notes"])  # the sentence says it


def test_recommend_of_a_match(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cuda", "--gpu", "A100", "--driver", "550", "--match")
    assert ask(capsys, *words, "*-base-*")["reference"] == "nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
    assert ask(capsys, *words, "*-cudnn-devel-*")["reference"] == "nvcr.io/nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"
    assert main(["recommend", *words, "nothing*"]) == NothingFits.exit_code


def test_recommend_where_nothing_fits_says_why(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "pytorch", "--gpu", "K40", "--driver", "470"]) == NothingFits.exit_code
    printed = capsys.readouterr()
    assert "have had no kernels for Tesla K40" in printed.err
    assert "kedge tags nvcr.io/nvidia/pytorch" in printed.err
    assert main(["--json", "recommend", "pytorch", "--gpu", "K40"]) == NothingFits.exit_code
    assert json.loads(capsys.readouterr().out)["error"] == "nothing-fits"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["docker.io/library/ubuntu", *V100], NothingFits.exit_code, "know no tags of docker.io/library/ubuntu"),
        (["pytroch", *V100], NothingFits.exit_code, "did you mean 'pytorch'?"),
        (["pytorch", "--gpu", "Voodoo2"], UnknownGpu.exit_code, "Voodoo2"),
        (["pytorch", "--driver", "new"], UsageError.exit_code, "no version of an NVIDIA driver"),
        ([], UsageError.exit_code, "IMAGE"),
    ],
)
def test_recommend_wrong_use_asks_nobody(
    ngc: NgcSite, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    assert main(["recommend", *words]) == status
    assert said in capsys.readouterr().err
    assert not ngc.registry.server.log
