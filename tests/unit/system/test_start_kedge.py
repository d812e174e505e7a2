# SPDX-License-Identifier: BSD-3-Clause
"""How kedge starts itself: what a child finds, and what it is told that its variables would have said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kedge
from kedge.base.release import VERSION
from kedge.system import start_kedge
from kedge.system.start_kedge import own_command, own_start_command
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY

PACKAGE = Path(kedge.__file__).parent


def test_command_is_this_interpreter_and_this_package() -> None:
    words = own_command("--json", "pull", "-m")
    assert (words[0], words[-4:]) == (sys.executable, [f"{PACKAGE}/__main__.py", "--json", "pull", "-m"])
    assert {"-E", "-P"} < set(words)
    done = subprocess.run(own_command("--version"), env={}, capture_output=True, text=True, check=True, cwd="/")
    assert VERSION in done.stdout


def test_starts_do_without_site_where_kedge_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a start may need later lies beside the package then; a checkout has it elsewhere."""
    assert own_start_command("rank") == own_command("rank"), "this checkout"
    monkeypatch.setattr(start_kedge, "_PACKAGE", str(tmp_path / "kedge"))
    (tmp_path / "urllib3").mkdir()
    (tmp_path / "kedge").symlink_to(PACKAGE)
    words = own_start_command("--version")
    assert words == [sys.executable, "-S", *own_command("--version")[1:]]
    done = subprocess.run(words, env={}, capture_output=True, text=True, check=True, cwd="/")
    assert VERSION in done.stdout


def test_child_finds_what_pythonpath_names_and_nothing_relative(tmp_path: Path) -> None:
    """The checkout is not installed for this Python: kedge comes by its path, the rest by PYTHONPATH."""
    tell = "import json; print(json.dumps(sys.path))"
    source = (PACKAGE / "__main__.py").read_text()
    twin = tmp_path / "twin/kedge/__main__.py"
    twin.parent.mkdir(parents=True)
    twin.write_text(source.partition("from kedge.cli")[0] + tell)
    environment = {"PYTHONPATH": f":.:lib:{tmp_path}:/x/", "HOME": "/nowhere"}
    argv = [sys.executable, "-E", "-P", str(twin)]
    done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found[:3] == [str(tmp_path / "twin"), str(tmp_path), "/x/"]
    assert all(each.startswith("/") for each in found)


@pytest.mark.parametrize(
    ("variables", "flags"),
    [
        ({}, []),
        ({"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}, ["-B", "-X", "utf8"]),
        (
            {"PYTHONNOUSERSITE": "1", "PYTHONPYCACHEPREFIX": "{place}/x"},
            ["-s", "-X", "pycache_prefix={place}/x"],
        ),
        ({"PYTHONPYCACHEPREFIX": "x"}, []),
    ],
)
def test_command_repeats_what_variables_said(tmp_path: Path, variables: dict[str, str], flags: list[str]) -> None:
    own = {name: value.format(place=tmp_path) for name, value in variables.items()}
    ask = "import json; from kedge.system.start_kedge import own_command; print(json.dumps(own_command()))"
    environment = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(REPOSITORY / "src"), "PYTHONCOERCECLOCALE": "0", **own}
    environment.setdefault("PYTHONUTF8", "0")
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, check=True, cwd=tmp_path)
    told = [flag.format(place=tmp_path) for flag in flags]
    assert json.loads(done.stdout) == [sys.executable, "-E", "-P", *told, f"{PACKAGE}/__main__.py"]


@each_row("search", [":/x", ".", "site-packages"])
def test_script_works_where_the_interpreter_has_its_own_modules(search: str) -> None:
    """Whoever stands there has it in PYTHONPATH by accident; Python cannot do without."""
    script = str(REPOSITORY / "scripts/kedge")
    for folder in (Path(os.__file__).parent, Path(pytest.__file__).parent.parent):
        environment = {"PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, script, "--version"]
        done = subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, VERSION in done.stdout) == (0, True), done.stderr
