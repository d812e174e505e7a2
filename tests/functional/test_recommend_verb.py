# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recommend`: the tag for a GPU and driver, or a queue, of those the registry still has. Needs openssl."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.base.frozen import replace
from kedge.cli.main import main
from kedge.compat.tables.load import Tables, load_tables
from kedge.errors import NothingFits, SiteProblem, UnknownGpu, UsageError
from tests.builders.gpu_hosts import make_host
from tests.builders.rows import each_row
from tests.fakes.http_server import Reply
from tests.fakes.ngc import NgcSite, open_ngc
from tests.wording import assert_reads, assert_says

V100 = ("--gpu", "V100", "--driver", "535.104.05", "--arch", "amd64")


H200_OLD = ("--gpu", "H200", "--driver", "515")


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


def test_recommend_takes_only_tags_with_what_is_needed(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("pytorch", "--needs", "pytorch>=2.3", "--needs", "python=3.10", "--gpu", "A100", "--driver", "550.54.15")
    document = ask(capsys, *words, "--arch", "amd64", "--offline")
    assert document["reference"] == "nvcr.io/nvidia/pytorch:24.05-py3"
    assert_says(document["notes"], "recommend/only-tags-known-pytorch-python")
    assert any(note.startswith("of 6 tags it is unknown (PyTorch: 5, Python: 6)") for note in document["notes"])
    assert any("NVIDIA's build from before" in note for note in document["notes"])
    assert ask(capsys, "pytorch", *V100, "--offline")["reference"] != document["reference"]


def test_recommend_says_of_how_many_tags_a_need_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "pytorch", "--needs", "python=3.11", *V100, "--offline"]) == 82
    told = capsys.readouterr().err
    assert_says(told, "recommend/no-tag-known", "nvcr.io/nvidia/pytorch", "python=3.11")
    assert "unknown (Python: 13)" in told


def test_recommend_a_variant_says_what_it_has(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    for variant, has in (("base", "cudart"), ("runtime", "NCCL"), ("devel", "nvcc"), ("cudnn", "cuDNN")):
        document = ask(capsys, "cuda", "--variant", variant, *V100, "--offline")
        assert f"-{variant}" in document["tag"]
        assert (variant == "cudnn") == ("cudnn" in document["tag"])
        assert any(f"variant '{variant}'" in note and has in note for note in document["notes"])


def test_recommend_variants_are_of_cuda_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "pytorch", "--variant", "base", *V100, "--offline"]) == 82
    assert "kedge recommend cuda --variant base" in capsys.readouterr().err


