# SPDX-License-Identifier: BSD-3-Clause
"""What was seen on compute nodes: written inside a job, read on the login node, and believed only where it is ours."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from kedge.base.progress import Progress, Silent
from kedge.cluster.sites.profile import find_folders, load_site
from kedge.jobs.seen_nodes import NodeFacts, find_job_queue, find_node_folder, recall_nodes, remember_node
from kedge.system.settings import Settings
from tests.builders.rows import each_row
from tests.wording import assert_begins

FACTS = NodeFacts(
    driver="535.104.05", gpus=("NVIDIA A100-SXM4-40GB",), gpu_count=8, architecture="amd64", cpu="AMD EPYC 7352",
    cpu_features=("avx2", "fma", "sse4_2"), glibc="2.28",
)  # fmt: skip


class Warnings(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, message: str) -> None:
        self.said.append(message)


@pytest.fixture
def login(tmp_path: Path) -> dict[str, str]:
    """The environment of a login node."""
    return {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}


def in_job(login: dict[str, str], queue: str = "alpha", site: str = "zih-alpha") -> dict[str, str]:
    return {**login, "KEDGE_SITE": site, "SLURM_JOB_ID": "4711", "SLURM_JOB_PARTITION": queue}


def remember(environ: dict[str, str], facts: NodeFacts = FACTS) -> Path:
    path = remember_node(environ, Settings.load(environ=environ), facts)
    assert path is not None
    return path


def recall(
    environ: dict[str, str], site: str = "zih-alpha", queue: str = "alpha", progress: Progress | None = None
) -> Any:
    """What was seen last."""
    return next(iter(recall_nodes(site, queue, environ, Settings.load(environ=environ), progress)), None)


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_remembered_comes_back_on_the_login_node(login: dict[str, str]) -> None:
    before = time.time()
    remember(in_job(login))
    found = recall(login)
    assert found.facts == FACTS
    assert (found.site, found.queue, found.host) == ("zih-alpha", "alpha", os.uname().nodename)
    assert before - 1 <= found.when <= time.time()
    assert not found.is_stale
    assert_begins(found.source, "submit/seen-job-3", os.uname().nodename, 20)
    assert recall(login, queue="other") is None
    assert recall(login, site="zih-capella") is None
    assert recall(login, site="no-such-site") is None
    path = remember(in_job(login))
    change(path, when=time.time() - 91 * 86400)
    found = recall(login)
    assert found.is_stale
    assert "long ago" in found.source


def test_remembered_nothing_where_it_is_not_meant_or_possible(login: dict[str, str], tmp_path: Path) -> None:
    environ = {**login, "KEDGE_SITE": "zih-alpha"}
    assert remember_node(environ, Settings.load(environ=environ), FACTS) is None
    assert not Path(login["HOME"]).exists()
    environ = in_job(login)
    assert remember_node(environ, Settings.load(environ=environ), NodeFacts(driver="\x1b]0;x\x07")) is None
    (tmp_path / "home").write_text("a file")
    environ = in_job(login)
    assert remember_node(environ, Settings.load(environ=environ), FACTS) is None
    assert recall(login) is None


@each_row(("environ", "queue"), [
    ({"SLURM_JOB_ID": "1", "SLURM_JOB_PARTITION": "gpu"}, "gpu"),
    ({"PBS_JOBID": "1.server", "PBS_QUEUE": "rt_HF"}, "rt_HF"),
    ({"JOB_ID": "7", "QUEUE": "all.q", "SGE_TASK_ID": "undefined"}, "all.q"),
    ({"JOB_ID": "7", "QUEUE": "somebody's variable"}, ""),
    ({"SLURM_JOB_PARTITION": "gpu"}, ""),
    ({}, ""),
])  # fmt: skip
def test_remembered_queue_is_that_of_the_job(environ: dict[str, str], queue: str) -> None:
    assert find_job_queue(environ) == queue


def test_remembered_files_are_the_users_alone_whatever_the_umask(login: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        path = remember(in_job(login))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_remembered_newer_look_replaces_and_kinds_stand_side_by_side(login: dict[str, str]) -> None:
    first = remember(in_job(login), NodeFacts(driver="525.60.13", gpus=FACTS.gpus, architecture="amd64"))
    assert remember(in_job(login)) == first
    assert recall(login).facts.driver == "535.104.05"
    other = remember(in_job(login), NodeFacts(driver="535.104.05", gpus=("Tesla V100-SXM2-32GB",)))
    assert other != first
    change(first, when=time.time() - 5000)
    settings = Settings.load(environ=login)
    kinds = recall_nodes("zih-alpha", "alpha", login, settings)
    assert [each.facts.gpus[0] for each in kinds] == ["Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-40GB"]
    remember(in_job(login, queue="romeo"), NodeFacts(architecture="amd64"))
    assert len(recall_nodes("zih-alpha", "", login, settings)) == 3


@each_row("values", [
    {"driver": "535; rm -rf ~"}, {"driver": "535\n"}, {"driver": None}, {"driver": ["535"]}, {"gpus": "A100"},
    {"gpus": ["\x1b[2JA100"]}, {"gpus": ["x"] * 65}, {"gpu_count": -1}, {"gpu_count": True}, {"gpu_count": 10**9},
    {"cpu_features": ["avx2", "AVX 512"]}, {"cpu_features": ["avx"] * 1000}, {"host": "a\u202eb"},
    {"host": "x" * 200}, {"when": "now"}, {"when": -1}, {"when": 1e300}, {"when": float("nan")}, {"when": 10**400},
    {"glibc": "2.28-a"}, {"queue": ""}, {"version": 2},
])  # fmt: skip
def test_remembered_hostile_values_are_passed_over_with_a_warning(
    login: dict[str, str], values: dict[str, object]
) -> None:
    path = remember(in_job(login))
    change(path, **values)
    progress = Warnings()
    assert recall(login, progress=progress) is None
    assert len(progress.said) == 1
    assert str(path) in progress.said[0]
    assert progress.said[0].isprintable()


@each_row("data", [b"", b"[1]", b"{", b"\xff\xfe", b"[" * 60000, b"1" * 5000, b" " * (65 << 10)])
def test_remembered_files_that_are_something_else_are_passed_over(login: dict[str, str], data: bytes) -> None:
    path = remember(in_job(login))
    path.write_bytes(data)
    progress = Warnings()
    assert recall(login, progress=progress) is None
    assert len(progress.said) == 1


def test_remembered_links_pipes_and_foreign_files_are_passed_over(login: dict[str, str], tmp_path: Path) -> None:
    path = remember(in_job(login))
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    os.mkfifo(path.parent / "zih-alpha~pipe.json")
    progress = Warnings()
    assert recall(login, progress=progress) is None
    assert len(progress.said) == 2


def test_remembered_lies_where_nodes_see_it(login: dict[str, str], tmp_path: Path) -> None:
    site = load_site("sdumont", find_folders(login))  # whose nodes do not see the home
    assert not site.home_on_nodes
    settings = Settings.load(environ=login)
    assert find_node_folder(settings, site, login) == settings.cache_directory / "nodes"
    environ = {**login, "SCRATCH": str(tmp_path / "scratch")}
    assert find_node_folder(settings, site, environ) == tmp_path / "scratch/.kedge/jobs/nodes"
    remember({**in_job(login, "sequana_gpu", "sdumont"), **environ})
    assert recall(environ, "sdumont", "sequana_gpu").facts == FACTS
    chosen = {**login, "KEDGE_JOBDIR": str(tmp_path / "jobs")}
    assert find_node_folder(Settings.load(environ=chosen), site, chosen) == tmp_path / "jobs/nodes"
