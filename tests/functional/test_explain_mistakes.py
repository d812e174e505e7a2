# SPDX-License-Identifier: BSD-3-Clause
"""`kedge explain` and its kin as people type them in a hurry, on machines where little is in order. Needs openssl."""

from __future__ import annotations

import contextlib
import json
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.answers.explain import explain
from kedge.answers.tags import TagQuery, list_image_tags
from kedge.base.reference import Reference
from kedge.compat.known_tables import find_repository
from kedge.compat.tables.load import load_tables
from kedge.errors import CorruptImage, ImageNotFound, NetworkFailed, UsageError, WillNotRun
from kedge.image.logins import RegistryOptions
from kedge.image.registry.client_setup import Access
from kedge.image.registry.transport import TransportOptions
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.rows import each_row
from tests.builders.sif import fixture_path
from tests.builders.warm_kedge import kedge
from tests.fakes.ngc import NgcSite, open_ngc
from tests.wording import assert_says

IMAGE = "docker://nvcr.io/nvidia/pytorch:24.01-py3"
TARGET = ("--gpu", "H100", "--driver", "550.54.15", "--arch", "amd64")


@pytest.fixture(scope="module")
def ngc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NgcSite]:
    with open_ngc(tmp_path_factory.mktemp("ngc")) as site:
        yield site


def test_explain_of_a_short_name_says_what_nvidia_calls_it(ngc: NgcSite, tmp_path: Path) -> None:
    done = kedge("explain", "pytorch", "--retries", "0", cache=tmp_path, check=False, environment=ngc.environment)
    assert done.returncode == NetworkFailed.exit_code
    assert_says(done.stderr, "compat/nvidias-tag-lists-tags", "nvcr.io/nvidia/pytorch", "kedge tags pytorch")


def test_explain_of_half_a_tag_proposes_the_whole_one(ngc: NgcSite, tmp_path: Path) -> None:
    words = ("explain", "nvcr.io/nvidia/pytorch:22.03")
    done = kedge(*words, cache=tmp_path, check=False, environment=ngc.environment)
    assert done.returncode == ImageNotFound.exit_code
    assert "did you mean nvcr.io/nvidia/pytorch:22.03-py3?" in done.stderr


