# SPDX-License-Identifier: BSD-3-Clause
"""Containers that srun starts itself: the folder of the job is there and is where the command begins, in all verbs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.errors import RequestRefused

IMAGE = "docker://nvcr.io/nvidia/pytorch:24.03-py3"
SITE = ("--site", "nvidia-pyxis")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = tmp_path / "my work"
    found.mkdir()
    monkeypatch.chdir(found)
    return found


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main([*words])
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def test_pyxis_scripts_mount_the_folder_and_begin_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    _, script = run(capsys, "submit", "--dry-run", *SITE, "--bind", "/data:/d:ro", IMAGE, "python", "train.py")
    command = script.partition("\nsrun ")[2].partition("\n# submitted")[0].replace("\\\n    ", "")
    assert "--container-image='nvcr.io#nvidia/pytorch:24.03-py3'" in command
    assert '--container-workdir="$PWD" --container-mounts="$PWD:$PWD",/data:/d:ro python train.py' in command


def test_pyxis_allocations_are_those_of_srun(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    status, shown = run(capsys, "alloc", "--dry-run", *SITE, "--env", "A=b c", IMAGE, "python", "-V")
    assert status == 0, shown
    assert "--pty '--container-image=nvcr.io#nvidia/pytorch:24.03-py3'" in shown
    assert f"'--container-workdir={folder}' '--container-mounts={folder}:{folder}' env 'A=b c' python -V\n" in shown
    _, shell = run(capsys, "alloc", "--dry-run", *SITE, "--nodes", "2", IMAGE)
    assert "salloc " in shell
    assert "srun --interactive --preserve-env --pty '--container-image=" in shell
    assert "exec bash; exec sh'\n" in shell
    assert "kedge shell" not in shell


@pytest.mark.parametrize("verb", ["submit", "alloc"])
def test_pyxis_refuses_what_it_cannot_do(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    options = ("--site", "generic-pbs", "--runtime", "pyxis")
    status, said = run(capsys, verb, "--dry-run", *options, IMAGE, "true")
    assert (status, "Pyxis is a part of Slurm" in said) == (RequestRefused.exit_code, True)
    odd = folder / "a,b"
    odd.mkdir()
    monkeypatch.chdir(odd)
    status, said = run(capsys, verb, "--dry-run", *SITE, IMAGE, "true")
    assert (status, "with a comma or a colon" in said) == (RequestRefused.exit_code, True)


@pytest.mark.parametrize("verb", ["submit", "alloc"])
def test_pyxis_does_not_put_the_root_of_the_node_over_that_of_the_image(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    if verb == "submit" and not os.access("/", os.W_OK):
        pytest.skip("a job's output goes to the directory it is submitted from, here /")
    monkeypatch.chdir("/")
    status, shown = run(capsys, verb, "--dry-run", *SITE, IMAGE, "true")
    assert "--container-image=" in shown
    assert (status, "--container-mounts" in shown, "--container-workdir" in shown) == (0, False, False)
