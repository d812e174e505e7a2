# SPDX-License-Identifier: BSD-3-Clause
"""Every rule: a recipe that it is for, and the same recipe done right, about which it says nothing."""

from __future__ import annotations

import contextlib
import re

import pytest

from kedge.builds.lint.lint_recipe import lint_recipe
from kedge.builds.lint.recipe_view import LEVELS
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row

UBUNTU = "FROM ubuntu:22.04\n"
HEAD = "Bootstrap: docker\nFrom: ubuntu:22.04\n%labels\n    A b\n"
NGC = "FROM nvcr.io/nvidia/pytorch:24.03-py3\n"

# rule, wrong, right
DOCKERFILES = [
    ("unpinned-base", "FROM ubuntu\n", "FROM ubuntu@sha256:" + "0" * 64 + "\n"),
    ("unpinned-base", "FROM a.b/c:latest\n", "FROM a.b:5000/c:1\n"),
    ("unpinned-base", "FROM ubuntu\n", "FROM ubuntu:22.04 AS base\nFROM base\n"),
    ("unpinned-base", "FROM ubuntu\n", "ARG V=1\nFROM ubuntu:$V\n"),
    ("unpinned-base", "FROM ubuntu\n", "FROM ./base.sif\n"),
    ("unpinned-base", "FROM ubuntu\n", "FROM oci:layout/base\n"),
    (
        "apt-lone-update",
        UBUNTU + "RUN apt-get update\nRUN apt-get install -y gcc\n",
        UBUNTU + "RUN apt-get update && apt-get install -y gcc\n",
    ),
    (
        "conda-question",
        "FROM continuumio/miniconda3:1\nRUN conda install a\n",
        "FROM continuumio/miniconda3:1\nRUN conda install -y a\n",
    ),
    ("conda-cache", "FROM a:1\nRUN conda install -y b\n", "FROM a:1\nRUN conda install -y b && conda clean -afy\n"),
    ("pip-replaces", NGC + "RUN pip install torch==2.3.0\n", NGC + "RUN pip install torch\n"),
    ("pip-replaces", NGC + "RUN pip install torchaudio\n", NGC + "RUN pip install --no-deps torchaudio\n"),
    ("pip-replaces", NGC + "RUN pip install -U numpy\n", NGC + "RUN pip install -c /root/base.txt -U numpy\n"),
    (
        "pip-replaces",
        "FROM pytorch/pytorch:2.1\nRUN pip install torch==2.3\n",
        "FROM python:3.11\nRUN pip install torch==2.3\n",
    ),
    ("secret-in-recipe", UBUNTU + "ENV API_KEY=aB3dE5gH7jK9\n", UBUNTU + "ENV API_KEY=$KEY\n"),
    (
        "secret-in-recipe",
        UBUNTU + "RUN curl -H TOKEN=aB3dE5gH7jK9 x\n",
        UBUNTU + "RUN --mount=type=secret,id=TOKEN curl x\n",
    ),
    ("secret-argument", UBUNTU + "ARG GITHUB_TOKEN\n", UBUNTU + "ARG TOKENIZERS_VERSION\n"),
    (
        "unchecked-download",
        UBUNTU + "ADD https://a.b/c.tar.gz /root\n",
        UBUNTU + "ADD --checksum=sha256:" + "0" * 64 + " https://a.b/c /root\n",
    ),
    (
        "piped-script",
        UBUNTU + "RUN curl -s https://a.b/i.sh | bash\n",
        UBUNTU + "RUN curl -s https://a.b/i.sh | tar x\n",
    ),
    (
        "compilers-in-result",
        "FROM nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04\n",
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04 AS b\nFROM nvidia/cuda:12.4.1-base-ubuntu22.04\n",
    ),
    (
        "early-copy",
        "FROM a:1\nCOPY . .\nRUN pip install --no-cache-dir -r requirements.txt\n",
        "FROM a:1\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\nCOPY . .\n",
    ),
    (
        "early-copy",
        "FROM a:1\nADD ./ /x\nRUN pip install -r /x/requirements.txt\n",
        "FROM a:1\nCOPY . .\nRUN pip install -r r.txt && pip install -e .\n",
    ),
    (
        "late-cleanup",
        UBUNTU + "RUN make\nRUN apt-get clean && rm -rf /var/lib/apt/lists/*\n",
        UBUNTU + "RUN make\nRUN rm -rf /src/build\n",
    ),
    ("source-in-sh", UBUNTU + "RUN source /x && make\n", UBUNTU + 'SHELL ["/bin/bash", "-c"]\nRUN source /x && make\n'),
    ("source-in-sh", UBUNTU + "RUN source /x\n", UBUNTU + 'RUN bash -c "source /x"\n'),
    ("path-overwritten", UBUNTU + "ENV PATH=/opt/bin\n", UBUNTU + "ENV PATH=/opt/bin:$PATH\n"),
    ("path-overwritten", UBUNTU + "ENV PATH=/opt/bin\n", UBUNTU + "ENV PATH=/opt/bin:/usr/bin:/bin\n"),
    (
        "library-path-overwritten",
        "FROM nvidia/cuda:12\nENV LD_LIBRARY_PATH=/x\n",
        "FROM nvidia/cuda:12\nENV LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH\n",
    ),
    ("private-directory", UBUNTU + "ENV PATH=/root/bin:$PATH\n", UBUNTU + "ENV PATH=/opt/bin:$PATH\n"),
    (
        "hidden-by-mount",
        'FROM a:1\nCOPY run.sh /tmp/\nENTRYPOINT ["/tmp/run.sh"]\n',
        'FROM a:1\nENTRYPOINT ["/opt/run.sh", "--log", "/tmp/x"]\n',
    ),
]
DEFINITIONS = [
    ("unpinned-base", "Bootstrap: docker\nFrom: ubuntu\n", "Bootstrap: docker\nFrom: ubuntu:{{ V }}\n"),
    ("unpinned-base", "Bootstrap: library\nFrom: lolcow\n", "Bootstrap: localimage\nFrom: lolcow\n"),
    ("singularity-hub", "Bootstrap: shub\nFrom: a/b\n", "Bootstrap: docker\nFrom: a/b:1\n"),
    ("source-in-sh", HEAD + "%post\n    source /x\n", HEAD + "%post -c /bin/bash\n    source /x\n"),
    ("setup-on-host", HEAD + "%setup\n    mkdir /data\n", HEAD + "%setup\n    mkdir ${APPTAINER_ROOTFS}/data\n"),
    ("setup-on-host", HEAD + "%setup\n    cp a /b\n", HEAD + "%setup\n    cd $SINGULARITY_ROOTFS\n    mkdir data\n"),
    ("home-install", HEAD + "%post\n    pip install --user a\n", HEAD + "%post\n    pip install a\n"),
    (
        "home-install",
        HEAD + "%post\n    bash Miniconda.sh -b -p $HOME/conda\n",
        HEAD + "%post\n    mkdir -p /root/x\n    bash Miniconda.sh -b -p /opt/conda\n",
    ),
    ("no-default", "Bootstrap: docker\nFrom: a:{{ V }}\n", "Bootstrap: docker\nFrom: a:{{ V }}\n%arguments\n    V=1\n"),
    ("no-description", "Bootstrap: docker\nFrom: a:1\n", "Bootstrap: docker\nFrom: a:1\n%help\n    Hello\n"),
    ("command-in-environment", HEAD + "%environment\n    echo hello\n", HEAD + "%environment\n    export A=1\n"),
    ("slow-environment", HEAD + "%environment\n    . /opt/x.sh\n", HEAD + "%environment\n    A=$B\n    export A\n"),
    (
        "path-overwritten",
        HEAD + "%environment\n    export PATH=/opt/bin\n",
        HEAD + "%environment\n    export PATH=/opt/{{ A }}/bin:$PATH\n",
    ),
    (
        "private-directory",
        HEAD + "%environment\n    PATH=/root/x:$PATH\n",
        HEAD + "%environment\n    PATH=/opt/x:$PATH\n",
    ),
    (
        "hidden-by-mount",
        HEAD + "%files\n    a.sh /tmp/a.sh\n%runscript\n    exec /tmp/a.sh\n",
        HEAD + "%files\n    a.sh /tmp/a.sh\n%runscript\n    exec /opt/a.sh > /tmp/out\n",
    ),
    (
        "secret-in-recipe",
        HEAD + "%environment\n    export API_KEY=aB3dE5gH7jK9\n",
        HEAD + "%environment\n    export API_KEY=\n",
    ),
]


