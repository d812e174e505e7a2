# SPDX-License-Identifier: BSD-3-Clause
"""Recipes in the shape of the tutorials' parse to the right graph: bases, stages, what is copied, what runs."""

from __future__ import annotations

from typing import Any

from kedge.builds.definition.plan import make_recipe as make_definition_recipe
from kedge.builds.dockerfile.plan import make_recipe
from kedge.builds.step_values import BuildArguments, CopyOrigin, CopyStep, DirectoryStep, Recipe, RunStep, Step


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


# ---- definition files

BUILD_IT = """%post
\tapt-get update && \\
\t\tapt-get install -y make curl
\tcurl -sL https://example.org/v12.4.1.tar.gz -o /root/v12.4.1.tar.gz
\ttar -C /root -xzf /root/v12.4.1.tar.gz
\tcd /root/samples-12.4.1/nbody && make && mv nbody /usr/local/bin"""
DEVEL = "Bootstrap: docker\nFrom: nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04\n"
DEFINITION_EFFICIENT = f"""{DEVEL}Stage: builder
{BUILD_IT}

# Change to the base image
Bootstrap: docker
From: nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04
%post
\tapt-get update && apt-get install -y freeglut3 && rm -rf /var/lib/apt/lists/*

# Copy the program
%files from builder
\t/usr/local/bin/nbody /usr/local/bin/nbody
"""
LIGHTNING = """# PyTorch with Lightning
Bootstrap: docker
From: nvcr.io/nvidia/pytorch:24.03-py3
%post
\tpip list | awk '{print$1"=="$2}' | tail +3 > /root/base_constraints.txt
\tpip install -c /root/base_constraints.txt lightning
"""


def test_tutorial_definition_with_one_stage() -> None:
    recipe = make_definition_recipe(DEVEL + BUILD_IT, "Definition.nbody")
    ((post,),) = list_steps(recipe)
    assert recipe.target.base.agent == "docker"
    assert recipe.target.base.reference == "nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04"
    assert isinstance(post, RunStep)
    assert post.script is not None
    assert post.script.data.decode() == BUILD_IT.removeprefix("%post\n") + "\n"
    assert (post.place.line, post.argv[-3:]) == (3, ("/bin/sh", "-ex", "/.post.script"))


def test_tutorial_definition_with_two_stages() -> None:
    recipe = make_definition_recipe(DEFINITION_EFFICIENT, "Definition.nbody-efficient")
    assert [(stage.name, stage.needs, stage.base.reference.rpartition("-")[0]) for stage in recipe.stages] == [
        ("builder", (), "nvcr.io/nvidia/cuda:12.4.1-devel"),
        ("", (0,), "nvcr.io/nvidia/cuda:12.4.1-base"),
    ]
    (build,), (copy, post) = list_steps(recipe)
    assert isinstance(build, RunStep)
    assert build.script is not None
    assert build.script.data.endswith(b"\n\n# Change to the base image\n")
    assert isinstance(copy, CopyStep)  # though %files stands behind %post
    assert (copy.sources, copy.destination) == (("/usr/local/bin/nbody",), "/usr/local/bin/nbody")
    assert copy.origin == CopyOrigin(stage=0)
    assert isinstance(post, RunStep)


def test_tutorial_definition_that_begins_with_a_comment() -> None:
    recipe = make_definition_recipe(LIGHTNING, "Definition.lightning")
    ((post,),) = list_steps(recipe)
    assert isinstance(post, RunStep)
    assert post.script is not None
    assert b"""awk '{print$1"=="$2}'""" in post.script.data
    assert str(post.place) == "Definition.lightning:4:1"
