# SPDX-License-Identifier: BSD-3-Clause
"""A program of the tutorials that needs more than its image: the commands of the page, on a Slurm with GPUs.

The files are written here in the form of SDumont's `sdenv.py` and `cnn_gpus.py`: what they import, read and refuse.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders.containers import give_to
from tests.builders.documents import read_tool_steps
from tests.builders.python_images import make_python_image, write_wheel
from tests.cluster.job_user import JobUser
from tests.cluster.slurm_cluster import SlurmCluster
from tests.functional.test_docs import is_shown
from tests.requirements import REPOSITORY
from tests.tutorials.job_reader import make_reader

pytestmark = pytest.mark.slow
PAGE = REPOSITORY / "docs/guides/from-tutorials.md"
IMAGE = "docker://nvcr.io/nvidia/pytorch:22.03-py3"
HOSTLIST = "def expand_hostlist(text):\n    return [text]\n"  # of one node
SDENV = """import os, hostlist
rank, local_rank = int(os.environ['SLURM_PROCID']), int(os.environ['SLURM_LOCALID'])
size, cpus = int(os.environ['SLURM_NTASKS']), int(os.environ['SLURM_CPUS_PER_TASK'])
hostnames = hostlist.expand_hostlist(os.environ['SLURM_JOB_NODELIST'])
gpu_ids = []
if os.environ['SLURM_JOB_PARTITION'] in ['sequana_gpu_shared', 'sdumont18']:
    gpu_ids = [0, 1, 2, 3]
else:
    print('Wrong partition/queue name!')
os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = hostnames[0], str(9000 + min(gpu_ids))
"""
PROGRAM = """import os, sys
import sdenv
print(f'process {sdenv.rank} of {sdenv.size} on GPU {sdenv.local_rank} by', os.environ['MASTER_ADDR'], *sys.argv[1:])
"""


@pytest.fixture(scope="module")
def image(slurm_lessons: SlurmCluster) -> Path:
    """It has Python and pip, and an index with one package."""
    user = slurm_lessons.user()
    folder = make_python_image(user, "pytorch22.03")
    (folder / "usr/bin/python").symlink_to("python3")
    write_wheel(folder / "wheels", "python_hostlist", "1.21", module=("hostlist", HOSTLIST))
    (folder / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    return give_to(user, folder)


@pytest.fixture
def reader(slurm_lessons: SlurmCluster, image: Path) -> JobUser:
    """A reader in scratch with both files and the image."""
    me = make_reader(slurm_lessons, "sdumont")
    me = me.with_environment(SCRATCH=str(me.folder))
    (me.folder / "pytorch22.03").symlink_to(image)
    kedge = me.write("bin/kedge", f'#!/bin/sh\nexec {" ".join(me.user.program)} "$@"\n')
    me.write("sdenv.py", SDENV)
    me.write("cnn_gpus.py", PROGRAM)
    return me.with_environment(PATH=f"{kedge.parent}:{me.user.variables()['PATH']}")


def type_line(me: JobUser, command: str) -> str:
    """What a line of the page prints, with the image's directory, and 4 CPUs per task: the nodes have 16."""
    typed = command.replace(IMAGE, "./pytorch22.03").replace("--cpus-per-task 10", "--cpus-per-task 4")
    done = me.user.run_program("bash", "-c", typed, cwd=me.folder)
    assert done.returncode == 0, f"{typed}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_program_of_sdumont_runs_as_the_page_says(reader: JobUser) -> None:
    install, add, submit = read_tool_steps(PAGE)["ideeps"]
    printed = type_line(reader, install.command)
    assert all(is_shown(line, printed) for line in install.shown), printed
    type_line(reader, add.command)
    job = type_line(reader, submit.command).strip()
    reader.wait(job)
    said = sorted(re.findall(r"process .*", reader.read("logs", job)))
    assert [re.sub(r" by gpu\d+ ", " ", line) for line in said] == [
        f"process {rank} of 4 on GPU {rank} --epochs 5 --batch-size 16" for rank in range(4)
    ]


@pytest.mark.parametrize(("left_out", "why"), [(0, "No module named 'hostlist'"), (1, "Wrong partition/queue name!")])
def test_program_of_sdumont_needs_each_line(reader: JobUser, left_out: int, why: str) -> None:
    steps = read_tool_steps(PAGE)["ideeps"]
    for number, step in enumerate(steps[:2]):
        if number != left_out:
            type_line(reader, step.command)
    job = type_line(reader, steps[2].command).strip()
    reader.wait(job)
    assert why in reader.run("logs", job).stdout