def list_rules(text: str, name: str) -> list[str]:
    return [finding.rule for finding in lint_recipe(text.encode(), name)]


@each_row(("rule", "wrong", "right"), DOCKERFILES)
def test_lint_dockerfiles(rule: str, wrong: str, right: str) -> None:
    assert rule in list_rules(wrong, "Dockerfile")
    assert rule not in list_rules(right, "Dockerfile")


@each_row(("rule", "wrong", "right"), DEFINITIONS)
def test_lint_definitions(rule: str, wrong: str, right: str) -> None:
    assert rule in list_rules(wrong, "a.def")
    assert rule not in list_rules(right, "a.def")


@each_row(("rule", "wrong", "right"), [*DOCKERFILES, *DEFINITIONS])
def test_lint_findings_have_a_reason_a_better_line_and_a_level(rule: str, wrong: str, right: str) -> None:
    del right
    name = "Dockerfile" if wrong.startswith(("FROM", "ARG")) else "a.def"
    (finding, *_) = [finding for finding in lint_recipe(wrong.encode(), name) if finding.rule == rule]
    assert finding.level in LEVELS
    assert finding.reason
    assert finding.better
    assert re.fullmatch(r"[a-z-]+", finding.rule)
    assert not finding.message.endswith(".")


def test_lint_places_are_those_of_the_command() -> None:
    text = NGC + "RUN apt-get update \\\n # a comment\n && pip install \\\n    -U numpy\n"
    (finding,) = lint_recipe(text.encode(), "Dockerfile")
    assert str(finding.place) == "Dockerfile:4:5"
    assert finding.better.startswith("pip install --no-deps -U numpy, or")
    text = NGC + "RUN <<EOF\nmake\npip install -U numpy\nEOF\n"
    (finding,) = lint_recipe(text.encode(), "Dockerfile")
    assert finding.place.line == 4
    text = NGC + "# kedge: ignore=pip-replaces\nRUN make && \\\n    pip install -U numpy\nRUN pip install -U torch\n"
    assert [finding.place.line for finding in lint_recipe(text.encode(), "Dockerfile")] == [5]
    assert list_rules("# kedge: ignore\nFROM ubuntu\n", "Dockerfile") == []


def test_lint_never_shows_a_secret() -> None:
    findings = lint_recipe((UBUNTU + "ENV API_KEY=aB3dE5gH7jK9\n").encode(), "Dockerfile")
    assert [finding.rule for finding in findings] == ["secret-in-recipe"]
    assert "aB3dE5gH7jK9" not in str([finding.as_dict() for finding in findings])


def test_lint_refuses_what_is_no_recipe() -> None:
    with pytest.raises(InvalidRecipe):
        lint_recipe(b"hello", "README")
    with pytest.raises(InvalidRecipe):
        lint_recipe(b"\0\1", "Dockerfile")


@each_row("text", ["FROM a:1\nRUN " + word + "\n" for word in ("'", '"', "$(", "`", "<<", "&&", "\\\\", "(", "a |")])
def test_lint_survives_broken_shell(text: str) -> None:
    with contextlib.suppress(InvalidRecipe):
        lint_recipe(text.encode(), "Dockerfile")
