# SPDX-License-Identifier: BSD-3-Clause
"""The tutorials' recipes with Python for real: π with MPI, a classifier with its data, packages beside a framework.

As an ordinary user, as both kinds, over Debian with its own packages; the framework is a wheel that is written here.
Both kinds give the same files, and the real Apptainer runs the images where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.builders.apptainer import Apptainer
from tests.builders.containers import give_to
from tests.builders.python_images import write_wheel
from tests.requirements import require_peer
from tests.tutorials.classroom import KINDS, Classroom, open_classroom

PI = """#!/usr/bin/env python3
import random
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
points = int(sys.argv[1]) // world.size
generator = random.Random(world.rank)
inside = sum(generator.random() ** 2 + generator.random() ** 2 <= 1 for _ in range(points))
print(f"rank {world.rank} of {world.size}: {points} points", flush=True)
total = world.reduce(inside, op=MPI.SUM, root=0)
if world.rank == 0:
    print(f"pi is about {4 * total / (points * world.size):.2f}", flush=True)
"""
APT = "apt-get install -y --no-install-recommends openmpi-bin python3-mpi4py python3-pip"
DOCKERFILE_MPI = f"""FROM {{base}}
ENV OMPI_MCA_rmaps_base_oversubscribe=1
RUN apt-get update \\
    && {APT} \\
    && apt-get clean
COPY pi-mpi.py /usr/local/bin/
RUN chmod +rx /usr/local/bin/pi-mpi.py
"""
CLASSIFIER = """#!/usr/bin/env python3
import csv
import pathlib

here = pathlib.Path(__file__).parent
for name in ("train", "valid", "test"):
    rows = list(csv.DictReader((here / f"{name}.csv").open()))
    print(name, len(rows), sum(row["label"] == "1" for row in rows))
"""
DATA = {f"{name}.csv": f"label,title\n1,{name}\n0,other\n" for name in ("test", "train", "valid")}
DOCKERFILE_CLASSIFIER = """FROM ./Dockerfile.mpi.sif
WORKDIR /code
ENV PATH=/code:$PATH
COPY test.csv train.csv valid.csv /code/\x20
COPY classifier.py /code
RUN chmod +rx /code/classifier.py
"""
DEFINITION_CLASSIFIER = """Bootstrap: localimage
From: Dockerfile.mpi.sif
%files
    test.csv /code/
    train.csv /code/
    valid.csv /code/\x20
    classifier.py /code
%post
    chmod +rx /code/classifier.py
%environment
    export PATH=/code:$PATH
