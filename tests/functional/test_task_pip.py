# SPDX-License-Identifier: BSD-3-Clause
"""The pages about Python packages, run by an ordinary user with a real pip: blocks below `<!-- tool: pip -->`.

`pytorch.sif` is this host's Python with a torch that is numbered as NVIDIA does, and wheels in place of PyPI. The
recipe for torchaudio is built over it, too, with a source of the same form: it needs torch to be built, and wants a
released one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to
from tests.builders.documents import read_tool_files, read_tool_steps
from tests.builders.python_images import make_python_image, write_wheel
from tests.functional.test_docs import judge_step
from tests.requirements import REPOSITORY

pytestmark = pytest.mark.slow
PAGES = ("docs/tasks/pip.md", "docs/tasks/develop.md")  # in this order: the second uses the environment of the first
TORCH = "2.1.0a0+32f93b1.nv24.03"
PROJECT = {
    "pyproject.toml": """[project]
name = "mypackage"
version = "1"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
""",
    "src/mypackage/__init__.py": "",
}
# what the recipe for torchaudio finds in place of GitHub and of Ubuntu's packages
AUDIO = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
    "setup.py": """from setuptools import setup
import torch
release = ".".join(torch.__version__.split(".")[:2])
setup(name="torchaudio", version=f"{release}.0", py_modules=["torchaudio"], install_requires=[f"torch=={release}.0"])
""",
    "torchaudio.py": "import torch\n__version__ = 'for ' + torch.__version__\n",
}
GIT = """#!/bin/sh
# 'git clone -b BRANCH https://github.com/pytorch/audio DIRECTORY'
[ "$1 $2 $4" = "clone -b https://github.com/pytorch/audio" ] && [ -d "/srv/$3" ] || exit 128
cp -r "/srv/$3" "$5"
"""
PROGRAMS = {"git": GIT, "apt-get": "#!/bin/sh\n", "cut": None}  # those without text are the host's


@pytest.fixture(scope="module")
def work(runner: Runner) -> Path:
    """A project directory with the image and the files that the pages show."""
    image = make_python_image(runner, programs=tuple(name for name, text in PROGRAMS.items() if text is None))
    for place, text in {
        **{f"usr/bin/{name}": text for name, text in PROGRAMS.items() if text},
        **{f"srv/release/2.1/{name}": text for name, text in AUDIO.items()},
    }.items():
        (image / place).parent.mkdir(parents=True, exist_ok=True)
        (image / place).write_text(text)
        (image / place).chmod(0o755)
    own = write_wheel(image / "own", "torch", TORCH)
    write_wheel(image / "wheels", "torch", "2.3.0")
    write_wheel(image / "wheels", "lightning", "2.0", requires=("torch>=2.0.0a0",))
    write_wheel(image / "wheels", "extra", "1.0", requires=("torch>=2.3",))
    (image / "etc/pip.conf").write_text(
        "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"
    )
    give_to(runner, image)
    install = ["python3", "-m", "pip", "install", "-q", f"/own/{own.name}"]
    runner.read("exec", "--fakeroot", "--writable", str(image), *install)
    folder = runner.home / "project"
    files = {
        **PROJECT,
        **{name: text for page in PAGES for name, text in read_tool_files(REPOSITORY / page, "pip").items()},
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    give_to(runner, folder)
    runner.read("convert", str(image), str(folder / "pytorch.sif"))
    return folder


def test_task_pip_commands_do_what_the_pages_show(runner: Runner, work: Path) -> None:
    kedge = runner.folder / "bin/kedge"
    kedge.parent.mkdir()
    kedge.write_text(f'#!/bin/sh\nexec {" ".join(runner.program)} "$@"\n')
    kedge.chmod(0o755)
    environment = runner.variables({"PATH": f"{kedge.parent}:/usr/bin:/bin"})
    environment.pop("PYTHONPATH", None)  # of the checkout
    environment.pop("KEDGE_KEEP", None)
    for page in PAGES:
        steps = read_tool_steps(REPOSITORY / page)["pip"]
        assert len(steps) >= 2
        for step in steps:
            judge_step(page, step, work, environment, runner.uid)


def build_audio(runner: Runner, work: Path, name: str, without: str = "") -> tuple[int, str]:
    """The page's recipe for torchaudio, built over the image of this test; `without` is left out of it."""
    page = (REPOSITORY / PAGES[0]).read_text()
    recipe = re.search(r"`torchaudio\.def`:\n\n```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert recipe
    text = re.sub(r"\ABootstrap: docker\nFrom: nvcr\.io/\S+", "Bootstrap: localimage\nFrom: pytorch.sif", recipe[1])
    assert text != recipe[1]
    assert without in text
    (work / f"{name}.def").write_text(text.replace(without, "", 1))
    done = runner.run("build", "--protect", f"{name}.sif", f"{name}.def", cwd=work)
    return done.returncode, done.stdout + done.stderr


def test_task_pip_recipe_for_torchaudio_builds_the_release_of_the_images_torch(runner: Runner, work: Path) -> None:
    status, said = build_audio(runner, work, "torchaudio")
    assert status == 0, said
    assert f"for {TORCH}" in said  # what %test prints
    told = runner.read("image", "diff", str(work / "pytorch.sif"), str(work / "torchaudio.sif"))
    assert "torchaudio" in told
    assert "torch " not in told


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (" --no-deps", "torch==2.1.0"),
        (" --no-build-isolation", "No matching distribution found for setuptools"),
        (" | cut -d. -f1,2", "128"),
    ],
)
def test_task_pip_recipe_for_torchaudio_needs_each_word(runner: Runner, work: Path, word: str, why: str) -> None:
    (work / "fails.sif").unlink(missing_ok=True)
    status, said = build_audio(runner, work, "fails", without=word)
    assert status != 0, said
    assert why in said
    assert not (work / "fails.sif").exists()