def test_recommend_for_k40_names_the_build_that_worked_with_its_warning(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("recommend", "pytorch", "--gpu", "K40", "--driver", "470.82.01", "--arch", "amd64", "--offline")
    assert main(list(words)) == 82
    told = capsys.readouterr().err
    assert "lucasfernandoaes/pytorch-legacy:1.6.0" in told
    assert "nelsonliu.me" in told
    assert_says(told, "compat/warning-published-person")


def test_recommend_gives_the_newest_that_runs_natively(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "pytorch", *V100]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "nvcr.io/nvidia/pytorch:23.10-py3"
    assert_says("\n".join(lines), "recommend/newest-tag-runs-natively-2")
    assert lines[-1] == "  get:   kedge pull docker://nvcr.io/nvidia/pytorch:23.10-py3"
    assert any(line.startswith("  newer: nvcr.io/nvidia/pytorch:24.") for line in lines)
    assert_says(printed.err, "recommend/pytorch-taken-nvcr-io-nvidia")
    assert len(ngc.registry.server.seen("GET .*/tags/list")) == 1
    assert not ngc.registry.server.seen("/manifests/")


def test_recommend_tells_of_tags_that_no_table_knows(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.registry.add_image("nvidia/pytorch", "27.01-py3", [b"x"])
    try:
        document = ask(capsys, "pytorch", *V100)
    finally:
        del ngc.registry.manifests["nvidia/pytorch", "27.01-py3"]
    assert document["newer"] == ["27.01-py3"]
    assert_says("\n".join(document["notes"]), "recommend/newer-but-not-kedges-tables")
    assert document["best"]["tag"] == "23.10-py3"


def test_recommend_without_the_registry_uses_the_tables(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.registry.server.fail("tags/list", times=99, reply=Reply(503))
    document = ask(capsys, "pytorch", *V100)
    assert not document["is_from_registry"]
    assert_says("\n".join(document["notes"]), "explain/kedges-tables-used-instead")
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


def test_recommend_without_a_driver_says_the_tag_of_each_branch(ngc, capsys):
    assert main(["recommend", "pytorch", "--gpu", "V100", "--arch", "amd64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert_reads(lines[0], "recommend/tag-depends-driver-unknown", "nvcr.io/nvidia/pytorch", "Tesla V100")
    assert "  driver 535 (CUDA 12.2): 23.10-py3" in lines
    assert lines[-1] == "  get:   kedge pull docker://nvcr.io/nvidia/pytorch:TAG"
    (find,) = [line for line in lines if line.startswith("  find:  ")]
    assert all(word in find for word in ("kedge doctor", "nvidia-smi", "--driver"))
    document = ask(capsys, "pytorch", "--gpu", "V100", "--arch", "amd64")
    assert [document[name] for name in ("tag", "reference", "command", "best")] == [None] * 4
    assert {"branch": 535, "cuda": "12.2", "tag": "23.10-py3", "outcome": "native"} in document["by_driver"]


def test_recommend_of_a_match(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cuda", "--gpu", "A100", "--driver", "550", "--match")
    assert ask(capsys, *words, "*-base-*")["reference"] == "nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
    assert ask(capsys, *words, "*-cudnn-devel-*")["reference"] == "nvcr.io/nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"
    assert main(["recommend", *words, "nothing*"]) == NothingFits.exit_code


def test_recommend_where_nothing_fits_says_why(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "pytorch", "--gpu", "K40", "--driver", "470"]) == NothingFits.exit_code
    printed = capsys.readouterr()
    assert_says(printed.err, "recommend/no-image-ngc-known-kernels", "PyTorch", "Tesla K40")
    assert_says(printed.err, "recommend/recommend-cuda-same-gpu")
    assert main(["recommend", "cuda", "--gpu", "K40", "--driver", "470"]) == 0
    assert main(["recommend", "pytorch", *H200_OLD]) == NothingFits.exit_code
    assert "kedge tags nvcr.io/nvidia/pytorch" in capsys.readouterr().err
    assert main(["--json", "recommend", "pytorch", "--gpu", "K40"]) == NothingFits.exit_code
    assert json.loads(capsys.readouterr().out)["error"] == "nothing-fits"


@each_row(
    ("words", "status", "said"),
    [
        (["docker.io/library/ubuntu", *V100], NothingFits.exit_code, "know no tags of docker.io/library/ubuntu"),
        (["pytroch", *V100], NothingFits.exit_code, "did you mean 'pytorch'?"),
        (["pytorch", "--gpu", "Voodoo2"], UnknownGpu.exit_code, "Voodoo2"),
        (["pytorch", "--driver", "new"], UsageError.exit_code, "not a version of an NVIDIA driver"),
        ([], UsageError.exit_code, "IMAGE"),
    ],
)
def test_recommend_wrong_use_asks_nobody(ngc, capsys, words, status, said):
    assert main(["recommend", *words]) == status
    assert said in capsys.readouterr().err
    assert not ngc.registry.server.log


def test_recommend_by_a_driver_alone_asks_for_the_gpu(ngc, capsys, monkeypatch):
    monkeypatch.setattr("kedge.container.facts.gather_host", lambda _: make_host({"/dev/null": ""}))  # no GPU here
    for words in (["pytorch"], ["pytorch", "--driver", "535"], ["cuda", "--driver", "535"]):
        assert main(["recommend", *words]) == UsageError.exit_code
        printed = capsys.readouterr()
        assert not printed.out
        assert_says(printed.err, "explain/name-gpu-gpu-driver-queue")
    assert not ngc.registry.server.log


def test_recommend_where_too_little_is_known_names_what_is_missing(ngc, capsys, tmp_path, monkeypatch):
    words = ["recommend", "jax", "--gpu", "H200", "--driver", "580", "--offline"]
    assert main(words) == NothingFits.exit_code
    printed = capsys.readouterr().err
    assert "kernels: 4" in printed
    assert_says(printed, "recommend/data-update-learns-configs-say", "nvcr.io/nvidia/jax")
    known = [row for row in load_tables().list_releases("nvcr.io/nvidia/jax")]
    learned = [replace(row, cuda="12.8.0", capabilities="") for row in known]
    tables = Tables(load_tables().cuda, load_tables().gpus, learned)
    monkeypatch.setattr("kedge.compat.known_tables.load_known_tables", lambda *_: tables)
    assert main(words) == NothingFits.exit_code
    printed = capsys.readouterr().err
    assert "(kernels: 4)\n" in printed
    assert "kedge data update" not in printed
    assert_says(printed, "recommend/explain-tag-shows-known", "nvcr.io/nvidia/jax")


@pytest.mark.parametrize(
    ("here", "named", "runs"),
    [("x86_64", "", True), ("aarch64", "", False), ("aarch64", "amd64", True), ("x86_64", "arm64", False)],
)
def test_explain_tags_and_recommend_judge_a_named_gpu_for_one_processor(ngc, capsys, here, named, *, runs):
    """Images for arm64 have no kernels for a T4: by --arch, or else by the machine that asks."""
    words = ["--gpu", "T4", "--driver", "580", *(["--arch", named] if named else [])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "uname", lambda: os.uname_result(("Linux", "login1", "6.1", "#1", here)))
        advice = ask(capsys, "pytorch", *words)
        assert main(["explain", "--json", "nvcr.io/nvidia/pytorch:25.10-py3", *words]) == 0
        explained = json.loads(capsys.readouterr().out)
        assert main(["tags", "--json", "pytorch", "--match", "25.10-py3", *words]) == 0
        listing = json.loads(capsys.readouterr().out)
    assert explained["verdict"]["runs"] is runs
    assert (listing["tags"][0]["outcome"] == "native") is runs
    assert (advice["tag"] == "25.10-py3") is runs
    for document in (explained["target"], listing, advice):
        told = [note for note in document["notes"] if "the architecture of this host; --arch" in note]
        assert len(told) == (0 if named else 1)
