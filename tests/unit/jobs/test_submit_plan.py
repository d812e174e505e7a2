# SPDX-License-Identifier: BSD-3-Clause
"""What a submission decides before anything is written: refusals that need no scheduler."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kedge.cluster.job import Job
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.site import Site
from kedge.errors import RequestRefused
from kedge.jobs.cluster import Cluster
from kedge.jobs.records import Records
from kedge.jobs.submit import plan_submit
from kedge.system.settings import Settings
from tests.builders.rows import each_row
from tests.builders.squashfs_images import write_image

HIDDEN = str(Path(sys.executable).parent.parent)


@each_row(("hidden", "is_refused"), [((HIDDEN,), True), ((), False)])
def test_plan_refuses_a_kedge_that_nodes_do_not_see(tmp_path: Path, hidden: tuple[str, ...], is_refused: bool) -> None:
    site = Site(name="here", title="", scheduler="slurm", hidden_paths=hidden, scratch="$SCRATCH")
    cluster = Cluster(site, find_backend("slurm"), "me", Records(tmp_path / "jobs"))
    image = tmp_path / "x.sif"
    image.write_bytes(write_image())
    job, environ = Job(image=str(image), command=("true",)), {"HOME": str(tmp_path), "SCRATCH": "/scratch"}
    settings = Settings.load({}, environ)
    if not is_refused:
        assert "exec" in plan_submit(job, cluster, settings, environ, str(tmp_path)).script
        return
    with pytest.raises(RequestRefused, match=r"do not see .*kedge, which jobs need") as refusal:
        plan_submit(job, cluster, settings, environ, str(tmp_path))
    assert "$SCRATCH" in str(refusal.value.hint)
    plan_submit(Job(command=("true",)), cluster, settings, environ, str(tmp_path))  # it starts no container
