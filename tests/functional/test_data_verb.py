# SPDX-License-Identifier: BSD-3-Clause
"""`kedge data`: the tables as users see them, rows to contribute, and what a registry teaches."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kedge.compat.contents.read_traits import read_traits
from kedge.compat.tables.learned import make_row, write_rows
from kedge.compat.tables.load import SHIPPED, Tables, load_tables, read_learned
from kedge.errors import NetworkFailed, RateLimited, TableProblem, UnknownGpu, UsageError
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.fakes.http_server import Reply
from tests.fakes.ngc import add_release, open_ngc
from tests.fakes.registry import FakeRegistry
from tests.requirements import require_program
from tests.wording import assert_reads, assert_says

PYTORCH = "nvcr.io/nvidia/pytorch"
LABELS = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}
ENVIRONMENT = (
    "CUDA_VERSION=13.4.0.010",
    "CUDA_DRIVER_VERSION=615.10.01",
    "PYTORCH_VERSION=2.14.0a0+abcdef0",
    "NVIDIA_PYTORCH_VERSION=26.09",
    "NVIDIA_PRODUCT_NAME=PyTorch",
    "NCCL_VERSION=2.31.1",
    "CUDNN_VERSION=9.30.0.1+cuda13",
    "OPENMPI_VERSION=5.0.10",
    "TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0 10.0 12.0+PTX",
)


def learned_file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "kedge" / "tables" / "ngc_frameworks.csv"


def data(tmp_path: Path, *words: str, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "KEDGE_RETRIES": "0",
        "KEDGE_ARCH": "amd64",
        **options.pop("environment", {}),  # type: ignore[dict-item]
    }
    return kedge("data", *words, cache=tmp_path / "cache", check=check, environment=environment, **options)


def add_config(registry: FakeRegistry, tag: str, *variables: str, repository: str = "nvidia/pytorch") -> None:
    section = {"Env": list(variables), "Labels": LABELS}
    config = {"architecture": "amd64", "os": "linux", "config": section, "rootfs": {"type": "layers", "diff_ids": []}}
    registry.add_image(repository, tag, [b"never fetched"], json.dumps(config).encode())


# What there is


def test_data_list_names_tables_images_and_what_was_learned(tmp_path: Path) -> None:
    text = data(tmp_path).stdout
    assert re.search(r"cuda +69 +13\.3\.0 ", text)
    assert re.search(r"nvcr\.io/nvidia/pytorch +90 +26\.08-py3 ", text)
    assert "learned: nothing yet" in text
    assert "kedge data update" in text
    told = json.loads(data(tmp_path, "list", "--json").stdout)
    assert {each["name"]: each["rows"] for each in told["tables"]} == {"cuda": 69, "gpus": 115, "releases": 659}
    assert told["learned"] == str(learned_file(tmp_path))


@each_row(
    "words, said",
    [
        (("pytorch:22.03-py3",), ("11.6.1.005", "20.04.4", "1.12.0a0+2c916ef", "NVIDIA-Merlin/Merlin docs/data.json")),
        (("docker://nvcr.io/nvidia/pytorch:22.03-py3",), ("11.6.1.005",)),
        (("cuda:12.4.1-cudnn-devel-ubuntu22.04",), ("9.1.0.70", "470 525 535")),
        (("K40",), ("Tesla K40m; Tesla K40c", "470", "Kepler", "NVIDIA CUDA-GPUs list")),
        (("Quadro", "RTX", "5000"), ("7.5",)),
        (("RTX 5000",), ("Quadro RTX 5000", "RTX 5000 Ada", "RTX PRO 5000 Blackwell")),
        (("12.4.1",), ("550.54.15", "525.60.13", "CUDA release notes")),
        (("12.3.2.001",), ("545.23.08",)),
        (("13.3.1",), ("13.3.0", "stands for")),
        (("9.0",), ("384.81", "NVIDIA H200")),
        (("gpus",), ("Tesla K10", "NVIDIA GB10", "[1] capability: NVIDIA CUDA-GPUs list")),
        (("cuda",), ("13.3.0", "7.0.28", "minor compat. from".upper())),
        (("pytorch",), ("26.08-py3", "18.06-py3", "[1] NVIDIA/DeepLearningExamples")),
    ],
)
def test_data_show_rows_with_their_sources(tmp_path: Path, words: tuple[str, ...], said: tuple[str, ...]) -> None:
    text = data(tmp_path, "show", *words).stdout
    for each in said:
        assert each in text


def test_data_show_json_has_all_of_a_row(tmp_path: Path) -> None:
    (section,) = json.loads(data(tmp_path, "show", "--json", "A100-SXM4-40GB").stdout)
    assert section["table"] == "gpus"
    (row,) = section["rows"]
    assert (row["capability"], row["takes_forward_compat"], row["first_cuda"]) == ("8.0", True, "11.0")
    assert row["source"]


@each_row(
    "what, status, said",
    [
        ("pytorch:22.3-py3", UsageError.exit_code, "did you mean '22.03-py3'?"),
        ("pytorch:22.03", UsageError.exit_code, "did you mean '22.03-py3'?"),
        ("pytorsh", UsageError.exit_code, "did you mean 'pytorch'?"),
        ("H1OO", UnknownGpu.exit_code, "did you mean 'NVIDIA H100 SXM'?"),
        ("nvcr.io/nvidia/nothing", UsageError.exit_code, "the tables have nothing about"),
        ("", UsageError.exit_code, "name a table"),
        ("14.9", UsageError.exit_code, "the tables have nothing"),
    ],
)
def test_data_show_of_what_is_not_there(tmp_path: Path, what: str, status: int, said: str) -> None:
    done = data(tmp_path, "show", what, check=False)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# Rows to contribute


def test_data_check_of_good_rows(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "image,tag,cuda_toolkit,source\nnvcr.io/nvidia/pytorch,99.01-py3,14.0.0,the banner of the container\n"
    )
    done = data(tmp_path, "check", str(path))
    assert_reads(done.stdout, "cli/good-row-table-releases-new")


def test_data_check_says_line_by_line_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "image,tag,cuda_toolkit,source\n"
        "nvcr.io/nvidia/pytorch,99.01-py3,fourteen,me\n"
        "nvcr.io/nvidia/pytorch,99.02-py3,14.0.0,\n"
        "nvcr.io/nvidia/pytorch,22.03-py3,11.5,me\n"
    )
    done = data(tmp_path, "check", str(path), check=False)
    assert done.returncode == TableProblem.exit_code
    assert f"{path} line 2, cuda_toolkit: 'fourteen' is no version" in done.stdout
    assert_says(done.stdout, "compat/line-source-no-source", path)
    assert_says(done.stdout, "compat/line-cuda-file-but-shipped", "11.5", "11.6.1.005", "NVIDIA-Merlin")
    told = json.loads(data(tmp_path, "check", str(path), "--json", check=False).stdout)
    assert [problem["context"]["line"] for problem in told["problems"]] == ["2", "3"]
    assert not told["good"]


@each_row("name", ["cuda_driver.csv", "gpu_arch.csv", "ngc_frameworks.csv"])
def test_data_check_passes_what_is_shipped(tmp_path: Path, name: str) -> None:
    assert "; 0 are new to it" in data(tmp_path, "check", str(SHIPPED / name)).stdout


@each_row("name", ["nowhere.csv", "."])
def test_data_check_of_no_file(tmp_path: Path, name: str) -> None:
    done = data(tmp_path, "check", str(tmp_path / name), check=False)
    assert done.returncode == 30
    assert "Traceback" not in done.stderr


# Learning


def test_data_update_learns_what_the_registry_says(tmp_path: Path) -> None:
    require_program("openssl")
    with open_ngc(tmp_path) as site:
        add_config(site.registry, "26.09-py3", *ENVIRONMENT)
        add_config(site.registry, "26.09-py3-igpu", *ENVIRONMENT)
        done = data(tmp_path, "update", "pytorch", "--since", "26.07", environment=site.environment)
        requests = len(site.registry.server.log)
        again = data(tmp_path, "update", "pytorch", "--since", "26.07", environment=site.environment)
    assert "nvcr.io/nvidia/pytorch: 1 of 25 tags learned" in done.stdout
    assert requests <= 8
    assert "0 of 25 tags learned" in again.stdout
    row = load_tables(learned_file(tmp_path)).find_release(PYTORCH, "26.09-py3")
    assert row is not None
    assert (row.cuda, row.bundled_driver, row.framework_version) == ("13.4.0.010", "615.10.01", "2.14.0a0+abcdef0")
    assert (row.cudnn, row.nccl, row.openmpi, row.ubuntu) == ("9.30.0.1", "2.31.1", "5.0.10", "24.04")
    assert row.capabilities == "7.5 8.0 8.6 9.0 10.0 12.0+PTX"
    assert (row.python, row.hpcx, row.release_date) == ("", "", "")  # the config does not say it
    assert re.fullmatch(r"registry config sha256:[0-9a-f]{64} \(amd64\) read \d{4}-\d\d-\d\d", row.source)
    assert "13.4.0.010" in data(tmp_path, "show", "pytorch:26.09-py3").stdout
    assert re.search(r"pytorch +91 +26\.09-py3 +1\n", data(tmp_path).stdout)


def test_data_update_of_two_architectures_keeps_both(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        add_release(registry, "pytorch", "25.10-py3")
        image = f"{registry.host}/nvidia/pytorch"
        data(tmp_path, "update", image)
        data(tmp_path, "update", image, "--arch", "arm64")
    ((row,), problems) = read_learned(learned_file(tmp_path))
    assert not problems
    assert row.capabilities_on("amd64") == "7.5 8.0 8.6 9.0 10.0 12.0+PTX"
    assert row.capabilities_on("arm64") == "8.0 8.6 9.0 10.0 11.0 12.0+PTX"
    assert "(amd64)" in row.source
    assert "(arm64)" in row.source


def test_data_update_dry_run_reads_tags_alone(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        for month in range(1, 10):
            add_config(registry, f"26.0{month}-py3", *ENVIRONMENT)
        add_config(registry, "latest", *ENVIRONMENT)
        image = f"{registry.host}/nvidia/pytorch"
        done = data(tmp_path, "update", image, "--dry-run", "--limit", "3")
        asked = [each.path for each in registry.server.log]
    assert asked == ["/v2/nvidia/pytorch/tags/list"]
    assert_says(done.stdout, "cli/tags-read-older-ones-left", 3)
    assert re.findall(r"26\.0\d-py3", done.stdout) == ["26.09-py3", "26.08-py3", "26.07-py3"]
    assert not learned_file(tmp_path).exists()


def test_data_update_stops_politely_at_429_and_keeps_what_it_has(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        for month in range(1, 7):
            add_config(registry, f"26.0{month}-py3", *ENVIRONMENT, f"X={month}")
        registry.server.fail(r"GET .*/manifests/26\.04", reply=Reply(429, headers={"Retry-After": "3600"}), times=99)
        image = f"{registry.host}/nvidia/pytorch"
        done = data(tmp_path, "update", image, check=False)
        asked = len(registry.server.log)
        told = json.loads(data(tmp_path, "update", image, "--json", check=False).stdout)
    assert done.returncode == RateLimited.exit_code, done.stderr
    assert_says(done.stderr, "cli/tags-learned-before-kept")
    assert asked < 10
    assert [row.tag for row in read_learned(learned_file(tmp_path))[0]] == ["26.06-py3", "26.05-py3"]
    assert told["stopped"]["error"] == "rate-limited"


def test_data_update_without_network_says_so(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        image = f"{registry.host}/nvidia/pytorch"
    done = data(tmp_path, "update", image, check=False)
    assert done.returncode == NetworkFailed.exit_code
    assert "stopped:" in done.stderr
    assert "Traceback" not in done.stderr


def test_data_update_goes_on_behind_images_and_tags_that_fail(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        add_config(registry, "26.02-py3", *ENVIRONMENT)
        registry.add_image("nvidia/pytorch", "26.01-py3", [b"x"], b'{"architecture": "amd64", "os": "linux"}')
        registry.add_manifest("nvidia/pytorch", "26.03-py3", b'{"schemaVersion": 2, "broken": [[[')
        good, none = f"{registry.host}/nvidia/pytorch", f"{registry.host}/nvidia/nothing"
        done = data(tmp_path, "update", none, good)
        failed = data(tmp_path, "update", none, check=False)
    assert "26.03-py3 is left out:" in done.stderr
    assert_says(done.stderr, "cli/left-out-config-says-nothing")
    assert "nvidia/nothing:" in done.stderr
    assert "26.02-py3" in learned_file(tmp_path).read_text()
    assert failed.returncode == 1


def test_data_update_interrupted_keeps_what_was_learned(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        for month in range(1, 10):
            add_config(registry, f"26.0{month}-py3", *ENVIRONMENT, f"X={month}")
        registry.server.fail(r"GET .*/manifests/26\.07", delay=60)
        environment = {
            **os.environ,
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "KEDGE_CACHEDIR": str(tmp_path / "cache"),
            "KEDGE_ARCH": "amd64",
        }
        words = [sys.executable, "-m", "kedge", "data", "update", f"{registry.host}/nvidia/pytorch"]
        with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            wait_for(lambda: any("26.07" in each.path for each in registry.server.log))
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert b"Traceback" not in (process.stderr.read() if process.stderr else b"")
        registry.server.faults.clear()
        assert [row.tag for row in read_learned(learned_file(tmp_path))[0]] == ["26.09-py3", "26.08-py3"]
        assert {path.name for path in learned_file(tmp_path).parent.iterdir()} == {"ngc_frameworks.csv"}
        assert "7 of 9 tags learned" in data(tmp_path, "update", f"{registry.host}/nvidia/pytorch").stdout


def wait_for(condition: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_data_update_of_several_at_once_loses_nothing(tmp_path: Path) -> None:
    with FakeRegistry() as registry:
        for name in "abc":
            for month in range(1, 5):
                add_config(registry, f"26.0{month}-py3", *ENVIRONMENT, repository=f"nvidia/{name}")
        environment = {
            **os.environ,
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "KEDGE_CACHEDIR": str(tmp_path / "cache"),
            "KEDGE_ARCH": "amd64",
        }
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "kedge", "-q", "data", "update", f"{registry.host}/nvidia/{name}"],
                env=environment,
                stdout=subprocess.DEVNULL,
            )
            for name in "abc"
        ]
        assert [process.wait(120) for process in started] == [0, 0, 0]
    rows, problems = read_learned(learned_file(tmp_path))
    assert not problems
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explain", "--gpu", "H100", "--driver", "615.10.01", f"{PYTORCH}:26.09-py3"), "2.14.0a0+abcdef0"),
        (("tags", "--gpu", "H100", "--driver", "615.10.01", "pytorch:26.09-py3"), "13.4.0"),
        (
            ("recommend", "pytorch", "--gpu", "H100", "--driver", "615.10.01", "--arch", "amd64"),
            f"{PYTORCH}:26.09-py3\n",
        ),
    ],
)
def test_data_learned_rows_serve_every_verb_and_damage_is_said(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    row = make_row(
        PYTORCH,
        "26.09-py3",
        read_traits(
            f"{PYTORCH}:26.09-py3",
            environment=dict(each.split("=", 1) for each in ENVIRONMENT),
            labels={},
            history=(),
            tables=Tables((), (), ()),
        ),
        "registry config sha256:0 (amd64) read 2026-09-30",
    )
    assert row is not None
    path = learned_file(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(write_rows([row]) + b"what is this\n")
    environment = {"XDG_DATA_HOME": str(tmp_path / "data")}
    done = kedge(*words, "--offline", cache=tmp_path / "cache", environment=environment)
    assert said in done.stdout
    assert str(path) in done.stderr


def test_data_update_keeps_a_damaged_file_beside(tmp_path: Path) -> None:
    path = learned_file(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe what is this")
    assert str(path) in data(tmp_path).stderr
    with FakeRegistry() as registry:
        add_config(registry, "26.09-py3", *ENVIRONMENT)
        done = data(tmp_path, "update", f"{registry.host}/nvidia/pytorch")
    assert "ngc_frameworks.csv.damaged" in done.stderr
    assert len(read_learned(path)[0]) == 1
    assert path.with_name("ngc_frameworks.csv.damaged").read_bytes() == b"\xff\xfe what is this"


@each_row(
    "words, said",
    [
        (("--since", "yesterday"), "--since takes a release or a month"),
        (("--limit", "0"), "--limit takes a number from 1 to 1000"),
        (("--limit", "-3"), "--limit"),
        (("--limit", "many"), "--limit"),
        (("./folder",), "not on a registry"),
        (("a b",), "a b"),
    ],
)
def test_data_update_refuses_words_that_make_no_sense(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = data(tmp_path, "update", *words, check=False)
    assert done.returncode in (2, 10), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_data_update_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a directory belongs")
    with FakeRegistry() as registry:
        add_config(registry, "26.09-py3", *ENVIRONMENT)
        done = data(tmp_path, "update", f"{registry.host}/nvidia/pytorch", check=False)
    assert done.returncode == 30
    assert "Traceback" not in done.stderr
