# SPDX-License-Identifier: BSD-3-Clause
"""Containers from Python: results, failures of the program and of kedge told apart, values that arrive as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

import kedge
from kedge.errors import CannotStart, CorruptImage, FileProblem, NetworkFailed, ProgramFailed, UsageError
from kedge.system.kedge_child import read_error
from tests.builders.containers import make_sandbox
from tests.requirements import require_user_namespaces


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_user_namespaces()
    monkeypatch.setenv("KEDGE_NODEDIR", str(tmp_path / "node"))
    monkeypatch.setenv("KEDGE_CACHEDIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sandbox(tmp_path_factory.mktemp("images") / "image")


def test_api_run_gives_status_and_output(image: Path) -> None:
    done = kedge.run(image, ["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert isinstance(done, kedge.Finished)
    assert (done.status, done.text) == (3, "out\n")
    assert b"err\n" in done.errors
    assert done.argv[:2] == ("kedge", "exec")


def test_api_run_takes_a_path_for_a_path(image: Path) -> None:
    """A string of that name would be a reference."""
    Path("oci:image").symlink_to(image)
    assert kedge.run(Path("oci:image"), ["echo", "here"]).text == "here\n"
    assert kedge.unpack(Path("oci:image")).root == Path("oci:image").absolute()


def test_api_run_without_command_is_the_images_script(image: Path) -> None:
    assert kedge.run(image).text == "runs\n"


def test_api_run_binds_and_starts_where_asked(image: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = kedge.run(image, ["pwd"], binds=[f"{tmp_path}/data:/inside:ro"], pwd="/inside", options=["--containall"])
    assert done.text == "/inside\n"


def test_api_run_variables_arrive_as_they_are(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "$HOME `id` \\ \"quoted\" 'single', a=b"
    monkeypatch.setenv("KEDGEENV_VALUE", "of the caller")
    assert kedge.run(image, ["sh", "-c", 'printf %s "$VALUE"'], env={"VALUE": value}).text == value


def test_api_run_raises_what_the_program_did(image: Path) -> None:
    with pytest.raises(ProgramFailed, match="'sh' failed with status 3") as raised:
        kedge.run(image, ["sh", "-c", "echo broken >&2; exit 3"])
    assert raised.value.context["status"] == "3"
    assert "broken" in raised.value.context["stderr"]
    with pytest.raises(ProgramFailed, match="was killed by SIGKILL"):
        kedge.run(image, ["sh", "-c", "kill -9 $$"])
    with pytest.raises(ProgramFailed, match="'sleep' gave no answer within"):
        kedge.run(image, ["sleep", "60"], timeout=0.5)


def test_api_run_raises_what_kedge_could_not_do(image: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="executable file not found"):
        kedge.run(image, ["nosuch"], check=False)
    with pytest.raises(FileProblem, match=r"nosuch\.sif"):
        kedge.run("nosuch.sif", ["ls"])
    with pytest.raises(UsageError, match="list of words"):
        kedge.run(image, "ls -l")
    with pytest.raises(UsageError, match="--security"):
        kedge.run(image, ["ls"], options=["--security", "uid:1"])


def test_api_run_raises_what_the_pull_could_not_do(image: Path) -> None:
    with pytest.raises(NetworkFailed, match=r"127\.0\.0\.1:1"):
        kedge.run("docker://127.0.0.1:1/nobody", ["ls"])
    kedge.pull("host:sh", "broken.sqsh", format="squashfs")
    with Path("broken.sqsh").open("r+b") as file:
        file.seek(96)
        file.write(b"\xff" * 4096)
    with pytest.raises(CorruptImage):
        kedge.run("broken.sqsh", ["ls"], options=["--root-from", "unpack"])


def test_api_run_status_255_of_a_program_is_the_programs(image: Path) -> None:
    told = '{"error": "usage"}'
    done = kedge.run(image, ["sh", "-c", f"echo '{told}'; exit 255"], check=False)
    assert (done.status, done.text) == (255, told + "\n")
    assert read_error(b"{broken}") is None


def test_api_run_without_capture_has_the_callers_streams(image: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = kedge.run(image, ["echo", "seen"], capture=False)
    assert (done.output, capfd.readouterr().out) == (b"", "seen\n")
    with pytest.raises(ProgramFailed, match="status 255"):
        kedge.run(image, ["nosuch"], capture=False)
    assert "executable file not found" in capfd.readouterr().err


def test_api_unpack_makes_an_image_ready(tmp_path: Path) -> None:
    kedge.pull("host:sh,ls", "tools.sif")
    first = kedge.unpack("tools.sif")
    assert first.is_new
    assert (first.root / "bin/sh").exists()
    assert not kedge.unpack("tools.sif").is_new
    assert "sh" in kedge.run("tools.sif", ["ls", "/usr/bin"], options=["--root-from", "unpack"]).text
    with pytest.raises(UsageError, match="'often'"):
        kedge.unpack("tools.sif", pull="often")
