# SPDX-License-Identifier: BSD-3-Clause
"""JupyterLab's address, its tunnel, and where its token is not."""

from __future__ import annotations

import os

import pytest
from tests.unit.tools.jupyter.test_bring_ipykernel import PYTHON

from kedge.base.frozen import replace
from kedge.errors import NotebookProblem, UsageError
from kedge.tools.jupyter import lab
from kedge.tools.jupyter.lab import choose_port, hand_over_token, plan_lab, require_lab

HERE = os.uname().nodename


def test_lab_outside_of_jobs_is_for_this_host_alone() -> None:
    plan = plan_lab("/a.sif", PYTHON, port=9000, environ={"USER": "me"})
    assert "--ip=127.0.0.1" in plan.argv
    assert plan.tunnel.startswith("ssh -N -L 9000:localhost:9000 ")
    assert plan.tunnel.endswith(f"@{HERE}")
    assert plan.url == f"http://localhost:9000/lab?token={plan.token}"


def test_lab_in_a_job_listens_where_the_login_node_reaches_it() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}
    plan = plan_lab("/a.sif", PYTHON, port=9000, environ=environ)
    assert f"--ip={HERE}" in plan.argv
    assert f" 9000:{HERE}:9000 " in plan.tunnel
    assert plan.tunnel.endswith("@login1")
    assert plan_lab("/a.sif", PYTHON, port=1, login="other", environ=environ).tunnel.endswith("@other")


def test_lab_on_the_host_that_submitted_is_not_open_to_others() -> None:
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


def test_lab_that_the_image_lacks_names_the_other_way() -> None:
    require_lab("a.sif", replace(PYTHON, jupyterlab="4.1"))
    with pytest.raises(NotebookProblem, match="no JupyterLab") as caught:
        require_lab("a.sif", PYTHON)
    assert "kedge jupyter install a.sif" in str(caught.value.hint)
