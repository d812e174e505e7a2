# SPDX-License-Identifier: BSD-3-Clause
"""Notebooks as an ordinary user has them: real jupyter_client, nbconvert and JupyterLab, images with and without
ipykernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.errors import NotebookProblem, OutputExists
from tests.builders.containers import Runner, as_user, each_role
from tests.builders.notebook_images import make_lab_image, make_plain_image, require_jupyter
from tests.builders.pypi_tools import UNREACHABLE
from tests.builders.waiting import wait_until
from tests.requirements import REPOSITORY
from tests.wording import assert_says

pytestmark = pytest.mark.slow
CELLS = str(REPOSITORY / "tests/programs/run_cells.py")
SHOW = "import os, sys; print(os.environ['APPTAINER_NAME'], [each for each in sys.path if 'of-the-host' in each])"
WHENCE = "import ipykernel, sys; print(ipykernel.__file__, sys.path[-1])"


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    require_jupyter()
    yield from each_role("user", is_warm=True)


@pytest.fixture(scope="module")
def lab(runner: Runner) -> Path:
    return make_lab_image(runner)


@pytest.fixture(scope="module")
def plain(runner: Runner) -> Path:
    return make_plain_image(runner)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, runner: Runner) -> Path:
    """ipykernel and all it needs for the system's Python, as a user without network brings it along."""
    folder = runner.folder / "wheels"
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    words = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), "--only-binary", ":all:"]
    done = subprocess.run(
        [*words, "--python-version", version, "ipykernel"], capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode:
        pytest.skip(f"{UNREACHABLE}: {done.stderr[-300:]}")
    folder.chmod(0o755)
    return folder


def start(runner: Runner, *words: str) -> subprocess.Popen[str]:
    """A program of Jupyter's installation, with a PYTHONPATH that no container is to see."""
    environ = runner.variables({"PYTHONPATH": "/of-the-host", "LANG": "C.UTF-8"})
    del environ["KEDGE_KEEP"]
    argv = [str(require_jupyter() / words[0]), *words[1:]]
    return subprocess.Popen(
        as_user(runner.uid, argv), env=environ, cwd=runner.home, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(program: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = program.communicate(timeout=180)
    assert program.returncode == 0, errors
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def install(runner: Runner, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(runner.read("jupyter", "install", "--json", *words))
    return found


def test_kernel_of_an_image_that_has_ipykernel(runner: Runner, lab: Path) -> None:
    kernel = install(runner, "--name", "Two words", str(lab))
    assert (kernel["name"], kernel["packages"], kernel["installed"]) == ("two-words", "", True)
    both = [start(runner, "python", CELLS, "two-words", SHOW, WHENCE) for _ in range(2)]
    for found in map(finish, both):
        assert found["printed"][0] == "lab []\n"
        assert found["printed"][1].startswith("/usr/local/lib/python3")
        assert (found["interrupted"], found["lives"]) == ("KeyboardInterrupt", False)
        assert found["waited"] < 20


def test_kernel_brings_an_ipykernel_behind_the_packages_of_the_image(runner: Runner, plain: Path, wheels: Path) -> None:
    kernel = install(runner, "--name", "brought", "--wheels", str(wheels), "--option", "--contain", str(plain))
    assert kernel["packages"] == f"{kernel['path']}/packages"
    found = finish(start(runner, "python", CELLS, "brought", WHENCE))
    assert found["printed"] == [f"{kernel['packages']}/ipykernel/__init__.py {kernel['packages']}\n"]
    assert found["interrupted"] == "KeyboardInterrupt"
    assert not list(runner.home.glob(".cache/*/wheels*"))
    again = install(runner, "--name", "shares", "--packages", kernel["packages"], str(plain))
    assert (again["packages"], again["ipykernel"]) == (kernel["packages"], kernel["ipykernel"])


def test_notebook_is_executed_by_nbconvert(runner: Runner, lab: Path) -> None:
    install(runner, "--name", "batch", "--replace", str(lab))
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": SHOW, "id": "a"}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (runner.home / "in.ipynb").write_text(json.dumps(notebook))
    words = ("nbconvert", "--execute", "--to", "notebook", "--output", "out", "in.ipynb")
    done = start(runner, "jupyter", *words, "--ExecutePreprocessor.kernel_name=batch")
    _, errors = done.communicate(timeout=180)
    assert done.returncode == 0, errors
    [run] = json.loads((runner.home / "out.ipynb").read_text())["cells"]
    assert run["outputs"][0]["text"] == ["lab []\n"]


def test_kernel_whose_image_is_gone_says_so_in_jupyters_log(runner: Runner, lab: Path) -> None:
    moved = runner.home / "moved"
    moved.symlink_to(lab)
    install(runner, "--name", "gone", str(moved))
    moved.unlink()
    program = start(runner, "python", CELLS, "gone", SHOW)
    _, errors = program.communicate(timeout=120)
    assert program.returncode != 0
    assert re.search(rf"kedge: .*{moved}", errors), errors


def test_kernel_in_a_job_of_the_local_queue(runner: Runner, lab: Path) -> None:
    install(runner, "--name", "queued", "--site", "local", "--time", "5m", str(lab))
    found = finish(start(runner, "python", CELLS, "queued", SHOW, "print('x' * 1_000_000)"))
    assert found["printed"][0] == "lab []\n"
    assert len(found["printed"][1]) == 1_000_001
    assert (found["interrupted"], found["lives"]) == ("KeyboardInterrupt", False)


def test_kernels_are_listed_shown_before_and_removed(runner: Runner, lab: Path, tmp_path: Path) -> None:
    prefix = ("--prefix", str(runner.home / "environment"))
    dry = json.loads(runner.read("jupyter", "install", "--json", "--dry-run", "--nv", *prefix, str(lab)))
    assert not dry["installed"]
    assert dry["argv"][-4:] == ["--option", "--nv", "--", str(lab)]
    assert json.loads(runner.read("jupyter", "list", "--json", *prefix)) == {"kernels": []}
    install(runner, *prefix, str(lab))
    assert runner.run("jupyter", "install", *prefix, str(lab)).returncode == OutputExists.exit_code
    assert "lab-kedge  lab (kedge)" in runner.read("jupyter", "list", *prefix)
    assert "lab-kedge" in runner.read("jupyter", "remove", *prefix, "lab-kedge")
    missing = runner.run("jupyter", "remove", *prefix, "lab-kedge")
    assert (missing.returncode, "kedge jupyter list" in missing.stderr) == (NotebookProblem.exit_code, True)


def test_kernel_without_packages_and_network_names_the_remedy(runner: Runner, plain: Path) -> None:
    (runner.home / "empty").mkdir()
    done = runner.run("jupyter", "install", "--name", "no", "--wheels", "empty", str(plain))
    assert done.returncode == NotebookProblem.exit_code
    assert_says(done.stderr, "jupyter/pip-download-d-dir-python-version")
    assert not [path for path in (runner.home / ".local/share/jupyter/kernels").iterdir() if path.name[:2] == "no"]


def test_image_without_python_or_lab_is_refused(runner: Runner, plain: Path) -> None:
    runner.read("pull", "sh.sif", "host:sh")
    without = runner.run("jupyter", "install", "sh.sif")
    assert (without.returncode, "has no python3" in without.stderr) == (NotebookProblem.exit_code, True)
    server = runner.run("jupyter", "lab", str(plain))
    assert (server.returncode, "kedge jupyter install" in server.stderr) == (NotebookProblem.exit_code, True)


def test_lab_answers_who_has_the_token(runner: Runner, lab: Path) -> None:
    program = subprocess.Popen(
        runner.argv("--json", "jupyter", "lab", str(lab)), env=runner.variables(), cwd=runner.home, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        lines = []
        for line in program.stdout:
            lines.append(line)
            if line.startswith("}"):
                break
        plan = json.loads("".join(lines))
        assert plan["tunnel"].startswith(f"ssh -N -L {plan['port']}:localhost:{plan['port']} ")
        address = f"http://127.0.0.1:{plan['port']}/api/kernelspecs"
        wait_until("the server answers", lambda: ask(address, plan["token"])[0] == 200)
        assert "python3" in json.loads(ask(address, plan["token"])[1])["kernelspecs"]
        assert ask(address, "wrong")[0] == 403
        assert plan["token"] not in Path(f"/proc/{program.pid}/cmdline").read_text()
    finally:
        program.terminate()
        program.communicate(timeout=30)


def ask(address: str, token: str) -> tuple[int, str]:
    """Status and text of an answer; 0 while nobody answers."""
    request = urllib.request.Request(address, headers={"Authorization": f"token {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, ""
    except OSError:
        return 0, ""
