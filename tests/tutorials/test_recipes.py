# SPDX-License-Identifier: BSD-3-Clause
"""The tutorials' recipes for real, with Debian's compiler in place of CUDA's: both kinds, one stage and two.

As an ordinary user; both kinds give the same files, the image of two stages is a tenth of the other or less, and the
real Apptainer runs it where there is one. The recipes with Python and MPI are in `test_recipes_python.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.builders.apptainer import Apptainer
from tests.requirements import require_peer
from tests.tutorials.classroom import KINDS, Classroom, open_classroom

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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def classroom() -> Iterator[Classroom]:
    for classroom in open_classroom():
        for name, text in {"nbody.c": PROGRAM, **RECIPES}.items():
            classroom.write(name, text)
        for name in ("nbody", "nbody-efficient"):
            classroom.build_both(name)
        yield classroom


def list_steps(text: str) -> list[str]:
    return [step["state"] for step in json.loads(text)["steps"]]


def test_tutorial_two_stages_are_a_tenth(classroom: Classroom) -> None:
    for kind in KINDS:
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


@pytest.mark.parametrize("name", ["nbody", "nbody-efficient"])
def test_tutorial_kinds_give_the_same_files(classroom: Classroom, name: str) -> None:
    definition, dockerfile = classroom.read_trees(name)
    assert definition == dockerfile
    assert "usr/local/bin/nbody" in definition


def test_tutorial_second_build_runs_nothing(classroom: Classroom) -> None:
    states = list_steps(classroom.kedge("build", "--json", "--force", "again.sif", "Dockerfile.nbody-efficient"))
    assert set(states) == {"cached"}
