# SPDX-License-Identifier: BSD-3-Clause
"""Recipes in the shape of the tutorials' parse to the right graph: bases, stages, what is copied, what runs."""

from __future__ import annotations

from typing import Any

from kedge.recipe.dockerfile.plan import make_recipe
from kedge.recipe.steps import BuildArguments, CopyOrigin, CopyStep, DirectoryStep, Recipe, RunStep, Step


def read_dockerfile(text: str, **values: str) -> Recipe:
    return make_recipe(text, "Dockerfile", BuildArguments(values))


def list_steps(recipe: Recipe, section: dict[str, Any] | None = None) -> list[list[Step]]:
    """The steps of each stage that change files."""
    plans = [stage.plan(section or {}) for stage in recipe.stages]
    return [[step for step in plan.steps if isinstance(step, RunStep | CopyStep | DirectoryStep)] for plan in plans]


NBODY = """FROM nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04

RUN apt-get update -y && apt-get install -y make wget
RUN wget -O - https://example.org/v12.4.1.tar.gz | tar -C /root -xzf -
RUN cd /root/samples-12.4.1/nbody && make
RUN cp /root/samples-12.4.1/nbody/nbody /usr/local/bin
"""


def test_tutorial_dockerfile_with_one_stage() -> None:
    recipe = read_dockerfile(NBODY)
    (steps,) = list_steps(recipe)
    assert recipe.target.base.reference == "nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04"
    assert [step.place.line for step in steps] == [3, 4, 5, 6]
    assert all(isinstance(step, RunStep) and step.argv[:2] == ("/bin/sh", "-c") for step in steps)


NBODY_EFFICIENT = """FROM nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04 AS builder
ADD https://example.org/v12.4.1.tar.gz /root
RUN cd /root && tar xzf v12.4.1.tar.gz && cd samples-12.4.1/nbody && make && cp nbody /usr/local/bin

FROM nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04
COPY --from=builder /usr/local/bin/nbody /usr/local/bin/nbody
"""


def test_tutorial_dockerfile_with_two_stages() -> None:
    recipe = read_dockerfile(NBODY_EFFICIENT)
    assert [(stage.name, stage.needs) for stage in recipe.stages] == [("builder", ()), ("", (0,))]
    (add, _), (copy,) = list_steps(recipe)
    assert isinstance(add, CopyStep)
    assert isinstance(copy, CopyStep)
    assert (add.sources, add.destination, add.is_addition) == (("https://example.org/v12.4.1.tar.gz",), "/root", True)
    assert (copy.origin, copy.destination) == (CopyOrigin(stage=0), "/usr/local/bin/nbody")


MPI = """ARG VER=latest
ARG ORG=tacc
FROM ${ORG}/tacc-ubuntu18-impi19.0.7-common:${VER}
ARG VER
RUN apt-get -o Acquire::AllowInsecureRepositories=true update \\
    && apt-get install -y python3-pip \\
    && apt-get clean
RUN pip3 install mpi4py==3.1.4

COPY pi-mpi.py /usr/local/bin/
RUN chmod +rx /usr/local/bin/pi-mpi.py
"""


def test_tutorial_dockerfile_with_arguments_and_a_base_that_has_a_shell() -> None:
    recipe = read_dockerfile(MPI, VER="1")
    section = {"Shell": ["/bin/bash", "-c"], "Entrypoint": ["/entry.sh"], "Env": ["PATH=/bin"]}
    (steps,) = list_steps(recipe, section)
    assert recipe.target.base.reference == "tacc/tacc-ubuntu18-impi19.0.7-common:1"
    assert recipe.unused_arguments == ()
    first, _, copy, _ = steps
    assert isinstance(first, RunStep)
    assert isinstance(copy, CopyStep)
    assert first.argv[:2] == ("/bin/bash", "-c")
    assert dict(first.environment) == {"PATH": "/bin", "VER": "1"}
    assert (copy.sources, copy.destination) == (("pi-mpi.py",), "/usr/local/bin/")
    assert recipe.target.plan(section).section["Entrypoint"] == ["/entry.sh"]


CLASSIFIER = """FROM pytorch/pytorch:1.7.1-cuda11.0-cudnn8-runtime
RUN pip install transformers==4.16.2 torchtext==0.8.1
WORKDIR /code
ENV PATH=/code:$PATH
COPY test.csv train.csv valid.csv /code/\x20
COPY classifier.py /code
RUN chmod +rx /code/classifier.py
"""


def test_tutorial_dockerfile_with_a_working_directory() -> None:
    recipe = read_dockerfile(CLASSIFIER)
    section = {"Env": ["PATH=/opt/conda/bin:/bin"], "WorkingDir": "/workspace"}
    plan = recipe.target.plan(section)
    assert plan.section == {"Env": ["PATH=/code:/opt/conda/bin:/bin"], "WorkingDir": "/code"}
    copy = plan.steps[3]
    assert isinstance(copy, CopyStep)
    assert (copy.sources, copy.destination) == (("test.csv", "train.csv", "valid.csv"), "/code/")


OLD_FORM = 'FROM ubuntu:18.04\nRUN apt-get update\nCOPY pi.py /code/pi.py\nENV PATH "/code:$PATH"\nCMD ["pi.py", "-h"]'


def test_tutorial_dockerfile_with_the_old_form_of_env() -> None:
    section = read_dockerfile(OLD_FORM).target.plan({"Env": ["PATH=/bin"]}).section
    assert section == {"Env": ["PATH=/code:/bin"], "Cmd": ["pi.py", "-h"]}