def test_explain_without_a_usable_store_answers_and_keeps_nothing(ngc: NgcSite, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.iterdir())
    done = kedge("explain", IMAGE, *TARGET, cache=tmp_path / "file/store", environment=ngc.environment)
    assert_says(done.stdout, "compat/runs-natively", "NVIDIA H100")
    assert "nothing is cached" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_explain_offline_without_a_usable_store_answers_from_the_tables(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = kedge("explain", "--offline", IMAGE, *TARGET, cache=tmp_path / "file/store")
    assert "From built-in tables only" in done.stdout


def test_access_where_nobody_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nobody(_user: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", find_nobody)
    Access.open(environ={}).close()
    assert RegistryOptions(environ={}).home == Path("/")


def test_explain_of_a_sif_that_ends_in_its_header_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.sif"
    path.write_bytes(fixture_path("one-group.sif").read_bytes()[:50])
    done = kedge("explain", path, cache=tmp_path, check=False)
    assert done.returncode == CorruptImage.exit_code
    assert "ends after 50 bytes" in done.stderr
    assert "fetch it again" in done.stderr


@each_row("since, oldest", [("2024", "24.01-py3"), ("2024.05", "24.05-py3"), ("24", "24.01-py3")])
def test_tags_since_a_year_begins_with_its_first_release(ngc: NgcSite, tmp_path: Path, since: str, oldest: str) -> None:
    done = kedge("tags", "pytorch", "--all", "--since", since, cache=tmp_path, environment=ngc.environment)
    listed = [line.split()[0] for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert "26.07-py3" in listed
    assert listed[-1] == oldest


# Before CUDA's compatibility within a major release, and in the middle of the tags below; the others are between them.
@pytest.mark.parametrize(
    "driver",
    ["470.82.01", "550.54.15", *(pytest.param(name, marks=pytest.mark.long) for name in ("535.104.05", "580.65.06"))],
)
def test_tags_and_explain_say_the_same_of_cuda_images(ngc: NgcSite, tmp_path: Path, driver: str) -> None:
    tags = ("11.8.0-base-ubuntu22.04", "12.4.1-devel-ubuntu22.04", "12.8.1-base-ubuntu24.04", "13.0.0-base-ubuntu24.04")
    options = ("--json", "--arch", "amd64", "--gpu", "A100", "--driver", driver)
    names = [f"docker://nvcr.io/nvidia/cuda:{tag}" for tag in tags]
    told = json.loads(kedge("explain", *options, *names, cache=tmp_path, environment=ngc.environment).stdout)
    listed = json.loads(kedge("tags", *options, "cuda", cache=tmp_path, environment=ngc.environment).stdout)
    outcomes = {each["tag"]: each["outcome"] for each in listed["tags"]}
    assert [each["verdict"]["outcome"] for each in told] == [outcomes[tag] for tag in tags]


def test_submit_knows_what_explain_knows_of_a_tag_of_the_tables(ngc: NgcSite, tmp_path: Path) -> None:
    image, queue = "nvcr.io/nvidia/pytorch:20.12-py3", "tacc-vista:gh"
    environment = {**ngc.environment, "KEDGE_JOBDIR": str(tmp_path / "jobs")}
    options = ("--site", "tacc-vista", "--queue", "gh", "-A", "grp", "--gpus", "1", "--time", "1h")

    def submit() -> subprocess.CompletedProcess[str]:
        words = ("submit", "--dry-run", *options, image, "python", "x.py")
        return kedge(*words, cache=tmp_path, check=False, environment=environment, cwd=tmp_path)

    assert_says(
        kedge("explain", image, "--on", queue, cache=tmp_path, environment=environment).stdout,
        "site/the-image-is-for",
        "amd64",
    )
    done = submit()
    assert done.returncode == WillNotRun.exit_code, done.stderr
    assert_says(done.stderr, "explain/image-site-tacc-vista-queue-gh")


def test_explain_through_a_proxy_that_hangs_gives_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question is not a pull: two attempts within the patience for it, where a pull makes six of 15 s and more."""
    monkeypatch.setattr("kedge.image.workplace._QUESTION_PATIENCE", 0.6)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        workplace = Workplace(Settings.load(environ={"HOME": str(tmp_path)}))
        tables = load_tables()
        for ask in (
            lambda: explain(Reference.parse("docker://registry.example/a/b:1"), workplace, tables=tables),
            lambda: list_image_tags(
                find_repository("registry.example/a/b", tables), workplace, tables, query=TagQuery()
            ),
        ):
            began = time.monotonic()
            with pytest.raises(NetworkFailed) as caught:
                ask()
            assert time.monotonic() - began < TransportOptions().connect_timeout, "what a pull waits for one attempt"
            assert 1 <= count_callers(proxy) <= 2
            assert_says(str(caught.value.hint), "image/try-more-often-retries-n")


def count_callers(server: socket.socket) -> int:
    """How many have connected to a server that accepts nobody, since the last look."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


def test_explain_tries_as_often_as_somebody_asks_for(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert Workplace(Settings.load(environ=environ)).hurry().is_hurried
    assert not Workplace(Settings.load({"retries": 5}, environ)).hurry().is_hurried
    assert not Workplace(Settings.load(environ={**environ, "KEDGE_RETRIES": "2"})).hurry().is_hurried


def test_explain_page_on_standard_output(tmp_path: Path) -> None:
    done = kedge("explain", "--offline", "--html", "-", IMAGE, *TARGET, cache=tmp_path)
    assert done.stdout.startswith("<!DOCTYPE html>")
    assert done.stdout.rstrip().endswith("</html>")
    refused = kedge("--json", "explain", "--offline", "--html", "-", IMAGE, *TARGET, cache=tmp_path, check=False)
    assert refused.returncode == UsageError.exit_code
