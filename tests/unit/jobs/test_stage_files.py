# SPDX-License-Identifier: BSD-3-Clause
"""When a job copies kedge and its image to its nodes first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Job, Parallel, StagedImage
from kedge.cluster.site import Site
from kedge.jobs.stage_files import plan_staging
from kedge.jobs.stage_image import FileStaging
from tests.builders.rows import each_row

SITE = Site("cluster", "Cluster", "slurm", node_directory="/local")
JOB = Job(image="image.sif", command=("true",), parallel=Parallel.MPI, nodes=1024, tasks_per_node=64)


class Cluster:
    """Files on a file system of any kind."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mounts = folder, folder / "mountinfo"
        self.bundle, self.installed, self.image = folder / "kedge", folder / "bin-kedge", folder / "image.sif"
        self._write(self.bundle, b"\x7fELF", 30_000_000)
        self._write(self.installed, b"#!/usr/bin/python3\n", 1000)
        self._write(self.image, b"#!/usr/bin/env run-singularity\n", 4_000_000_000)

    def _write(self, path: Path, start: bytes, length: int) -> None:
        path.write_bytes(start)
        os.truncate(path, length)  # sparse

    def plan(self, job: Job, kind: str, site: Site = SITE, kedge: Path | None = None) -> FileStaging:
        self.mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {self.folder} rw - {kind} server:/ rw\n")
        return plan_staging(job, site, str(kedge or self.bundle), StagedImage(str(self.image)), self.mounts)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@each_row("kind", ["nfs4", "lustre"])
def test_many_nodes_get_copies_of_what_would_keep_the_server_busy(cluster: Cluster, kind: str) -> None:
    staging = cluster.plan(JOB, kind)
    assert staging.image
    assert staging.kedge is (kind == "nfs4")  # 30 GB and 400,000 opens are nothing to a parallel file system
    assert all("1,024 nodes with sbcast" in note and kind in note and "--stage never" in note for note in staging.notes)
    assert len(staging.notes) == staging.image + staging.kedge


@each_row(("job", "kind"), [
    (replace(JOB, nodes=2), "nfs4"), (replace(JOB, nodes=64), "lustre"),
    (JOB, "ext4"),  # a disk of this node: who knows what the others have there
    (replace(JOB, stage="never"), "nfs4"), (replace(JOB, runtime="pyxis"), "nfs4"), (replace(JOB, nodes=1), "nfs4"),
])  # fmt: skip
def test_nothing_is_copied_where_it_does_not_pay_or_is_not_wanted(cluster: Cluster, job: Job, kind: str) -> None:
    assert cluster.plan(job, kind) == FileStaging()


def test_some_copies_are_made_where_asked_or_possible(cluster: Cluster) -> None:
    staging = cluster.plan(JOB, "nfs4", replace(SITE, node_directory=""))
    assert staging.kedge
    assert not staging.image
    staging = cluster.plan(replace(JOB, runtime="apptainer"), "nfs4")
    assert (staging.kedge, staging.image) == (False, True)
    assert cluster.plan(replace(JOB, runtime="apptainer", stage="always"), "nfs4").kedge is False
    site = replace(SITE, scheduler="pbs")
    assert cluster.plan(JOB, "nfs4", site) == FileStaging()
    asked = cluster.plan(replace(JOB, stage="always"), "nfs4", site)
    assert (asked.kedge, asked.image) == (False, True)
    assert "only Slurm" in asked.notes[0]
    staging = cluster.plan(replace(JOB, nodes=2, stage="always"), "ext4")
    assert staging == FileStaging(kedge=True, image=True)
    cluster.image.unlink()
    assert not cluster.plan(JOB, "nfs4").image
    assert cluster.plan(replace(JOB, stage="always"), "nfs4").image
    staging = cluster.plan(JOB, "nfs4", kedge=cluster.installed)
    assert not staging.kedge
    assert "1,024 nodes × 64" in staging.notes[0]
    assert "kedge bundle" in staging.notes[0]
    few = cluster.plan(replace(JOB, nodes=4, tasks_per_node=4), "nfs4", kedge=cluster.installed)
    assert not any("bundle" in note for note in few.notes)
    asked = cluster.plan(replace(JOB, stage="always"), "nfs4", kedge=cluster.installed)
    assert not asked.kedge
    assert "many files" in asked.notes[0]
