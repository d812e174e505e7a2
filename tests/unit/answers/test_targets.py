# SPDX-License-Identifier: BSD-3-Clause
"""What an image is judged against, and what is said where it is not known."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kedge.answers.host_target import describe_host
from kedge.answers.targets import find_target, parse_driver, require_gpus
from kedge.base.frozen import replace
from kedge.compat.tables.load import load_tables
from kedge.compat.target import BUILT_IN, NAMED, THIS_MACHINE
from kedge.errors import SiteProblem, UnknownGpu, UsageError
from kedge.jobs.queue_target import split_queue
from kedge.jobs.seen_nodes import NodeFacts, Remembered
from kedge.system.host.gpu_probe import GpuProbe, ProbedGpu
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import make_driver_tree, make_host
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads, assert_says

PROFILE = """
title = "A cluster of ours"
scheduler = "slurm"
[[queues]]
name = "cpu"
is_default = true
gpus_per_node = 0
arch = "amd64"
[[queues]]
name = "gpu"
gpus_per_node = 4
gpu = "A100-SXM4-40GB"
arch = "amd64"
driver = "550.54.15"
[[queues]]
name = "old"
gpus_per_node = 2
gpu = "K40"
arch = "amd64"
[[queues]]
name = "strange"
gpus_per_node = 1
gpu = "Zorkium 9"
[[queues]]
name = "silent"
[[queues]]
name = "gone"
gpus_per_node = 1
gpu = "V100"
is_retired = true
"""


@pytest.fixture(name="place")
def a_place(tmp_path: Path) -> dict[str, object]:
    """A user with one site, and settings of theirs."""
    folder = tmp_path / "config/kedge/sites"
    folder.mkdir(parents=True)
    (folder / "ours.toml").write_text(PROFILE)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": "/usr/bin:/bin"}
    return {"environ": environ, "settings": Settings.load(None, environ), "tables": load_tables()}


def test_target_named_gpu_and_processor(place: dict[str, object]) -> None:
    target = find_target(gpu="h200", driver="535.104", **place)  # type: ignore[arg-type]
    assert_reads(target.title, "explain/with-driver", "NVIDIA H200", "535.104")
    assert (target.origin, target.has_gpus, target.driver) == ("named", True, "535.104")
    assert target.gpus[0].capability == "9.0"
    with pytest.raises(UnknownGpu):
        find_target(gpu="H2000", **place)  # type: ignore[arg-type]
    for name in ("amd64", "arm64"):
        target = find_target(gpu="T4", driver="580", architecture=name, **place)  # type: ignore[arg-type]
        assert (target.architecture, target.architecture_source, target.notes) == (name, NAMED, ())
    settings = Settings.load({"architecture": "aarch64"}, place["environ"])  # type: ignore[arg-type]
    of_flag = {**place, "settings": settings}
    assert find_target(gpu="T4", **of_flag).architecture == "arm64"  # type: ignore[arg-type]
    queue = find_target(site="ours:gpu", **of_flag)  # type: ignore[arg-type]
    assert queue.architecture == "arm64"
    assert queue.notes == ("judged for arm64 (--arch), although site ours, queue gpu has amd64",)


@each_row(("machine", "ours", "other"), [("x86_64", "amd64", "arm64"), ("aarch64", "arm64", "amd64")])
def test_target_named_gpu_is_judged_for_this_machines_processor_and_says_so(
    place: dict[str, object], monkeypatch: pytest.MonkeyPatch, machine: str, ours: str, other: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "login1", "6.1", "#1", machine)))
    target = find_target(gpu="T4", driver="580", **place)  # type: ignore[arg-type]
    assert (target.architecture, target.architecture_source) == (ours, THIS_MACHINE)
    assert target.notes == (f"judged for {ours}, the architecture of this host; --arch {other} judges for {other}",)
    silent = find_target(site="ours:strange", **place)  # type: ignore[arg-type]
    assert (silent.architecture, silent.architecture_source) == (ours, THIS_MACHINE)
    told = find_target(site="ours:gpu", **place)  # type: ignore[arg-type]
    assert (told.architecture, told.architecture_source, told.notes) == ("amd64", "", ())


def test_target_gpu_or_driver_alone(place: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "login1", "6.1", "#1", "x86_64")))
    for name in ("GH200", "GB200", "Jetson AGX Orin"):
        target = find_target(gpu=name, driver="580", **place)  # type: ignore[arg-type]
        assert (target.architecture, target.architecture_source) == ("arm64", BUILT_IN)
    assert find_target(gpu="9.0", driver="580", **place).architecture == "amd64"  # type: ignore[arg-type]
    monkeypatch.setattr("kedge.container.facts.gather_host", lambda _: make_host({"/dev/null": ""}))
    target = find_target(driver="535", **place)  # type: ignore[arg-type]
    assert (target.title, target.has_gpus, target.gpus) == ("a machine with driver 535", True, ())
    with pytest.raises(UsageError, match="a GPU of an unknown model") as caught:
        require_gpus(target)
    assert_reads(caught.value.hint, "explain/name-gpu-gpu-driver-queue")
    here = find_target(**place)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no NVIDIA GPU"):
        require_gpus(here)


@each_row("text", ["abc", "5", "535.", "535.104.05.1.2", "12.4", "535; rm", "9" * 50])
def test_target_driver_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        parse_driver(text)


@each_row(("text", "version"), [("R535", "535"), (" 535.104.05 ", "535.104.05"), ("580", "580")])
def test_target_driver_as_people_write_it(text: str, version: str) -> None:
    assert parse_driver(text) == version


def test_target_queues_of_a_site(place: dict[str, object]) -> None:
    target = find_target(site="ours:gpu", **place)  # type: ignore[arg-type]
    assert target.title == "site ours, queue gpu"
    assert (target.origin, target.driver, target.driver_source) == ("queue", "550.54.15", "the site's profile")
    assert target.architecture == "amd64"
    (gpu,) = target.gpus
    assert (gpu.capability, gpu.count) == ("8.0", 4)
    target = find_target(site="ours:old", **place)  # type: ignore[arg-type]
    assert target.driver == ""
    assert_says("\n".join(target.notes), "submit/driver-nodes-unknown")
    target = find_target(site="ours:old", driver="470.82.01", **place)  # type: ignore[arg-type]
    assert target.title == "site ours, queue old with driver 470.82.01"
    assert (target.driver, target.gpus[0].name, target.origin) == ("470.82.01", "Tesla K40", "queue")
    assert not any("unknown" in note for note in target.notes)
    target = find_target(site="ours", **place)  # type: ignore[arg-type]
    assert target.title == "site ours"
    assert [gpu.capability for gpu in target.gpus] == ["8.0", "3.5", ""]
    assert any("'gpu', 'old', 'strange'" in note for note in target.notes)
    assert target.driver == ""
    target = find_target(site="ours:cpu", **place)  # type: ignore[arg-type]
    assert target.has_gpus is False
    assert target.gpus == ()
    assert not any("driver" in note for note in target.notes)
    target = find_target(site="ours:silent", **place)  # type: ignore[arg-type]
    assert target.has_gpus is None
    target = find_target(site="ours:strange", **place)  # type: ignore[arg-type]
    assert (target.gpus[0].name, target.gpus[0].capability) == ("Zorkium 9", "")
    assert any("in no table" in note for note in target.notes)
    target = find_target(site="ours:gone", **place)  # type: ignore[arg-type]
    assert_says(target.notes, "submit/queue-switched-off", "gone")
    with pytest.raises(SiteProblem, match="has no queue 'gpus'") as caught:
        find_target(site="ours:gpus", **place)  # type: ignore[arg-type]
    assert caught.value.hint == "did you mean 'gpu'?"


def test_target_profile_by_its_path(place: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "config/kedge/sites/ours.toml"
    target = find_target(site=f"{path}:gpu", **place)  # type: ignore[arg-type]
    assert target.title == "site ours, queue gpu"
    assert split_queue("/a:b/c.toml") == ("/a:b/c.toml", "")


SEEN = NodeFacts("535.104.05", ("Tesla K40m",), 2, "amd64", "AMD EPYC", ("avx2", "sse2"), "2.28")


def remember(monkeypatch: pytest.MonkeyPatch, *facts: NodeFacts, is_stale: bool = False) -> None:
    seen = [Remembered("ours", "q", f"n{number}", time.time(), each, is_stale) for number, each in enumerate(facts)]
    monkeypatch.setattr("kedge.jobs.queue_target.recall_nodes", lambda *_: seen)


def test_target_queues_that_jobs_saw(place: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    remember(monkeypatch, SEEN)
    target = find_target(site="ours:old", **place)  # type: ignore[arg-type]
    assert target.driver == "535.104.05"
    assert_begins(target.driver_source, "submit/seen-job-2", "n0")
    assert (target.cpu, target.glibc) == ("AMD EPYC", "2.28")
    assert target.cpu_features == frozenset(("avx2", "sse2"))
    assert target.notes == ()
    remember(monkeypatch, SEEN)
    assert find_target(site="ours:gpu", **place).driver == "535.104.05"  # type: ignore[arg-type]
    remember(monkeypatch, SEEN, is_stale=True)
    assert find_target(site="ours:gpu", **place).driver == "550.54.15"  # type: ignore[arg-type]
    assert find_target(site="ours:old", **place).driver == "535.104.05"  # type: ignore[arg-type]
    remember(monkeypatch, SEEN, replace(SEEN, driver="470.82.01", cpu="Intel", cpu_features=("sse2",)))
    target = find_target(site="ours:old", **place)  # type: ignore[arg-type]
    assert target.driver == "470.82.01"
    assert target.cpu == ""
    assert target.cpu_features == frozenset(("sse2",))
    assert any("470.82.01, 535.104.05" in note and "the oldest counts" in note for note in target.notes)
    remember(monkeypatch, SEEN)
    target = find_target(site="ours:silent", **place)  # type: ignore[arg-type]
    assert target.has_gpus is True
    assert target.gpus[0].capability == "3.5"


def refuse_to_ask(**_: object) -> GpuProbe:
    raise AssertionError("NVML was asked, though /proc tells")


def test_target_this_machine_is_read_from_proc_alone() -> None:
    tree = make_driver_tree("535.104.05", ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"))
    target = describe_host(make_host(tree), load_tables(), probe=refuse_to_ask)
    assert target.title == "this machine (gpu7)"
    assert (target.origin, target.has_gpus) == ("host", True)
    assert (target.driver, target.driver_source) == ("535.104.05", "the kernel's module")
    (gpu,) = target.gpus
    assert (gpu.capability, gpu.count) == ("8.0", 2)
    assert target.cuda == ""
    assert target.glibc
    assert target.cpu_features
    tree = make_driver_tree("535.104.05", ("NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB"))
    target = describe_host(make_host(tree), load_tables(), probe=refuse_to_ask)
    assert sorted(gpu.capability for gpu in target.gpus) == ["7.0", "8.0"]
    target = describe_host(make_host({"/dev/null": ""}), load_tables(), probe=refuse_to_ask)
    assert target.has_gpus is False
    assert target.driver == ""
    assert target.notes == ()  # the verdict says it, where an image asks for one
    host = make_host(make_driver_tree(), refused=("/dev/nvidia0",))
    target = describe_host(host, load_tables(), probe=refuse_to_ask)
    assert target.has_gpus is True
    assert_says("\n".join(target.notes), "explain/process-cannot-use-gpus")
    target = describe_host(make_host(make_driver_tree(models=("NVIDIA Z999",))), load_tables(), probe=refuse_to_ask)
    assert target.gpus[0].name == "NVIDIA Z999"
    assert_says(target.notes, "explain/compute-capability-unknown", "NVIDIA Z999")


def test_target_machine_whose_proc_is_hidden() -> None:
    tree = {path: text for path, text in make_driver_tree().items() if not path.startswith("/proc/driver")}
    asked: list[str] = []

    def probe(*, library: str) -> GpuProbe:
        asked.append(library)
        gpu = ProbedGpu("NVIDIA H200", "GPU-1", "9.0", "nvidia")
        return GpuProbe(driver="580.95.05", cuda="13.0", gpus=(gpu,))

    target = describe_host(make_host(tree), load_tables(), probe=probe)
    assert asked == ["/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"]
    assert (target.driver, target.cuda, target.driver_source) == ("580.95.05", "13.0", "the driver itself (NVML)")
    assert (target.gpus[0].capability, target.gpus[0].brand) == ("9.0", "nvidia")
    tree = {path: text for path, text in make_driver_tree().items() if not path.startswith("/proc/driver")}
    target = describe_host(make_host(tree), load_tables(), probe=lambda **_: GpuProbe(problem="hangs", has_hung=True))
    assert (target.driver, target.driver_source) == ("580.95.05", "the driver's libraries")
    assert target.gpus[0].capability == ""
    assert any("unknown" in note for note in target.notes)
