# SPDX-License-Identifier: BSD-3-Clause
"""`kedge build --protect` with a real pip, as an ordinary user: what the base ships stays, or the build fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, warm_runner
from tests.builders.python_images import PIP, make_python_image, write_wheel
from tests.wording import assert_says

runner = warm_runner

OWN = "2.1.0a0+32f93b1.nv24.03"  # as NVIDIA numbers its own builds


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
    words = ["build", *(["--protect"] if protect else []), "--format", "sandbox", str(runner.home / "made"), "."]
    return runner.run(*words, cwd=context)


def compare(runner: Runner) -> tuple[set[str], set[str]]:
    """The files that the image has and its base has not, and the other way round."""
    before, after = (
        {str(path.relative_to(folder)) for path in folder.rglob("*")}
        for folder in (runner.folder / "python", runner.home / "made")
    )
    return after - before, before - after


def list_packages(names: set[str]) -> set[str]:
    """What is installed, of these files."""
    return {Path(name).stem for name in names if name.endswith(".dist-info")}


INSTALL = "python3 -m pip install -q --find-links /wheels"


@pytest.mark.slow
def test_protect_lets_in_what_fits_and_keeps_what_is_there(runner: Runner, context: Path) -> None:
    done = build(runner, context, f"{INSTALL} lightning")
    assert done.returncode == 0, done.stderr
    added, removed = compare(runner)
    assert (list_packages(added), list_packages(removed)) == ({"lightning-2.0"}, set())
    assert not [name for name in added if "constraint" in name]
    done = build(runner, context, f"{INSTALL.replace(' -q', '')} extra")
    assert done.returncode == 91
    assert f"The user requested (constraint) framework=={OWN}" in done.stderr
    done = build(runner, context, f"{INSTALL} extra", protect=False)  # which is the default
    assert done.returncode == 0, done.stderr
    added, removed = compare(runner)
    assert (list_packages(added), list_packages(removed)) == ({"framework-2.3.0", "extra-1.0"}, {f"framework-{OWN}"})


@pytest.mark.slow
def test_protect_names_what_a_step_replaced_all_the_same(runner: Runner, context: Path) -> None:
    done = build(runner, context, f"PIP_CONSTRAINT= {INSTALL} extra")
    assert done.returncode == 92
    assert_says(done.stderr, "compat/dockerfile-framework-replaced", OWN)
    assert "--no-deps" in done.stderr
    assert not (runner.home / "made").exists()


# -- an image as NVIDIA makes them: packages in /usr/local, a constraints file that pip gets from the image


@pytest.fixture(scope="module")
def ngc(runner: Runner, context: Path) -> str:
    """The base as an image with a config, which pins framework itself, and uv where this host has it."""
    tool = Path(sys.executable).with_name("uv")
    lines = [f"FROM {runner.folder / 'python'}", *(f"ENV {name}={value}" for name, value in PIP.items())]
    lines += ["ENV PIP_CONSTRAINT=/etc/pip/constraint.txt UV_NO_INDEX=1 UV_SYSTEM_PYTHON=1 UV_BREAK_SYSTEM_PACKAGES=1"]
    lines += ["COPY wheels /wheels", "COPY constraint.txt /etc/pip/constraint.txt"]
    if tool.exists():
        shutil.copy(tool, context / "uv")
        (context / "libraries").mkdir()
        for name in ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libm.so.6"):
            for library in Path("/usr/lib").glob(f"*-linux-gnu/{name}"):
                shutil.copy(library, context / "libraries")
        lines += ["COPY uv /usr/local/bin/uv", "COPY libraries /lib", "ENV LD_LIBRARY_PATH=/lib"]
    conda = "/opt/conda/lib/python3.10/site-packages/framework-1.0.dist-info/METADATA"
    lines += [f'COPY <<"END" {conda}', "Metadata-Version: 2.1", "Name: framework", "Version: 1.0", "END"]
    (context / "constraint.txt").write_text(f"framework=={OWN}\n")
    (context / "base.Dockerfile").write_text("\n".join(lines) + "\n")
    give_to(runner, context)
    runner.read("build", "-t", "ngc:24.03", "-f", "base.Dockerfile", ".", cwd=context)
    return "ngc:24.03"


def build_on(
    runner: Runner, context: Path, base: str, *lines: str, output: tuple[str, ...] = ("-t", "made", "-f", "Dockerfile")
) -> subprocess.CompletedProcess[str]:
    (context / "Dockerfile").write_text("\n".join([f"FROM {base}", "RUN true", *lines]) + "\n")
    return runner.run("build", "--protect", *output, ".", cwd=context)


UNPINNED = INSTALL.replace("python3", "PIP_CONSTRAINT= python3")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        f"{UNPINNED} --user extra",
        f"{UNPINNED} --no-deps --force-reinstall framework==2.3.0",
        f"echo '{UNPINNED} -r /tmp/r.txt' > /tmp/s && echo framework==2.3.0 > /tmp/r.txt && sh /tmp/s && rm /tmp/*",
        "python3 -m pip uninstall -q -y framework",
        "rm -rf /opt/conda/lib/python3.10/site-packages/framework-1.0.dist-info",
    ],
    ids=["user", "no-deps", "script", "uninstall", "conda"],
)
def test_protect_names_package_step_and_line_on_an_image_of_ngc(
    runner: Runner, context: Path, ngc: str, command: str
) -> None:
    shutil.rmtree(runner.home / "made", ignore_errors=True)
    output = ("--format", "sandbox", str(runner.home / "made"))
    done = build_on(runner, context, ngc, f"RUN {command}", output=output)
    assert done.returncode == 92, done.stderr
    assert "kedge: Dockerfile:3:1: framework " in done.stderr
    assert "replaced by 2.3.0" in done.stderr or "was removed" in done.stderr
    assert not (runner.home / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        f"{INSTALL} --user lightning",
        f"{INSTALL} --upgrade lightning",
        f"{UNPINNED} --target /opt/other framework==2.3.0 && "
        "mkdir -p /opt/venv/lib/python3.11/site-packages/framework-2.3.0.dist-info && cd /opt/venv && : > pyvenv.cfg "
        "&& echo 'Name: framework\nVersion: 2.3.0' > lib/python3.11/site-packages/framework-2.3.0.dist-info/METADATA",
    ],
    ids=["user", "upgrade", "target and venv"],
)
def test_protect_lets_others_in_on_an_image_of_ngc(runner: Runner, context: Path, ngc: str, command: str) -> None:
    done = build_on(runner, context, ngc, "RUN " + command.replace("\n", "\\n"))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_protect_holds_for_uv(runner: Runner, context: Path, ngc: str) -> None:
    if not (context / "uv").exists():
        pytest.skip("uv is not installed")
    install = "RUN uv -q pip install --offline --find-links /wheels"
    done = build_on(runner, context, ngc, f"{install} lightning")
    assert done.returncode == 0, done.stderr
    done = build_on(runner, context, ngc, f"{install} extra")
    assert done.returncode == 91, done.stderr
    assert f"framework=={OWN.replace('03', '3')}" in done.stderr
    done = build_on(runner, context, ngc, install.replace("uv", "env -u UV_CONSTRAINT uv", 1) + " extra")
    assert done.returncode == 92, done.stderr
    assert_says(done.stderr, "compat/framework-replaced", OWN, "2.3.0")
