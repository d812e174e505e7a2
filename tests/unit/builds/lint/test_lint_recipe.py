# SPDX-License-Identifier: BSD-3-Clause
"""Every rule: a recipe that it is for, and one done right, about which it says nothing; and the checks of BuildKit."""

from __future__ import annotations

import contextlib
import re

import pytest

from kedge.builds.lint.lint_recipe import _RULES, lint_recipe
from kedge.builds.lint.recipe_view import LEVELS
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row, with_rows
from tests.wording import assert_begins, assert_reads

UBUNTU = "FROM ubuntu:22.04\n"
HEAD = "Bootstrap: docker\nFrom: ubuntu:22.04\n%labels\n    A b\n"
NGC = "FROM nvcr.io/nvidia/pytorch:24.03-py3\n"


CUDA, MINICONDA = "12.4.1-devel-ubuntu22.04", "FROM continuumio/miniconda3:1\n"
# rule, what both begin with, wrong, right
DOCKERFILES = [
    *(
        ("unpinned-base", "", "FROM ubuntu", right)
        for right in (
            *("FROM ubuntu@sha256:" + "0" * 64, "FROM ubuntu:22.04 AS base\nFROM base", "ARG V=1\nFROM ubuntu:$V"),
            *("FROM ./base.sif", "FROM oci:layout/base"),
        )
    ),
    ("unpinned-base", "FROM ", "a.b/c:latest", "a.b:5000/c:1"),
    ("apt-lone-update", UBUNTU + "RUN apt-get update", "\nRUN apt-get install -y gcc", " && apt-get install -y gcc"),
    ("conda-question", MINICONDA + "RUN conda install ", "a", "-y a"),
    ("conda-cache", "FROM a:1\nRUN conda install -y b", "", " && conda clean -afy"),
    ("pip-replaces", NGC + "RUN pip install ", "torch==2.3.0", "torch"),
    ("pip-replaces", NGC + "RUN pip install ", "torchaudio", "--no-deps torchaudio"),
    ("pip-replaces", NGC + "RUN pip install ", "-U numpy", "-c /root/base.txt -U numpy"),
    (
        "pip-replaces",
        "FROM py",
        *(f"{name}\nRUN pip install torch==2.3" for name in ("torch/pytorch:2.1", "thon:3.11")),
    ),
    ("secret-in-recipe", UBUNTU + "ENV API_KEY=", "aB3dE5gH7jK9", "$KEY"),
    ("secret-in-recipe", UBUNTU + "RUN ", "curl -H TOKEN=aB3dE5gH7jK9 x", "--mount=type=secret,id=TOKEN curl x"),
    ("secret-argument", UBUNTU + "ARG ", "GITHUB_TOKEN", "TOKENIZERS_VERSION"),
    (
        "unchecked-download",
        UBUNTU + "ADD ",
        "https://a.b/c.gz /root",
        f"--checksum=sha256:{'0' * 64} https://a.b/c /root",
    ),
    ("piped-script", UBUNTU + "RUN curl -s https://a.b/i.sh | ", "bash", "tar x"),
    ("compilers-in-result", f"FROM nvcr.io/nvidia/cuda:{CUDA}", "", " AS b\nFROM nvidia/cuda:12.4.1-base-ubuntu22.04"),
    (
        "early-copy",
        "FROM a:1\nCOPY ",
        ". .\nRUN pip install --no-cache-dir -r requirements.txt",
        "requirements.txt .\nRUN pip install -r requirements.txt\nCOPY . .",
    ),
    (
        "early-copy",
        "FROM a:1\n",
        "ADD ./ /x\nRUN pip install -r /x/requirements.txt",
        "COPY . .\nRUN pip install -r r.txt && pip install -e .",
    ),
    ("late-cleanup", UBUNTU + "RUN make\nRUN ", "apt-get clean && rm -rf /var/lib/apt/lists/*", "rm -rf /src/build"),
    ("source-in-sh", UBUNTU, "RUN source /x && make", 'SHELL ["/bin/bash", "-c"]\nRUN source /x && make'),
    ("source-in-sh", UBUNTU + "RUN ", "source /x", 'bash -c "source /x"'),
    *(("path-overwritten", UBUNTU + "ENV PATH=/opt/bin", "", right) for right in (":$PATH", ":/usr/bin:/bin")),
    ("library-path-overwritten", "FROM nvidia/cuda:12\nENV LD_LIBRARY_PATH=/x", "", ":$LD_LIBRARY_PATH"),
    ("private-directory", UBUNTU + "ENV PATH=", "/root/bin:$PATH", "/opt/bin:$PATH"),
    (
        *("hidden-by-mount", "FROM a:1\n", 'COPY run.sh /tmp/\nENTRYPOINT ["/tmp/run.sh"]'),
        'ENTRYPOINT ["/opt/run.sh", "--log", "/tmp/x"]',
    ),
]
POST, SETUP, VARIABLES = (f"{HEAD}%{section}\n    " for section in ("post", "setup", "environment"))
DEFINITIONS = [
    ("unpinned-base", "Bootstrap: docker\nFrom: ubuntu", "", ":{{ V }}"),
    ("unpinned-base", "Bootstrap: ", "library\nFrom: lolcow", "localimage\nFrom: lolcow"),
    ("singularity-hub", "Bootstrap: ", "shub\nFrom: a/b", "docker\nFrom: a/b:1"),
    ("source-in-sh", HEAD + "%post", "\n    source /x", " -c /bin/bash\n    source /x"),
    ("setup-on-host", SETUP, "mkdir /data", "mkdir ${APPTAINER_ROOTFS}/data"),
    ("setup-on-host", SETUP, "cp a /b", "cd $SINGULARITY_ROOTFS\n    mkdir data"),
    ("home-install", POST, "pip install --user a", "pip install a"),
    (
        "home-install",
        POST,
        "bash Miniconda.sh -b -p $HOME/conda",
        "mkdir -p /root/x\n    bash Miniconda.sh -b -p /opt/conda",
    ),
    ("no-default", "Bootstrap: docker\nFrom: a:{{ V }}", "", "\n%arguments\n    V=1"),
    ("no-description", "Bootstrap: docker\nFrom: a:1", "", "\n%help\n    Hello"),
    ("command-in-environment", VARIABLES, "echo hello", "export A=1"),
    ("slow-environment", VARIABLES, ". /opt/x.sh", "A=$B\n    export A"),
    ("path-overwritten", VARIABLES, "export PATH=/opt/bin", "export PATH=/opt/{{ A }}/bin:$PATH"),
    ("private-directory", VARIABLES, "PATH=/root/x:$PATH", "PATH=/opt/x:$PATH"),
    (
        "hidden-by-mount",
        HEAD + "%files\n    a.sh /tmp/a.sh\n%runscript\n    ",
        "exec /tmp/a.sh",
        "exec /opt/a.sh > /tmp/out",
    ),
    ("secret-in-recipe", VARIABLES, "export API_KEY=aB3dE5gH7jK9", "export API_KEY="),
]


