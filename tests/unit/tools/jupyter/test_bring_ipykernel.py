# SPDX-License-Identifier: BSD-3-Clause
"""Which packages are asked for: the image's platform, the versions that it has, and the words when none can be had."""

from __future__ import annotations

from tests.builders.rows import each_row

from kedge.base.frozen import replace
from kedge.tools.jupyter.image_python import ImagePython
from kedge.tools.jupyter.install import choose_platform, explain_failure, list_constraints

PYTHON = ImagePython(
    program="/usr/bin/python3",
    version="3.8",
    machine="x86_64",
    libc="glibc 2.31",
    has_pip=False,
    ipykernel="",
    problem="",
    jupyterlab="",
    installed=(
        ("ipykernel", "1.0"), ("torch", "2.6.0a0+nv24"), ("tornado", "6.1"), ("traitlets", "5.0.post1"),
        ("od d", "1"),
    ),
)  # fmt: skip


@each_row(("libc", "platform"), [
    ("glibc 2.31", "x86_64-manylinux_2_28"), ("glibc 2.28", "x86_64-manylinux_2_28"),
    ("glibc 2.17", "x86_64-manylinux_2_17"), ("", "x86_64-unknown-linux-musl"),
])  # fmt: skip
def test_platform_is_that_of_the_image(libc: str, platform: str) -> None:
    assert choose_platform(replace(PYTHON, libc=libc)) == platform


def test_constraints_are_what_installers_can_read() -> None:
    assert list_constraints(PYTHON) == [("tornado", "6.1"), ("traitlets", "5.0.post1")]


def test_failure_names_the_remedy_for_a_host_without_network() -> None:
    problem = explain_failure("a.sif", PYTHON, ["uv: no route"], "")
    assert problem.message == "cannot install ipykernel for Python 3.8 of a.sif: uv: no route"
    assert "--python-version 3.8" in str(problem.hint)
    assert "--wheels DIR" in str(problem.hint)
    assert "put wheels for Python 3.8 and x86_64 into w" in str(explain_failure("a.sif", PYTHON, [], "w").hint)
