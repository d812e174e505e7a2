# SPDX-License-Identifier: BSD-3-Clause
"""`kedge build --protect` with a real pip, as an ordinary user: what the base ships stays, or the build fails."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to
from tests.builders.python_images import PIP, make_python_image, write_wheel

OWN = "2.1.0a0+32f93b1.nv24.03"  # as NVIDIA numbers its own builds


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    yield from each_role("user")


@pytest.fixture(scope="module")
def context(runner: Runner) -> Path:
    """A base that ships framework OWN and tool 1.0, and wheels of others."""
    folder = runner.home / "context"
    wheels = folder / "wheels"
    write_wheel(wheels, "framework", "2.3.0")
    write_wheel(wheels, "extra", "1.0", requires=("framework>=2.3",))
    write_wheel(wheels, "lightning", "2.0", requires=("framework>=2.0.0a0", "tool"))
    write_wheel(wheels, "tool", "1.5")
    image = make_python_image(runner)
    shipped = runner.folder / "shipped"
    names = [write_wheel(shipped, "framework", OWN), write_wheel(shipped, "tool", "1.0")]
    give_to(runner, shipped)
    words = [word for name, value in PIP.items() for word in ("--env", f"{name}={value}")]
    runner.read("exec", "--fakeroot", "--writable", *words, "--bind", str(shipped), str(image),
                "python3", "-m", "pip", "install", "-q", *map(str, names))  # fmt: skip
    return give_to(runner, folder)


def build(runner: Runner, context: Path, *commands: str, protect: bool = True) -> subprocess.CompletedProcess[str]:
    lines = [f"FROM {runner.folder / 'python'}", *(f"ENV {name}={value}" for name, value in PIP.items())]
    lines += ["COPY wheels /wheels", *(f"RUN {command}" for command in commands)]
    shutil.rmtree(runner.home / "made", ignore_errors=True)
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    words = [
        "build",
        *(["--protect"] if protect else []),
        "--format",
        "sandbox",
        str(runner.home / "made"),
        ".",
    ]
    return runner.run(*words, cwd=context)


INSTALL = "python3 -m pip install -q --find-links /wheels"


@pytest.mark.slow
def test_protect_lets_in_what_fits_and_keeps_what_is_there(runner: Runner, context: Path) -> None:
    done = build(runner, context, f"{INSTALL} lightning")
    assert done.returncode == 0, done.stderr
    difference = json.loads(
        runner.read("image", "diff", "--json", str(runner.folder / "python"), str(runner.home / "made"))
    )
    assert [(change["name"], change["after"]) for change in difference["packages"]] == [("lightning", "2.0")]
    assert not [change["path"] for change in difference["files"] if "constraint" in change["path"]]


@pytest.mark.slow
def test_protect_pip_refuses_what_does_not_fit(runner: Runner, context: Path) -> None:
    done = build(runner, context, f"{INSTALL.replace(' -q', '')} extra")
    assert done.returncode == 91
    assert f"The user requested (constraint) framework=={OWN}" in done.stderr


@pytest.mark.slow
def test_protect_names_what_a_step_replaced_all_the_same(runner: Runner, context: Path) -> None:
    done = build(runner, context, f"PIP_CONSTRAINT= {INSTALL} extra")
    assert done.returncode == 92
    assert f"Dockerfile:6:1: framework {OWN} was replaced by 2.3.0" in done.stderr
    assert "--no-deps" in done.stderr
    assert not (runner.home / "made").exists()


@pytest.mark.slow
def test_protect_is_not_the_default(runner: Runner, context: Path) -> None:
    done = build(runner, context, f"{INSTALL} extra", protect=False)
    assert done.returncode == 0, done.stderr
    difference = json.loads(
        runner.read("image", "diff", "--json", str(runner.folder / "python"), str(runner.home / "made"))
    )
    changes = {change["name"]: (change["before"], change["after"]) for change in difference["packages"]}
    assert changes == {"framework": (OWN, "2.3.0"), "extra": (None, "1.0")}
