# SPDX-License-Identifier: BSD-3-Clause
"""JupyterLab and ipykernel of an image: what its Python answers, what is installed for it, tunnel and token."""

from __future__ import annotations

import os

import pytest
from tests.builders.rows import each_row
from tests.wording import assert_reads, assert_says

from kedge.base.frozen import replace
from kedge.errors import NotebookProblem, UsageError
from kedge.system.lean_programs import Finished
from kedge.tools.jupyter import image_python, lab
from kedge.tools.jupyter.image_python import ImagePython
from kedge.tools.jupyter.install import choose_platform, explain_failure, list_constraints
from kedge.tools.jupyter.lab import choose_port, hand_over_token, plan_lab, require_lab

HERE = os.uname().nodename
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


def test_lab_listens_where_it_is_reached_from() -> None:
    plan = plan_lab("/a.sif", PYTHON, port=9000, environ={"USER": "me"})
    assert "--ip=127.0.0.1" in plan.argv
    assert plan.tunnel.startswith("ssh -N -L 9000:localhost:9000 ")
    assert plan.tunnel.endswith(f"@{HERE}")
    assert plan.url == f"http://localhost:9000/lab?token={plan.token}"
    environ = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}
    plan = plan_lab("/a.sif", PYTHON, port=9000, environ=environ)
    assert f"--ip={HERE}" in plan.argv
    assert f" 9000:{HERE}:9000 " in plan.tunnel
    assert plan.tunnel.endswith("@login1")
    assert plan_lab("/a.sif", PYTHON, port=1, login="other", environ=environ).tunnel.endswith("@other")
    environ = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": f"{HERE}.example.org"}
    assert "--ip=127.0.0.1" in plan_lab("/a.sif", PYTHON, port=9000, environ=environ).argv


def test_lab_token_is_in_the_environment_and_on_no_command_line() -> None:
    plan = plan_lab("/a.sif", PYTHON, port=9000, environ={})
    assert len(plan.token) == 48
    assert plan.token not in " ".join(plan.argv)
    assert hand_over_token(plan, {"A": "b"}) == {"A": "b", "APPTAINERENV_JUPYTER_TOKEN": plan.token}


def test_lab_takes_the_first_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "list_busy_ports", lambda: frozenset({8888, 8889}))
    assert choose_port(None) == 8890
    assert choose_port(8891) == 8891
    for port in (8888, 0, 70000):
        with pytest.raises(UsageError, match=f"port {port}"):
            choose_port(port)


def test_lab_and_packages_that_the_image_lacks() -> None:
    require_lab("a.sif", replace(PYTHON, jupyterlab="4.1"))
    with pytest.raises(NotebookProblem, match="no JupyterLab") as caught:
        require_lab("a.sif", PYTHON)
    assert "kedge jupyter install a.sif" in str(caught.value.hint)
    assert list_constraints(PYTHON) == [("tornado", "6.1"), ("traitlets", "5.0.post1")]
    problem = explain_failure("a.sif", PYTHON, ["uv: no route"], "")
    assert_reads(problem.message, "jupyter/cannot-install-ipykernel-python-uv", "3.8", "a.sif")
    assert "--python-version 3.8" in str(problem.hint)
    assert "--wheels DIR" in str(problem.hint)
    assert_says(str(explain_failure("a.sif", PYTHON, [], "w").hint), "jupyter/put-wheels-python-w", "3.8", "x86_64")


@each_row(("libc", "platform"), [
    ("glibc 2.31", "x86_64-manylinux_2_28"), ("glibc 2.28", "x86_64-manylinux_2_28"),
    ("glibc 2.17", "x86_64-manylinux_2_17"), ("", "x86_64-unknown-linux-musl"),
])  # fmt: skip
def test_platform_is_that_of_the_image(libc: str, platform: str) -> None:
    assert choose_platform(replace(PYTHON, libc=libc)) == platform


@pytest.mark.parametrize(
    "said", ["", "kedge-python", "kedge-python {}", "kedge-python 7", 'kedge-python {"installed": 1}']
)
def test_image_python_other_answers_are_none(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        image_python, "run_step", lambda *_, **__: Finished(("python3",), 0, said.encode(), b"odd wrapper\n")
    )
    with pytest.raises(NotebookProblem, match="gives no answer: odd wrapper"):
        image_python.ask_python("a.sif")
