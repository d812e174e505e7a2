# SPDX-License-Identifier: BSD-3-Clause
"""`kedge search`: both catalogues under their own names, through a proxy. Needs openssl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.errors import NetworkFailed, UsageError
from tests.builders.certificates import make_authority
from tests.builders.rows import each_row
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.fakes.proxy import ConnectProxy
from tests.wording import assert_says

KEY = "nvapi-very-secret-key"
JSON = {"Content-Type": "application/json"}


class Catalogs:
    """NGC and Docker Hub in one server, told apart by their paths."""

    def __init__(self) -> None:
        self.ngc = Reply(200, json.dumps(make_ngc("nvidia/pytorch", "nvidia/nemo")).encode(), JSON)
        self.hub = Reply(200, json.dumps(make_hub("pytorch/pytorch")).encode(), JSON)
        self.server: FakeServer

    def answer(self, request: Recorded) -> Reply:
        return self.ngc if request.path.startswith("/v2/search/catalog/") else self.hub


def make_ngc(*names: str) -> dict[str, object]:
    resources = [
        {"resourceId": name, "displayName": name, "description": f"All about\n{name}\x1b[31m", "latestTag": "9.9-new"}
        for name in names
    ]
    return {"resultTotal": 640, "results": [{"groupValue": "CONTAINER", "resources": resources}]}


def make_hub(name: str) -> dict[str, object]:
    result = {
        "repo_name": name,
        "short_description": "Tensors",
        "star_count": 12,
        "pull_count": 5,
        "is_official": False,
    }
    return {"count": 1, "results": [result]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Path, Path]]:
    authority = make_authority(tmp_path_factory.mktemp("ca"))
    return authority.certificate, authority.issue("api.ngc.nvidia.com", "hub.docker.com", "127.0.0.1")


@pytest.fixture
def catalogs(
    certificate: tuple[Path, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Catalogs]:
    found = Catalogs()
    with FakeServer(found.answer, tls=certificate[1]) as server:
        found.server = server
        routes = {"api.ngc.nvidia.com:443": server.port, "hub.docker.com:443": server.port}
        with ConnectProxy(routes) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            monkeypatch.setenv("KEDGE_CA_BUNDLE", str(certificate[0]))
            monkeypatch.setenv("HOME", str(tmp_path))
            yield found


def test_search_shows_names_to_pull_from_both(catalogs: Catalogs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "pytorch"]) == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()[1:]]
    assert [line[0] for line in lines] == ["nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo", "docker.io/pytorch/pytorch"]
    assert "9.9-new" in lines[0]
    assert "All about nvidia/pytorch" in printed.out
    assert "\x1b" not in printed.out
    assert "NGC: 640 results, 2 are shown" in printed.err
    assert "kedge tags nvcr.io/nvidia/pytorch" in printed.err


def test_search_sends_no_credentials(catalogs, monkeypatch, capsys, tmp_path):
    (tmp_path / ".netrc").write_text(f"machine api.ngc.nvidia.com login u password {KEY}\n")
    for name in ("NGC_API_KEY", "DOCKER_PASSWORD", "APPTAINER_DOCKER_PASSWORD"):
        monkeypatch.setenv(name, KEY)
    for name in ("DOCKER_USERNAME", "APPTAINER_DOCKER_USERNAME"):
        monkeypatch.setenv(name, "$oauthtoken")
    assert main(["search", "pytorch"]) == 0
    assert len(catalogs.server.log) == 2
    assert KEY not in str(catalogs.server.log)
    assert all(not each.authorization for each in catalogs.server.log)
    assert KEY not in "".join(capsys.readouterr())


def test_search_of_one_catalog_asks_one(catalogs: Catalogs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--hub", "--limit", "3", "tensor", "flow"]) == 0
    [request] = catalogs.server.log
    assert (request.query["query"], request.query["page_size"]) == (["tensor flow"], ["3"])
    capsys.readouterr()
    assert main(["search", "--ngc", "pytorch", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["results"]] == ["nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/nemo"]
    assert document["results"][0]["known_tag"].endswith("-py3")
    assert document["totals"] == {"NGC": 640}


def test_search_goes_on_without_one_catalog(catalogs: Catalogs, capsys: pytest.CaptureFixture[str]) -> None:
    catalogs.ngc = Reply(400, b"{}")
    assert main(["search", "pytorch"]) == 0
    printed = capsys.readouterr()
    assert_says(printed.err, "explain/warning-ngc-not-searched-unexpected")
    assert "docker.io/pytorch/pytorch" in printed.out
    assert "nvcr.io/nvidia/pytorch" in printed.out  # from the tables


def test_search_without_any_catalog_says_what_to_do(catalogs: Catalogs, capsys: pytest.CaptureFixture[str]) -> None:
    catalogs.ngc = catalogs.hub = Reply(503)
    assert main(["search", "pytorch"]) == NetworkFailed.exit_code
    printed = capsys.readouterr()
    assert_says(printed.err, "explain/ngc-docker-hub-do-not")
    assert "'kedge search pytorch --offline'" in printed.err


def test_search_offline_asks_nobody(catalogs: Catalogs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "pytorch", "--offline"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].startswith("nvcr.io/nvidia/pytorch")
    assert not catalogs.server.log
    assert main(["search", "no-such-thing", "--offline"]) == 0
    assert "nothing found for 'no-such-thing'" in capsys.readouterr().out


@each_row(
    "words", [["--limit", "0", "x"], ["--limit", "101", "x"], ["x\x1b"], ["--offline", "--hub", "x"], ["w" * 300], []]
)
def test_search_refuses_wrong_use(catalogs: Catalogs, words: list[str]) -> None:
    assert main(["search", *words]) == UsageError.exit_code
    assert not catalogs.server.log


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("image", "classification"), "nvcr.io/nvidia/pytorch"),
        (("bert",), "nvcr.io/nvidia/tensorflow"),
        (("mpi",), "docker.io/tacc/tacc-ubuntu18-impi19.0.7-common"),
    ],
)
def test_search_by_task_says_what_does_several_gpus_and_nodes(capsys, words, name):
    assert main(["search", "--offline", "--json", *words]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    found = next(each for each in results if each["name"] == name)
    assert found["source"]
    assert found["known_tag"]
    assert "multi-GPU: " in found["description"]
    assert found["multi_node"] in (True, None)
    assert main(["search", "--offline", *words]) == 0
    assert name in capsys.readouterr().out


def test_search_warns_of_images_of_strangers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--offline", "k40"]) == 0
    told = capsys.readouterr()
    assert "docker.io/lucasfernandoaes/pytorch-legacy" in told.out
    assert_says(told.err, "explain/warning-docker-io-lucasfernandoaes-pytorch-legacy")


def test_search_by_task_stands_beside_what_the_catalogues_say(catalogs, capsys):
    assert main(["search", "--json", "bert"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [each["catalog"] for each in results if each["name"] == "nvcr.io/nvidia/pytorch"] == [
        "NGC",
        "kedge's tables",
    ]
