# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge` alone proposes: other commands in a job, on a login node and on a workstation."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from kedge.answers.here import find_here, list_next
from kedge.cli.verbs import VERBS
from kedge.cluster.site import Queue, Site
from kedge.system.settings import Settings
from tests.builders.rows import each_row

SLURM, NONE = Site("here", "here", "slurm"), Site("local", "local", "local")
KNOWN = Site("here", "here", "slurm", queues=(Queue("gpu", gpu="A100-SXM4-40GB"),))


@each_row(
    ("site", "image", "job", "verbs"),
    [
        (KNOWN, "", False, ["recommend", "submit", "alloc"]),
        (SLURM, "", False, ["pull", "submit", "alloc"]),
        (SLURM, "a.sif", False, ["exec", "submit", "alloc"]),
        (SLURM, "a.sif", True, ["exec", "launch", "doctor"]),
        (NONE, "", False, ["pull", "exec", "doctor"]),
        (NONE, "a.sif", False, ["explain", "exec", "doctor"]),
    ],
)
def test_three_commands_that_fit_the_place(site: Site, image: str, job: bool, verbs: list[str]) -> None:
    steps = list_next(site, image, has_gpus=True, is_job=job, nodes=2)
    assert [shlex.split(step.command)[1] for step in steps] == verbs
    assert set(verbs) <= set(VERBS)
    assert all(len(f"  {step.command}  # {step.does}") < 100 for step in steps)


def test_the_newest_image_of_the_directory_is_proposed(tmp_path: Path) -> None:
    for name, when in (("old.sif", 1), ("new.sif", 2), ("note.txt", 3)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    (tmp_path / "folder.sif").mkdir()
    environ = {"HOME": str(tmp_path), "KEDGE_SITE": "generic-slurm", "PATH": "/nowhere"}
    here = find_here(Settings.load(None, environ), environ, tmp_path)
    assert here.image == "new.sif"
    assert any("new.sif" in step.command for step in here.next)


def test_a_directory_that_cannot_be_read_has_no_image(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    assert find_here(Settings.load(None, environ), environ, tmp_path / "gone").image == ""
