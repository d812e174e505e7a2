# SPDX-License-Identifier: BSD-3-Clause
"""Kernels in jobs of a real Slurm and a real Grid Engine: Jupyter on the login node, the kernel on a compute node."""

from __future__ import annotations

import itertools
import json
from typing import Any

from kedge.tools.jupyter.kernel_on_node import CHANNELS
from tests.builders.notebook_images import make_lab_image
from tests.builders.pypi_tools import require_tool
from tests.cluster.daemons import wait_until
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import REPOSITORY
from tests.wording import assert_says

CELLS = REPOSITORY / "tests/programs/run_cells.py"
WHERE = "import os; print(os.uname().nodename, os.environ['APPTAINER_NAME'])"


def make_image(user: JobUser) -> None:
    """An image with the ipykernel of the tool."""
    tool = require_tool("jupyter")
    with_tool = user.with_environment(PATH=f"{tool}:/usr/bin:/bin")
    with_tool.read("pull", "work.sif", "host:python3+ipykernel")


def run_cells(user: JobUser, kernel: str, *cells: str) -> dict[str, Any]:
    done = user.user.run_program(str(require_tool("jupyter") / "python"), str(CELLS), kernel, *cells, cwd=user.folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "log": done.stderr}


def test_jupyter_kernel_in_a_slurm_job(slurm_hosts: SlurmCluster) -> None:
    me = make_job_user(slurm_hosts)
    make_image(me)
    me.read("jupyter", "install", "--name", "In a job", "--gpus", "1", "--time", "5m", "work.sif")
    big = "print('x' * 3_000_000)"
    found = run_cells(me, "in-a-job", WHERE, big, "import os; print(os.environ['SLURM_JOB_ID'])")
    node, image = found["printed"][0].split()
    assert node in ("gpu01", "gpu02")
    assert image == "work.sif"
    assert len(found["printed"][1]) == 3_000_001
    assert found["interrupted"] == "KeyboardInterrupt"
    assert found["waited"] < 20
    assert not found["lives"]
    assert_says(found["log"], "jupyter/kernel-runs", node)
    job = found["printed"][2].strip()
    wait_until("the job has ended", lambda: job not in me.user.read_program("squeue", "-h", "-o", "%i").split())


def test_jupyter_kernel_ends_with_what_started_it(slurm_hosts: SlurmCluster) -> None:
    """SIGKILL leaves nobody who could cancel the job."""
    me = make_job_user(slurm_hosts)
    make_image(me)
    kernel = json.loads(me.read("jupyter", "install", "--json", "--name", "k", "--time", "5m", "work.sif"))
    ports = {f"{name}_port": 41_000 + number for number, name in enumerate(CHANNELS)}
    connection = {"ip": "127.0.0.1", "transport": "tcp", "key": "k", "signature_scheme": "hmac-sha256", **ports}
    file = me.write("connection.json", json.dumps(connection))
    words = [str(file) if word == "{connection_file}" else word for word in kernel["argv"]]
    program = me.user.start_program(*words, cwd=me.folder)
    assert program.stderr is not None
    for line in program.stderr:
        if "The kernel runs on gpu" in line:
            break
    program.kill()
    wait_until("the job has ended", lambda: not me.user.read_program("squeue", "-h", "-u", "alice").strip())
    program.communicate(timeout=30)


def test_jupyter_lab_in_a_slurm_job_answers_the_login_node(slurm_hosts: SlurmCluster) -> None:
    me = make_job_user(slurm_hosts)
    image = make_lab_image(me.user)
    program = me.start("--json", "jupyter", "lab", "--time", "5m", str(image))
    try:
        assert program.stdout is not None
        lines = list(itertools.takewhile(lambda line: not line.startswith("}"), program.stdout))
        plan = json.loads("".join([*lines, "}"]))
        host, port = plan["host"], plan["port"]
        assert plan["tunnel"] == f"ssh -N -L {port}:{host}:{port} alice@head"
        address = f"http://{host}:{port}/api/kernelspecs?token={plan['token']}"
        ask = ("python3", "-c", f"import urllib.request; print(urllib.request.urlopen({address!r}).status)")
        wait_until("the server answers", lambda: me.user.run_program(*ask).stdout == "200\n", every=0.5)
    finally:
        program.terminate()
        program.communicate(timeout=60)
    wait_until("the job has ended", lambda: not me.user.read_program("squeue", "-h", "-u", "alice").strip())


def test_jupyter_kernel_in_a_gridengine_job(gridengine: GridEngineCell) -> None:
    me = make_job_user(gridengine, KEDGE_SITE="generic-gridengine")
    make_image(me)
    me.read("jupyter", "install", "--name", "job", "--time", "5m", "work.sif")
    found = run_cells(me, "job", WHERE, "print('x' * 300_000)")
    assert found["printed"][0].split()[0] in ("ge01", "ge02")
    assert len(found["printed"][1]) == 300_001
    assert found["interrupted"] == "KeyboardInterrupt"
    assert not found["lives"]
    wait_until("the job has ended", lambda: not me.user.read_program("qstat").strip())