"""
# The base that ships a framework: numbered as NVIDIA numbers its own builds, so that an index has a newer one.
OWN = "2.1.0a0+32f93b1.nv24.03"
LISTED = "2.1.0a0+32f93b1.nv24.3"  # the same, as pip writes it
DOCKERFILE_FRAMEWORK = f"""FROM ./Dockerfile.mpi.sif
COPY pip.conf /etc/pip.conf
COPY wheels /wheels
RUN pip install framework=={OWN}
"""
PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"
CONSTRAIN = """pip list | awk '{print$1"=="$2}' | tail +3 > /root/base_constraints.txt"""
CONSTRAINED = "pip install -c /root/base_constraints.txt"
FRAMEWORK = {
    "Dockerfile": "FROM ./framework.sif",
    "Definition": "# stays whole\nBootstrap: localimage\nFrom: framework.sif",
}
RECIPES = {
    "Dockerfile.mpi": DOCKERFILE_MPI,
    "Dockerfile.classifier": DOCKERFILE_CLASSIFIER,
    "Definition.classifier": DEFINITION_CLASSIFIER,
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def classroom() -> Iterator[Classroom]:
    for classroom in open_classroom():
        for name, text in {"pi-mpi.py": PI, "classifier.py": CLASSIFIER, **DATA, **RECIPES}.items():
            classroom.write(name, text)
        classroom.kedge("build", "Dockerfile.mpi.sif", "Dockerfile.mpi")
        classroom.build_both("classifier")
        yield classroom


@pytest.fixture(scope="module")
def shipped(classroom: Classroom) -> Classroom:
    """With a base that ships the framework, and wheels: one that fits it, one that wants a newer one."""
    wheels = classroom.folder / "wheels"
    write_wheel(wheels, "framework", OWN)
    write_wheel(wheels, "framework", "2.3.0")
    write_wheel(wheels, "lightning", "2.0", requires=("framework>=2.0.0a0",))
    write_wheel(wheels, "thunder", "1.0", requires=("framework>=2.3",))
    give_to(classroom.runner, wheels)
    classroom.write("pip.conf", PIP_CONF)
    classroom.write("Dockerfile.framework", DOCKERFILE_FRAMEWORK)
    classroom.kedge("build", "framework.sif", "Dockerfile.framework")
    for kind in KINDS:
        classroom.write(f"{kind}.lightning", write_recipe(kind, CONSTRAIN, f"{CONSTRAINED} lightning"))
    classroom.build_both("lightning")
    return classroom


def write_recipe(kind: str, *commands: str) -> str:
    """A recipe over the base that ships the framework."""
    if kind == "Dockerfile":
        return "\n".join([FRAMEWORK[kind], *(f"RUN {command}" for command in commands), ""])
    return "\n".join([FRAMEWORK[kind], "%post", *(f"\t{command}" for command in commands), ""])


def try_recipe(classroom: Classroom, kind: str, *words: str, commands: tuple[str, ...]) -> tuple[int, str]:
    """How a build of other commands ends, and what it prints; the image gets a name and no file."""
    classroom.write(f"{kind}.other", write_recipe(kind, *commands))
    done = classroom.start("build", *words, "-t", "other", "-f", f"{kind}.other", ".")
    return done.returncode, done.stderr


def test_tutorial_pi_with_mpi_runs(classroom: Classroom) -> None:
    printed = classroom.kedge("exec", "Dockerfile.mpi.sif", "mpirun", "-n", "2", "pi-mpi.py", "20000").splitlines()
    assert sorted(printed) == ["pi is about 3.14", "rank 0 of 2: 10000 points", "rank 1 of 2: 10000 points"]


def test_tutorial_classifier_is_on_the_path_and_has_its_data(classroom: Classroom) -> None:
    for kind in KINDS:
        printed = classroom.kedge("exec", f"{kind}.classifier.sif", "classifier.py")
        assert printed == "train 2 1\nvalid 2 1\ntest 2 1\n", kind
    definition, dockerfile = classroom.read_trees("classifier")
    assert definition == dockerfile
    assert "usr/local/bin/pi-mpi.py" in definition


def test_tutorial_python_images_run_under_apptainer(shipped: Classroom) -> None:
    peer = Apptainer(shipped.folder, require_peer())
    answers = peer.answer(
        ("exec", shipped.folder / "Dockerfile.mpi.sif", "mpirun", "-n", "2", "pi-mpi.py", "20000"),
        *(("exec", shipped.folder / f"{kind}.classifier.sif", "classifier.py") for kind in KINDS),
        *(("exec", shipped.folder / f"{kind}.lightning.sif", "pip", "list") for kind in KINDS),
    )
    assert {status for status, _ in answers} == {0}, answers
    texts = [text for _, text in answers]
    assert "pi is about 3.14\n" in texts[0]
    assert all(text.startswith("train 2 1\n") for text in texts[1:3])
    assert all(LISTED in text and "lightning" in text for text in texts[3:])


def test_tutorial_lightning_keeps_the_framework(shipped: Classroom) -> None:
    definition, dockerfile = shipped.read_trees("lightning")
    assert definition == dockerfile
    constraints = str(definition["root/base_constraints.txt"][1])
    assert f"framework=={LISTED}\\n" in constraints
    for kind in KINDS:
        difference = json.loads(shipped.kedge("image", "diff", "--json", "framework.sif", f"{kind}.lightning.sif"))
        assert [(change["name"], change["after"]) for change in difference["packages"]] == [("lightning", "2.0")]


def test_tutorial_constraints_refuse_a_package_that_replaces_the_framework(shipped: Classroom) -> None:
    """The tutorial's line, and kedge's own way without it; without either the framework is replaced."""
    for kind, words, commands, version in (
        ("Definition", (), (CONSTRAIN, f"{CONSTRAINED} thunder"), LISTED),
        ("Dockerfile", ("--protect",), ("pip install thunder",), OWN),
    ):
        status, output = try_recipe(shipped, kind, *words, commands=commands)
        assert status == 91, output
        assert f"The user requested (constraint) framework=={version}" in output
        assert "other" not in shipped.kedge("image", "list")
    status, output = try_recipe(shipped, "Dockerfile", commands=("pip install thunder",))
    assert status == 0, output
    assert "Successfully installed framework-2.3.0 thunder-1.0" in output