def list_rules(text: str, name: str) -> list[str]:
    return [finding.rule for finding in lint_recipe(text.encode(), name)]


@with_rows(*(("Dockerfile", *row) for row in DOCKERFILES), *(("a.def", *row) for row in DEFINITIONS))
def test_lint_finds_what_is_wrong_with_a_reason_and_a_better_line(name, rule, head, wrong, right) -> None:
    assert rule not in list_rules(f"{head}{right}\n", name)
    (finding, *_) = [each for each in lint_recipe(f"{head}{wrong}\n".encode(), name) if each.rule == rule]
    assert finding.level in LEVELS
    assert finding.reason
    assert finding.better
    assert re.fullmatch(r"[a-z-]+", finding.rule)
    assert not finding.message.endswith(".")


def test_lint_places_are_those_of_the_command() -> None:
    text = NGC + "RUN apt-get update \\\n # a comment\n && pip install \\\n    -U numpy\n"
    (finding,) = lint_recipe(text.encode(), "Dockerfile")
    assert str(finding.place) == "Dockerfile:4:5"
    assert_begins(finding.better, "build/pip-install-no-deps-u-numpy")
    text = NGC + "RUN <<EOF\nmake\npip install -U numpy\nEOF\n"
    (finding,) = lint_recipe(text.encode(), "Dockerfile")
    assert finding.place.line == 4
    text = NGC + "# kedge: ignore=pip-replaces\nRUN make && \\\n    pip install -U numpy\nRUN pip install -U torch\n"
    assert [finding.place.line for finding in lint_recipe(text.encode(), "Dockerfile")] == [5]
    assert list_rules("# kedge: ignore\nFROM ubuntu\n", "Dockerfile") == []


def test_lint_never_shows_a_secret() -> None:
    (finding,) = lint_recipe((UBUNTU + "ENV API_KEY=aB3dE5gH7jK9\n").encode(), "Dockerfile")
    assert finding.rule == "secret-in-recipe"
    assert "aB3dE5gH7jK9" not in str(finding.as_dict())


def test_lint_refuses_what_is_no_recipe() -> None:
    for data, name in ((b"hello", "README"), (b"\0\1", "Dockerfile")):
        with pytest.raises(InvalidRecipe):
            lint_recipe(data, name)


@each_row("text", ["FROM a:1\nRUN " + word + "\n" for word in ("'", '"', "$(", "`", "<<", "&&", "\\\\", "(", "a |")])
def test_lint_survives_broken_shell(text: str) -> None:
    with contextlib.suppress(InvalidRecipe):
        lint_recipe(text.encode(), "Dockerfile")


TEXT = b"FROM debian:12 AS Build\nENV a b\nCMD run it\n"


def list_checks(data: bytes, name: str = "Dockerfile") -> set[str]:
    return {finding.rule for finding in lint_recipe(data, name)} & set(_RULES)


def test_rules_dockerfile_are_findings_that_can_be_skipped() -> None:
    assert list_checks(TEXT) == {"StageNameCasing", "LegacyKeyValueFormat", "JSONArgsRecommended"}
    finding = next(finding for finding in lint_recipe(TEXT, "D.dockerfile") if finding.rule == "StageNameCasing")
    assert str(finding.place) == "D.dockerfile:1:1"
    assert_reads(finding.better, "build/write-name-lower-case")
    assert list_checks(b"# check=skip=all\n" + TEXT) == set()
    assert list_checks(b"# kedge: ignore=StageNameCasing\n" + TEXT) == {"LegacyKeyValueFormat", "JSONArgsRecommended"}
    assert list_checks(b"Bootstrap: docker\nFrom: debian:12\n%post\n  true\n", "x.def") == set()
