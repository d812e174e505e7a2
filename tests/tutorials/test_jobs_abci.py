# SPDX-License-Identifier: BSD-3-Clause
"""The job part of ABCI's tutorial, typed with kedge on a real Grid Engine with resource types: batch, qrsh, Open MPI.

The modules are pretended; Open MPI is a real one, on two hosts, with its ranks in containers.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.gridengine_cell import GROUP, GridEngineCell
from tests.cluster.job_user import JobUser
from tests.requirements import require_program
from tests.tutorials.job_reader import add_image, make_reader, type_at_terminal
from tests.tutorials.stand_ins import MODULES

BATCH = """\
#!/bin/sh
#$ -l rt_F=2
#$ -j y
#$ -cwd

source /etc/profile.d/modules.sh
module load singularitypro openmpi/4.0.5
mpirun -np 8 -npernode 4 singularity run --nv tensorflow_21.06-tf1-py3.sif python tensorflow_mnist.py
"""


@pytest.fixture(scope="module")
def modules(gridengine_abci: GridEngineCell) -> None:
    """Every host has /etc/profile.d/modules.sh, which only it sees."""
    folder = gridengine_abci.folder / "openmpi"
    folder.mkdir()
    (folder / "mpirun").symlink_to(require_program("mpirun.openmpi"))
    (gridengine_abci.folder / "modules.sh").write_text(MODULES.format(shims="/nowhere", openmpi=folder))
    for host in gridengine_abci.nodes:
        gridengine_abci.hosts.run(host, "mount", "-t", "tmpfs", "tmpfs", "/etc/profile.d")
        gridengine_abci.hosts.run(host, "cp", f"{gridengine_abci.folder}/modules.sh", "/etc/profile.d/modules.sh")


@pytest.fixture
def abci(gridengine_abci: GridEngineCell, modules: None) -> JobUser:
    me = make_reader(gridengine_abci, "abci2")
    add_image(me, "tensorflow_21.06-tf1-py3.sif")
    return me


def test_abci_batch_job_on_a_node(abci: JobUser, gridengine_abci: GridEngineCell) -> None:
    words = ("-A", GROUP, "-p", "rt_F", "--gpus", "4", "--time", "1h", "tensorflow_21.06-tf1-py3.sif")
    id = abci.submit(*words, "python", "cnn_mnist.py")
    abci.wait(id)
    assert "python cnn_mnist.py" in abci.read("logs", id)
    account = gridengine_abci.wait_for_end(id)
    assert (account["project"], account["slots"], account["exit_status"]) == (GROUP, "8", "0")
    assert abci.status(id)["state"] == "done"
    assert "python" in abci.read("jobs", "--mine")


def test_abci_group_and_type_are_asked_for_before_qsub_does(abci: JobUser) -> None:
    for words, sentence in (
        (("-p", "rt_F"), "needs an account"),
        (("-A", "grp", "-p", "rt_G.small", "-N", "2"), "1 node"),
        (("-A", "grp", "-p", "rt_F", "--gpus", "8"), "--nodes 2"),
    ):
        done = abci.run("submit", *words, "--time", "1h", "-", "true")
        assert done.returncode == 71, done.stderr
        assert sentence in done.stderr
    done = abci.run("submit", "-A", "nosuch", "-p", "rt_F", "--time", "1h", "-", "true")
    assert done.returncode == 72
    assert 'project "nosuch" does not exist' in done.stderr
    assert "hint: 'qconf -sprjl' lists the projects" in done.stderr
    assert abci.tell("jobs", "--mine") == []


def test_abci_interactive_jobs(abci: JobUser) -> None:
    """qrsh loses what is typed before the shell is there, and what is printed just before it ends: hence the pauses."""
    words = ("alloc", "-A", GROUP, "-p", "rt_F", "--time", "1:00:00")
    done = type_at_terminal(abci, *words, typed='echo "here $NHOSTS $(hostname)"; sleep 1; exit\n', pause=3)
    assert re.search(r"here 1 ge0\d", done.stdout), done.stdout + done.stderr
    done = type_at_terminal(abci, *words, "tensorflow_21.06-tf1-py3.sif", "sh", "-c", 'python "it\'s"; sleep 1')
    assert "python it's" in done.stdout, done.stdout + done.stderr
    small = (
        "alloc",
        "-A",
        GROUP,
        "-p",
        "rt_G.small",
        "--time",
        "1h",
        "-",
        "sh",
        "-c",
        "echo $NSLOTS slot; sleep 1; exit 4",
    )
    done = type_at_terminal(abci, *small)
    assert "1 slot" in done.stdout
    assert done.returncode == 4


def test_abci_cancelled_job(abci: JobUser) -> None:
    id = abci.submit("-A", GROUP, "-p", "rt_C.small", "--time", "1h", "-", "sleep", "600")
    abci.await_state(id, "running")
    abci.read("cancel", id)
    assert abci.run("wait", id, "--timeout", "60s").returncode == 76
    assert abci.status(id)["state"] == "cancelled"


def test_abci_batch_script_becomes_a_description(abci: JobUser) -> None:
    abci.write("job.sh", BATCH)
    assert abci.run("script", "check", "job.sh").returncode == 0
    made = abci.read("script", "convert", "job.sh")
    for line in ('queue = "rt_F"', "nodes = 2", 'parallel = "mpi"'):
        assert line in made
    Path(abci.write("kedge.toml", made))
    shown = abci.read("submit", "--dry-run", "-A", GROUP)
    assert "#$ -l rt_F=2\n" in shown
    assert re.search(r'"\$kedge" launch --site abci2 --launcher mpirun --mpi --tasks 8 ', shown), shown
    assert f"# submitted with: qsub -terse -g {GROUP} " in shown
