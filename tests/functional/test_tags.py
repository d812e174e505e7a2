# SPDX-License-Identifier: BSD-3-Clause
"""`kedge tags`: nvcr.io with real releases, joined with the tables; what is listed, marked, left out. Needs openssl."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.console import _draw_table
from kedge.cli.main import main
from kedge.cli.tags import fit_columns
from kedge.errors import ImageNotFound, InvalidReference, NetworkFailed, RegistryProtocolError, UnknownGpu, UsageError
from tests.builders.gpu_hosts import make_host
from tests.builders.rows import each_row
from tests.fakes.http_server import Reply
from tests.fakes.ngc import OTHERS, PYTORCH, NgcSite, open_ngc
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_reads, assert_says


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    with open_ngc(tmp_path_factory.mktemp("ngc")) as site:
        for tag in ("23.03-tf1-py3", "25.02-tf2-py3"):
            site.registry.add_image("nvidia/tensorflow", tag, [b"x"])
        for tag in ("27.01-py3", "27.01-py3-igpu", "sha256-" + "a" * 64 + ".sig"):
            site.registry.add_image("nvidia/pytorch", tag, [b"x"])
        yield site


@pytest.fixture
def ngc(shared: NgcSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NgcSite:
    shared.lead(monkeypatch, tmp_path)
    return shared


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    status = main(["tags", "--json", *words])
    printed = capsys.readouterr()
    assert status == 0, printed
    document: dict[str, Any] = json.loads(printed.out)
    return document


def names(document: dict[str, Any]) -> list[str]:
    return [row["tag"] for row in document["tags"]]


def test_tags_are_those_of_the_registry_newest_first(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, "nvcr.io/nvidia/pytorch")
    there = [row["tag"] for row in document["tags"] if "deleted" not in row["marks"]]
    assert there == ["27.01-py3", "27.01-py3-igpu", *reversed(PYTORCH)]
    rows = {row["tag"]: row for row in document["tags"]}
    known = rows["22.03-py3"]
    assert known["released"] == "2022-03"
    assert known["system"].startswith("Ubuntu 20.04")
    assert known["cuda"].startswith("11.6.1")
    assert known["framework_version"].startswith("1.12.0")
    assert rows["19.01-py3"]["marks"] == ["deleted"]
    assert rows["27.01-py3-igpu"]["marks"] == ["Jetson"]
    assert_says("\n".join(document["notes"]), "explain/tags-newer-kedges-tables-up", "27.01-py3")
    assert_says("\n".join(document["notes"]), "explain/tag-signature")
    assert not ngc.registry.server.seen("/manifests/")  # no request per tag


def test_tags_of_a_short_name_say_what_was_made_of_it(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tags", "pytorch", "--limit", "2"]) == 0
    printed = capsys.readouterr()
    assert_says(printed.err, "recommend/pytorch-taken-nvcr-io-nvidia")
    assert "more; --all shows them" in printed.err
    assert [line.split()[0] for line in printed.out.splitlines()] == ["TAG", "27.01-py3", "27.01-py3-igpu"]


def test_tags_by_cuda(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    there = {"12.4.1-base-ubuntu22.04", "12.4.1-devel-ubuntu22.04", "12.4.1-cudnn-devel-ubuntu22.04"}
    for wanted in ("12.4", "12.4.1", ">=12.4,<12.5"):
        document = ask(capsys, "cuda", "--cuda", wanted)
        found = {row["tag"]: row for row in document["tags"] if "deleted" not in row["marks"]}
        assert set(found) == there
        assert found["12.4.1-base-ubuntu22.04"]["architectures"] == ["amd64", "arm64"]
    newest = [row for row in ask(capsys, "cuda", "--cuda", ">=12.5")["tags"] if "deleted" not in row["marks"]]
    assert {row["cuda"] for row in newest} == {"12.8.1", "13.0.0"}
    pytorch = ask(capsys, "pytorch", "--cuda", "12")
    assert all(row["cuda"].startswith("12.") for row in pytorch["tags"])
    assert_says("\n".join(pytorch["notes"]), "explain/whose-cuda-unknown-cuda")


def test_tags_mark_what_nvidia_deletes(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, "cuda")
    rows = {row["tag"]: row for row in document["tags"]}
    assert rows["9.0-base-ubuntu16.04"]["marks"] == ["end of life"]
    assert rows["12.8.1-base-ubuntu24.04"]["marks"] == []
    assert rows["11.0.3-base-ubuntu20.04"]["marks"] == ["deleted"]
    assert any(note.startswith("end of life: NVIDIA deletes") for note in document["notes"])
    assert set(OTHERS["cuda"]) == {tag for tag, row in rows.items() if "deleted" not in row["marks"]}


def test_tags_mark_series_that_have_ended(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, "tensorflow", "--match", "*-tf[12]-py3")
    assert all("series ended" in row["marks"] for row in document["tags"])
    assert_says("\n".join(document["notes"]), "compat/tensorflow-ended")
    assert any("TensorFlow ended with 25.02" in note for note in document["notes"])
    ngc.registry.add_image("nvidia/tensorflow", "27.01-tf2-py3", [b"x"])
    try:
        document = ask(capsys, "tensorflow")
    finally:
        ngc.registry.manifests.pop(("nvidia/tensorflow", "27.01-tf2-py3"))
    marks = {row["tag"]: row["marks"] for row in document["tags"]}
    assert marks["25.02-tf2-py3"] == []  # the registry knows better
    assert marks["23.03-tf1-py3"] == ["series ended"]


def test_tags_since_and_match(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    for since in ("26.03", "2026-03"):
        found = names(ask(capsys, "pytorch", "--since", since, "--match", "*-py3"))
        assert found[0] == "27.01-py3"
        assert found[-1] == "26.03-py3"
    assert names(ask(capsys, "pytorch:24.03-py3")) == ["24.03-py3"]
    assert not names(ask(capsys, "pytorch", "--match", "nothing*"))
    assert main(["tags", "pytorch", "--since", "2031"]) == 0
    assert_reads(capsys.readouterr().out, "explain/no-tags-nvcr-io-nvidia")


def test_tags_that_run_there(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    document = ask(capsys, "pytorch", "--runs-here", "--gpu", "V100", "--driver", "535.104.05", "--arch", "amd64")
    rows = {row["tag"]: row for row in document["tags"]}
    assert "V100" in document["target"]
    assert "24.01-py3" in rows
    assert rows["22.03-py3"]["outcome"] == "native"
    assert rows["24.03-py3"]["outcome"] == "forward-compatible"
    assert "25.10-py3" not in rows  # Volta is not in its list
    assert "27.01-py3" not in rows  # unknown
    assert all("deleted" not in row["marks"] for row in rows.values())
    assert any(
        note.startswith("skipped ") and note.endswith("for lack of data (--runs-here)") for note in document["notes"]
    )


def test_tags_that_run_where_the_driver_is_not_known_are_not_guessed(ngc, capsys):
    document = ask(capsys, "pytorch", "--runs-here", "--gpu", "V100")
    assert document["tags"] == []
    (note,) = [each for each in document["notes"] if each.startswith("the driver of Tesla V100 is unknown")]
    assert all(word in note for word in ("kedge doctor", "nvidia-smi", "--driver", "kedge recommend"))


def test_tags_without_runs_here_judge_what_is_named(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tags", "pytorch", "--gpu", "K40", "--driver", "470", "--match", "2[56].*"]) == 0
    printed = capsys.readouterr()
    assert "RUNS THERE" in printed.out
    assert {line.split()[-1] for line in printed.out.splitlines()[1:] if "26.07-py3" in line} == {"no"}


def test_tags_look_reads_configs_of_what_is_listed(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    before = ask(capsys, "pytorch", "--match", "2[46].0[13]-py3", "--arch", "arm64")
    assert any("--look asks the registry" in note for note in before["notes"])
    document = ask(capsys, "pytorch", "--match", "2[46].0[13]-py3", "--arch", "arm64", "--look")
    looked = [row for row in document["tags"] if row["is_looked_at"]]
    assert [row["tag"] for row in looked] == ["26.03-py3", "24.03-py3", "24.01-py3"]
    assert all(row["architectures"] == ["amd64", "arm64"] for row in looked)
    assert len(ngc.registry.server.seen("/manifests/")) == 6
    tokens = len(ngc.registry.server.seen("proxy_auth"))
    assert 0 < tokens <= 3  # two lists of tags, and one for all configs
    none = ask(capsys, "pytorch", "--match", "18.06-py3", "--arch", "arm64", "--look")
    assert not none["tags"]  # its config says amd64


def test_tags_look_tells_what_could_not_be_read(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.registry.server.fail("/manifests/24.01-py3", times=9, reply=Reply(200, b"[" * 100_000))
    document = ask(capsys, "pytorch", "--match", "24.0[13]-py3", "--look")
    assert [row["is_looked_at"] for row in document["tags"]] == [True, False]
    assert_says("\n".join(document["notes"]), "explain/config-could-not-read")


def test_tags_without_the_registry_are_those_of_the_tables(ngc: NgcSite, capsys: pytest.CaptureFixture[str]) -> None:
    ngc.registry.server.fail("tags/list", times=99, reply=Reply(503))
    document = ask(capsys, "pytorch")
    assert not document["is_from_registry"]
    assert names(document)[0] == "26.08-py3"
    assert all("deleted" not in row["marks"] for row in document["tags"])
    assert_says("\n".join(document["notes"]), "explain/kedges-tables-used-instead-some")
    ngc.registry.server.log.clear()
    offline = ask(capsys, "pytorch", "--offline")
    assert names(offline) == names(document)
    assert not ngc.registry.server.log


def test_tags_of_images_that_no_table_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeRegistry() as registry:
        for tag in ("latest", "1.10", "1.9", "1.10-rc1"):
            registry.add_image("team/app", tag, [b"x"])
        document = ask(capsys, f"{registry.host}/team/app")
        assert names(document) == ["latest", "1.10", "1.10-rc1", "1.9"]
        assert main(["tags", f"{registry.host}/team/none"]) == ImageNotFound.exit_code
        page = Reply(200, b'{"tags":[]}', {"Link": '</v2/team/app/tags/list?n=1>; rel="next"'})
        registry.server.fail("tags/list", times=99, reply=page)
        assert main(["tags", f"{registry.host}/team/app"]) == RegistryProtocolError.exit_code
    assert main(["tags", f"{registry.host}/team/app"]) == NetworkFailed.exit_code


@each_row(
    ("words", "status"),
    [
        (["pytorch", "--cuda", "new"], UsageError.exit_code),
        (["pytorch", "--cuda", ">=12,"], UsageError.exit_code),
        (["pytorch", "--since", "spring"], UsageError.exit_code),
        (["pytorch", "--arch", "pdp11"], InvalidReference.exit_code),
        (["pytorch", "--limit", "0"], UsageError.exit_code),
        (["pytorch", "--limit", "2", "--all"], UsageError.exit_code),
        (["pytorch", "--look", "--offline"], UsageError.exit_code),
        (["pytorch", "--gpu", "Voodoo2"], UnknownGpu.exit_code),
        (["./image.sif"], InvalidReference.exit_code),
        (["host:bash"], InvalidReference.exit_code),
        ([""], InvalidReference.exit_code),
        ([], UsageError.exit_code),
    ],
)
def test_tags_refuse_wrong_use_before_asking_anybody(ngc: NgcSite, words: list[str], status: int) -> None:
    assert main(["tags", *words]) == status
    assert not ngc.registry.server.log


def test_tags_of_a_repository_that_the_tables_do_not_know_are_an_error_offline(ngc, capsys):
    assert main(["tags", "pytroch", "--offline"]) == ImageNotFound.exit_code
    assert "did you mean 'pytorch'?" in capsys.readouterr().err
    assert not ngc.registry.server.log
    assert main(["tags", "tacc/tacc-ml", "--offline"]) == ImageNotFound.exit_code
    assert_says(capsys.readouterr().err, "compat/single-tags-known-search-tacc-ml")


def test_tags_for_a_driver_without_a_gpu_say_what_is_missing(ngc, capsys, monkeypatch):
    monkeypatch.setattr("kedge.container.facts.gather_host", lambda _: make_host({"/dev/null": ""}))  # no GPU here
    notes = ask(capsys, "pytorch", "--driver", "535", "--limit", "2")["notes"]
    assert_says("\n".join(notes), "explain/gpu-machine-driver-unknown-name")


def test_tags_on_a_narrow_terminal_drop_columns_and_never_break_a_tag() -> None:
    tag = "13.0.0-cudnn-runtime-ubuntu24.04"
    columns = {
        "tag": [tag],
        "released": ["2025-08-06"],
        "cuda": ["13.0.0"],
        "system": ["Ubuntu 24.04"],
        "arch": ["amd64,arm64"],
        "runs there": ["yes (forward)"],
    }
    assert list(fit_columns(columns, 200)) == list(columns)
    assert list(fit_columns(columns, 70)) == ["tag", "cuda", "runs there"]
    assert list(fit_columns(columns, 50)) == ["tag", "runs there"]
    assert list(fit_columns(columns, 20)) == ["tag"]
    for width in (20, 50, 70):
        stream = io.StringIO()
        kept = fit_columns(columns, width)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            _draw_table(stream, list(kept), list(zip(*kept.values(), strict=True)), is_first_whole=True)
        assert tag in stream.getvalue()
