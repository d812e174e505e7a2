# SPDX-License-Identifier: BSD-3-Clause
"""Whole scripts for sbatch, word by word: tests/golden/slurm. KEDGE_GOLDEN=write writes them anew."""

from __future__ import annotations

import os
import subprocess

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.cluster.job import Dependency, DependencyKind, IndexRange, Job, JobArray, Parallel
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from kedge.cluster.site import Site
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program

WRITE = os.environ.get("KEDGE_GOLDEN") == "write"  # read before tests lose all variables of kedge
GOLDEN = REPOSITORY / "tests/golden/slurm"
SITE = Site("generic-slurm", "Slurm", "slurm")
TACC = replace(SITE, name="tacc-like", requires=("nodes", "tasks", "time"), gpu_directive="", memory_directive="",
               launcher="ibrun", modules=("tacc-apptainer",), runtime="apptainer")  # fmt: skip
IMAGE = "/scratch/ada/pytorch.sif"
BASE = Job(name="train", image=IMAGE, command=("python", "train.py"), time=3600)
JOBS = {
    "plain": (Job(name="hello", command=("hostname",)), SITE),
    "hostile": (
        Job(
            name='it\'s "a" $(job) `of`\n日本 # %j/\\',
            command=("printf", "%s\\n", "a b", "it's", '"q"', "$(id)", "`id`", "two\nlines", "\\", "é日本", "", "-n"),
            environment=(("NOTE", 'it\'s\n$(id) "x"'),),
            directives=("--comment=\"a # 'b'\"",),
        ),
        SITE,
    ),
    "container": (replace(BASE, gpus_per_node=2, gpu_type="a100", memory=64 << 30, cpus_per_task=8), SITE),
    "array": (
        replace(
            BASE,
            array=JobArray((IndexRange(1, 1), IndexRange(4, 10, 2)), 3),
            dependencies=(Dependency(DependencyKind.AFTER_OK, "11"), Dependency(DependencyKind.AFTER_ANY, "12")),
        ),
        SITE,
    ),
    "tasks": (replace(BASE, parallel=Parallel.TASKS, nodes=2, tasks_per_node=2, broadcast=True), SITE),
    "staged": (
        replace(BASE, parallel=Parallel.MPI, nodes=1024, tasks_per_node=64),
        replace(SITE, node_directory="/local"),
    ),
    "torchrun": (
        replace(BASE, parallel=Parallel.TORCHRUN, command=("train.py",), nodes=2, gpus_per_node=4),
        replace(SITE, gpu_directive="--gres=gpu:{type}:{count}", directives=("--licenses=horse:1",)),
    ),
    "tacc": (replace(BASE, parallel=Parallel.MPI, nodes=2, tasks_per_node=4, gpus_per_node=4, queue="rtx"), TACC),
    "changed": (
        replace(BASE, nodes=1, memory=1 << 30, directives=("-t 2:00:00", "--mem=0"), drop_directives=("nodes",)),
        SITE,
    ),
}


def render(name: str) -> str:
    job, site = JOBS[name]
    output = "/scratch/ada/{name}-{id}_{index}.out" if job.array else "/scratch/ada/{name}-{id}.out"
    place = ScriptContext("/scratch/ada/records/KEY", "/opt/kedge/bin/kedge", IMAGE, "", "/scratch/ada", output, "")
    if name == "staged":
        place = replace(place, stages_kedge=True, stages_image=True)
    return SLURM.render(job, site, place).replace(f"kedge {VERSION}", "kedge VERSION")


@each_row("name", JOBS)
def test_slurm_script_is_word_by_word_what_it_was(name: str) -> None:
    golden = GOLDEN / f"{name}.sh"
    if WRITE:
        golden.write_text(render(name))
    assert render(name) == golden.read_text()


def test_slurm_scripts_are_clean_for_shellcheck_and_all_kept() -> None:
    assert {each.stem for each in GOLDEN.glob("*.sh")} == set(JOBS)
    # it has notes on what a user means by $(id) between single quotes, and users mean what they write
    for severity, names in (("warning", ["hostile"]), ("style", JOBS.keys() - {"hostile"})):
        words = [require_program("shellcheck"), "--shell=bash", f"--severity={severity}"]
        words += [str(GOLDEN / f"{name}.sh") for name in names]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
