# SPDX-License-Identifier: BSD-3-Clause
"""What `submit` refuses before anything is written: nothing is asked of anybody for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Job
from kedge.cluster.schedulers.choose import find_backend
from kedge.cluster.site import Queue, Site
from kedge.errors import RequestRefused, WillNotRun
from kedge.jobs.cluster import Cluster
from kedge.jobs.records import Records
from kedge.jobs.submit import SubmitPlan, plan_submit
from kedge.system.settings import Settings
from tests.builders.images import kedge, make_config
from tests.builders.oci_images import make_tar
from tests.builders.rows import each_row
from tests.builders.squashfs_images import write_image
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_begins, assert_ends, assert_reads, assert_says

V100 = Queue("v100", is_default=True, gpus_per_node=4, gpu="V100-SXM2-32GB", arch="amd64")
A100 = Queue("a100", gpus_per_node=4, gpu="A100-SXM4-40GB", arch="amd64", driver="535.104.05")
K40 = Queue("k40", gpus_per_node=2, gpu="K40", arch="amd64")
UNSAID = Queue("unsaid", gpus_per_node=2, arch="amd64")
SITE = Site(name="here", title="", scheduler="slurm", queues=(V100, A100, K40, UNSAID))
GPU = Job(image="nvcr.io/nvidia/pytorch:25.06-py3", command=("python", "train.py"), gpus_per_node=1, pull="in-job")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(SITE, find_backend("slurm"), "me", Records(tmp_path / "jobs"))


def plan(job: Job, cluster: Cluster, tmp_path: Path) -> SubmitPlan:
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "store")}
    return plan_submit(job, cluster, Settings.load({}, environ), environ, str(tmp_path))


def list_doubts(planned: SubmitPlan) -> tuple[str, ...]:
    """Its warnings, without the one that no registry can be asked from here."""
    return tuple(each for each in planned.warnings if "the tag is not pinned" not in each)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def test_submit_refuses_kernels_that_the_queue_has_no_gpu_for(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(WillNotRun) as caught:
        plan(GPU, cluster, tmp_path)
    problem = caught.value
    assert_reads(problem.message, "submit/does-not-run-tesla-no", GPU.image)
    assert "compute capability 7.0" in problem.context["why"]
    assert_says(problem.hint or "", "submit/list-images-fit-recommend-pytorch", "v100")
    assert_ends(problem.hint or "", "submit/submit-anyway-add-force")


def test_submit_with_force_warns_and_tells_the_container(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(WillNotRun) as caught:
        plan(GPU, cluster, tmp_path)
    remedy = str(caught.value.hint).partition(" List images")[0]
    planned = plan(replace(GPU, force=True), cluster, tmp_path)
    assert f"{caught.value.message}. {remedy}" in planned.warnings
    assert " exec --nv --force " in planned.script


@each_row("change", [
    {"queue": "a100"},  # forward compatibility
    {"queue": "unsaid"},  # which GPUs it has is not known
    {"gpus_per_node": None}, {"nv": False},
    {"image": "nvcr.io/nvidia/pytorch:99.01-py3"},  # nobody knows it
    {"image": "docker.io/library/alpine:3"},
])  # fmt: skip
def test_submit_refuses_nothing_that_may_run(change: dict[str, object], cluster: Cluster, tmp_path: Path) -> None:
    planned = plan(replace(GPU, **change), cluster, tmp_path)
    assert list_doubts(planned) == ()
    assert "--force" not in planned.script


@each_row(("change", "told"), [
    ({"queue": "a100"}, "nvcr.io/nvidia/pytorch:25.06-py3: runs on NVIDIA A100 40GB"),
    ({"image": "nvcr.io/nvidia/pytorch:99.01-py3"},
     "nvcr.io/nvidia/pytorch:99.01-py3: unknown whether it runs on V100"),
])  # fmt: skip
def test_submit_says_in_one_line_what_is_known(
    change: dict[str, object], told: str, cluster: Cluster, tmp_path: Path
) -> None:
    lines = [note for note in plan(replace(GPU, **change), cluster, tmp_path).notes if "runs on" in note]
    assert len(lines) == 1
    assert lines[0].startswith(told)


def test_submit_warns_of_a_cuda_that_is_older_than_the_gpu(cluster: Cluster, tmp_path: Path) -> None:
    hopper = Queue("h200", is_default=True, gpus_per_node=8, gpu="H200", arch="amd64")
    here = replace(cluster, site=replace(SITE, queues=(hopper,)))
    job = replace(GPU, image="nvcr.io/nvidia/tensorflow:21.06-tf1-py3")
    [doubt] = list_doubts(plan(job, here, tmp_path))
    assert_begins(doubt, "submit/unknown-whether-runs-nvidia", job.image)
    verdict, _, reasons = doubt.partition(". ")
    assert_ends(verdict, "explain/nvidia-driver-unknown")
    assert_says(reasons, "compat/cuda-does-not-support", "11.3.1", "NVIDIA H200")


def make_image(registry: FakeRegistry, tag: str, architecture: str = "amd64") -> str:
    variables = ("CUDA_VERSION=12.9.1.010", "TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0 10.0 12.0+PTX", "PATH=/bin")
    layer = make_tar({"bin/true": b"x"})
    registry.add_image("team/own", tag, [layer], make_config([layer], {"Env": variables}, architecture))
    return f"docker://{registry.host}/team/own:{tag}"


def test_submit_reads_the_image_or_its_config(registry: FakeRegistry, cluster: Cluster, tmp_path: Path) -> None:
    job = replace(GPU, image=make_image(registry, "2"))
    for _ in range(2):
        with pytest.raises(WillNotRun, match="does not run on Tesla V100"):
            plan(job, cluster, tmp_path)
    assert len(registry.server.seen("/blobs/")) == 1  # the config; no layer, and not again
    assert plan(replace(job, queue="a100"), cluster, tmp_path).warnings == ()
    name = make_image(registry, "1")
    kedge("pull", tmp_path / "own.sif", name, cache=tmp_path / "store")
    job = replace(GPU, image="own.sif", pull="")
    with pytest.raises(WillNotRun, match=r"own\.sif does not run on Tesla V100"):
        plan(job, cluster, tmp_path)
    assert plan(replace(job, queue="a100"), cluster, tmp_path).warnings == ()
    # Whichever the login node has: one of the two is another
    for architecture in ("amd64", "arm64"):
        here = replace(cluster, site=replace(SITE, queues=(replace(V100, arch=architecture),)))
        with pytest.raises(WillNotRun, match="does not run on Tesla V100"):
            plan(replace(GPU, image=make_image(registry, architecture, architecture)), here, tmp_path)


def test_submit_to_whole_nodes_looks_at_nv(tmp_path: Path) -> None:
    whole = Queue("gh", is_default=True, gpus_per_node=1, gpu="GH200-96GB", arch="arm64", is_whole_node=True)
    cluster = Cluster(replace(SITE, queues=(whole,)), find_backend("slurm"), "me", Records(tmp_path / "jobs"))
    job = replace(GPU, gpus_per_node=0, image="nvcr.io/nvidia/pytorch:25.10-py3")
    planned = plan(job, cluster, tmp_path)
    assert list_doubts(planned) == (
        "the container will see no GPU: nvcr.io/nvidia/pytorch:25.10-py3 is for CUDA 13.0 and "
        "the nodes of gh have GPUs, but neither --gpus nor --nv was given; add --nv",
    )
    assert "--nv" not in planned.script
    for other in (
        replace(job, nv=True),
        replace(job, nv=False),
        replace(job, image="docker.io/library/ubuntu:24.04"),
        replace(job, runtime="pyxis"),
    ):
        assert not any("will see no GPU" in warning for warning in plan(other, cluster, tmp_path).warnings)
    whole = replace(V100, is_whole_node=True)
    cluster = Cluster(replace(SITE, queues=(whole,)), find_backend("slurm"), "me", Records(tmp_path / "jobs"))
    with pytest.raises(WillNotRun, match="does not run on Tesla V100"):
        plan(replace(GPU, gpus_per_node=0, nv=True), cluster, tmp_path)


def test_submit_to_a_gpu_that_no_tag_serves_advises_none(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(WillNotRun) as caught:
        plan(replace(GPU, image="nvcr.io/nvidia/pytorch:24.03-py3", queue="k40"), cluster, tmp_path)
    assert_reads(caught.value.hint, "submit/no-tag-known-support-gpu", "nvcr.io/nvidia/pytorch", "k40")


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
