# SPDX-License-Identifier: BSD-3-Clause
"""The tutorials' recipes for real, with Debian's compiler in place of CUDA's: both kinds, one stage and two.

As an ordinary user; both kinds give the same files, the image of two stages is a tenth of the other or less, and the
real Apptainer runs it where there is one.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.apptainer import Apptainer
from tests.builders.containers import Runner, each_role
from tests.builders.debian_bases import make_debian, unpack_as
from tests.requirements import require_peer

PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
/* bodies that attract each other, as the sample of the tutorials has them */
int main(int count, char **words) {
    int bodies = count > 1 ? atoi(words[1]) : 100;
    double force = 0;
    for (int i = 1; i <= bodies; i++)
        for (int j = 1; j <= bodies; j++)
            if (i != j) force += 1.0 / sqrt((double)(i - j) * (i - j));
    printf("%d bodies, total force %.3f\n", bodies, force);
    return 0;
}
"""
BUILD_IT = """	apt-get update && \\
		apt-get install -y --no-install-recommends gcc libc6-dev
	cd /root && gcc -O2 -static nbody.c -o nbody -lm && mv nbody /usr/local/bin"""
BUILDER = f"%files\n\tnbody.c /root/nbody.c\n%post\n{BUILD_IT}\n"
DEFINITION = "Bootstrap: localimage\nFrom: {base}\n" + BUILDER.rstrip("\n")
DEFINITION_EFFICIENT = f"""Bootstrap: localimage
From: {{base}}
Stage: builder
{BUILDER}
# Change to an empty image
Bootstrap: scratch

# Copy the program
%files from builder
	/usr/local/bin/nbody /usr/local/bin/nbody
"""
DOCKERFILE = """FROM {base}
COPY nbody.c /root
RUN apt-get update && \\
    apt-get install -y --no-install-recommends gcc libc6-dev
RUN cd /root && gcc -O2 -static nbody.c -o nbody -lm && mv nbody /usr/local/bin
"""
DOCKERFILE_EFFICIENT = (
    DOCKERFILE.replace("{base}", "{base} AS builder")
    + "FROM scratch\nCOPY --from=builder /usr/local/bin/nbody /usr/local/bin/nbody\n"
)
RECIPES = {
    "Definition.nbody": DEFINITION,
    "Definition.nbody-efficient": DEFINITION_EFFICIENT,
    "Dockerfile.nbody": DOCKERFILE,
    "Dockerfile.nbody-efficient": DOCKERFILE_EFFICIENT,
}
# what a run of apt or ldconfig leaves that no two have in common, and what describes an image
CHANGING = (".singularity.d", "var/log", "var/cache", "var/lib/apt", "etc/hosts", "etc/resolv.conf")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Classroom:
    """A user who builds all of the recipes."""

    runner: Runner
    folder: Path

    def kedge(self, *words: str) -> str:
        done = subprocess.run(
            self.runner.argv(*words),
            env=self.runner.variables(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-1500:]}{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def classroom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Classroom]:
    archive = make_debian("bookworm", tmp_path_factory.mktemp("debian"))
    for runner in each_role("user"):
        copied = runner.folder / "base.tar"
        copied.write_bytes(archive.read_bytes())
        os.chown(runner.folder, runner.uid, runner.uid)
        base = unpack_as(runner, copied, runner.folder / "base")
        folder = runner.folder / "recipes"
        folder.mkdir()
        for name, text in {"nbody.c": PROGRAM, **RECIPES}.items():
            (folder / name).write_text(text.replace("{base}", str(base)))
        os.chown(folder, runner.uid, runner.uid)
        classroom = Classroom(runner, folder)
        for name in RECIPES:
            classroom.kedge("build", f"{name}.sif", name)
        yield classroom


def list_steps(text: str) -> list[str]:
    return [step["state"] for step in json.loads(text)["steps"]]


def test_tutorial_two_stages_are_a_tenth(classroom: Classroom) -> None:
    for kind in ("Definition", "Dockerfile"):
        sizes = [(classroom.folder / f"{kind}.nbody{end}.sif").stat().st_size for end in ("", "-efficient")]
        assert sizes[1] * 10 <= sizes[0], sizes


def test_tutorial_programs_run(classroom: Classroom) -> None:
    printed = {classroom.kedge("exec", f"{name}.sif", "/usr/local/bin/nbody", "1000") for name in RECIPES}
    assert len(printed) == 1
    assert printed.pop().startswith("1000 bodies, total force ")


def test_tutorial_programs_run_under_apptainer(classroom: Classroom) -> None:
    peer = Apptainer(classroom.folder, require_peer())
    images = [classroom.folder / f"{name}.sif" for name in RECIPES]
    answers = peer.answer(*(("exec", image, "/usr/local/bin/nbody", "1000") for image in images))
    assert {status for status, _ in answers} == {0}
    assert len({text for _, text in answers}) == 1


@pytest.mark.parametrize("end", ["", "-efficient"])
def test_tutorial_kinds_give_the_same_files(classroom: Classroom, end: str) -> None:
    trees = []
    for kind in ("Definition", "Dockerfile"):
        target = classroom.folder / f"tree-{kind}{end}"
        classroom.kedge("build", "--sandbox", str(target), f"{kind}.nbody{end}")
        trees.append(read_tree(target))
    assert trees[0] == trees[1]
    assert "usr/local/bin/nbody" in trees[0]


def read_tree(folder: Path) -> dict[str, tuple[str, object]]:
    """Kind, mode and content by path; contents by size where files are large."""
    tree: dict[str, tuple[str, object]] = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)), path.lstat()
        if name.startswith(CHANGING):
            continue
        content: object = ""
        if stat.S_ISLNK(status.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes() if status.st_size < 100_000 else status.st_size
        tree[name] = (oct(status.st_mode), content)
    return tree


def test_tutorial_second_build_runs_nothing(classroom: Classroom) -> None:
    states = list_steps(classroom.kedge("build", "--json", "--force", "again.sif", "Dockerfile.nbody-efficient"))
    assert set(states) == {"cached"}
