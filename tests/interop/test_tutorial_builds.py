# SPDX-License-Identifier: BSD-3-Clause
"""The tutorials' recipes with sources that can be had here, built for real as an ordinary user, as both kinds.

A program is compiled in Debian with packages of its archive, and copied out in a second stage. Both kinds give the same
files, the second stage is a fraction of the first, and Apptainer runs the results.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.apptainer import Apptainer, apptainer_folder
from tests.builders.builds import Workshop
from tests.builders.containers import each_role
from tests.builders.debian_bases import make_debian

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.root, pytest.mark.timeout(1800)]

PROGRAM = """#include <math.h>
#include <stdio.h>
int main(void) {
    double x = 0, v = 1;
    for (int step = 0; step < 100000; step++) { v -= sin(x) * 1e-3; x += v * 1e-3; }
    printf("position %.3f\\n", x);
    return 0;
}
"""
INSTALL = "apt-get update -qq && apt-get install -qq -y --no-install-recommends gcc libc6-dev"
BINARY = "/usr/local/bin/nbody"
COMPILE = f"gcc -O2 -static -o {BINARY} /root/nbody.c -lm"
DOCKERFILE = f"FROM ./base.sif AS builder\nCOPY nbody.c /root/\nRUN {INSTALL}\nRUN {COMPILE}\n"
DEFINITION = (
    f"Bootstrap: localimage\nFrom: base.sif\nStage: builder\n%files\nnbody.c /root/\n%post\n{INSTALL}\n{COMPILE}\n"
)
RECIPES = {
    "Dockerfile.nbody": DOCKERFILE,
    "nbody.def": DEFINITION,
    "Dockerfile.nbody-efficient": f"{DOCKERFILE}FROM scratch\nCOPY --from=builder {BINARY} {BINARY}\n",
    "nbody-efficient.def": f"{DEFINITION}\nBootstrap: scratch\nStage: final\n%files from builder\n{BINARY}\n",
}
# What apt writes with times in it, what kedge adds to an image, and what a container gets from the host.
VOLATILE = (
    *(
        "/.singularity.d",
        "/.exec",
        "/.run",
        "/.shell",
        "/.test",
        "/environment",
        "/singularity",
        "/proc",
        "/sys",
        "/dev",
    ),
    *("/tmp", "/run", "/var/log", "/var/cache", "/var/lib/apt", "/etc/passwd", "/etc/group", "/etc/hosts"),
    *("/etc/resolv.conf", "/etc/localtime", "/home", "/var/tmp", "/etc/hostname"),
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    archive = make_debian("bookworm", tmp_path_factory.mktemp("debian"))
    for runner in each_role("user"):
        shop = Workshop.open(runner)
        tree = runner.folder / "debian"
        subprocess.run(["tar", "-xpf", str(archive), "-C", str(_make(tree)), "--exclude=./dev/*"], check=True)
        subprocess.run(["chown", "-R", f"{runner.uid}:{runner.uid}", str(tree)], check=True)
        _build(shop, "base.sif", str(tree))
        shutil.rmtree(tree)
        shop.write("nbody.c", PROGRAM)
        for name, text in RECIPES.items():
            shop.write(name, text)
            _build(shop, f"{name}.sif", name)
        yield shop


def _make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _build(shop: Workshop, *words: str) -> None:
    runner = shop.runner
    argv, env = runner.argv("build", *words), runner.variables(None)
    done = subprocess.run(argv, env=env, cwd=shop.context, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def list_files(shop: Workshop, image: str) -> list[str]:
    """Kind, mode, name, target and content of all files that do not depend on the time of the build."""
    left = " -o ".join(f"-path {path}" for path in VOLATILE)
    script = (
        f"find / -xdev \\( {left} \\) -prune -o -printf '%y %m %p %l\\n';"
        f"find / -xdev \\( {left} \\) -prune -o -type f -exec md5sum {{}} +"
    )
    return sorted(shop.exec(image, "sh", "-c", script).splitlines())


def test_tutorials_both_kinds_give_the_same_tree(shop: Workshop) -> None:
    theirs, ours = (list_files(shop, f"{name}.sif") for name in ("Dockerfile.nbody", "nbody.def"))
    assert len(ours) > 1000
    assert [line for line in ours if line not in set(theirs)] == []
    assert [line for line in theirs if line not in set(ours)] == []


@pytest.mark.parametrize(
    ("large", "small"),
    [("Dockerfile.nbody", "Dockerfile.nbody-efficient"), ("nbody.def", "nbody-efficient.def")],
)
def test_tutorials_the_second_stage_is_small(shop: Workshop, large: str, small: str) -> None:
    sizes = [(shop.context / f"{name}.sif").stat().st_size for name in (large, small)]
    assert sizes[0] > 10 * sizes[1]
    assert shop.exec(f"{small}.sif", BINARY).startswith("position ")


@pytest.fixture
def apptainer() -> Iterator[Apptainer]:
    with apptainer_folder() as made:
        yield made


@pytest.mark.parametrize("name", RECIPES)
def test_tutorials_run_under_apptainer(shop: Workshop, apptainer: Apptainer, name: str) -> None:
    image = apptainer.folder / "image.sif"
    shutil.copy(shop.context / f"{name}.sif", image)
    image.chmod(0o755)
    done = apptainer.run("exec", image, BINARY)
    assert done.stdout.startswith("position ")
