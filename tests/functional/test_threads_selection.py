# SPDX-License-Identifier: BSD-3-Clause
"""Users who got the wrong GPUs, or no part of one: what the scheduler chose holds inside, once."""

from __future__ import annotations

from pathlib import Path

from kedge.answers.doctor.finding import WARNING
from kedge.answers.doctor.gpu.nvidia.selection import check_selection
from kedge.answers.doctor.surroundings import Surroundings
from kedge.compat.failures.find_clues import find_clues
from kedge.container.facts import Additions
from kedge.system.settings import Settings
from tests.builders.gpu_hosts import make_driver_tree, make_host
from tests.builders.nvml import make_gpu_tree, write_machine
from tests.builders.user_threads import about, start

A100S = ("NVIDIA A100-SXM4-40GB",) * 4
PART = "MIG-5c1ba6c1-2f44-5b0e-b3a4-1f0d8b9d1c11"


def make_parts() -> dict[str, bytes | str | None]:
    """A node whose first card, /dev/nvidia3, is divided."""
    tree = make_driver_tree(models=A100S)
    for path, minor in (("gi1/access", 12), ("gi1/ci0/access", 13)):
        tree[f"/proc/driver/nvidia/capabilities/gpu3/mig/{path}"] = f"DeviceFileMinor: {minor}\n"
        tree[f"/dev/nvidia-caps/nvidia-cap{minor}"] = ""
    return tree


def prepare(tree: dict[str, bytes | str | None] | None = None, **given: object) -> Additions:
    environ = {name: str(value) for name, value in given.items() if name.isupper()}
    options = {name: value for name, value in given.items() if not name.isupper()}
    return start(make_host(tree or make_driver_tree(models=A100S), **environ), **options)


def list_cards(additions: Additions) -> list[str]:
    return [path for path in additions.devices if path.removeprefix("/dev/nvidia").isdigit()]


@about(43, 49, 50)
def test_threads_parts_of_mig_are_there_with_nvccli_and_without_its_program() -> None:
    for options in ({"nvccli": True}, {"nvccli": True, "contain": True}, {"nv": True, "contain": True}):
        additions = prepare(make_parts(), CUDA_VISIBLE_DEVICES=PART, **{"nv": False, **options})
        assert "/dev/nvidia-caps" in additions.devices
        assert additions.variables["CUDA_VISIBLE_DEVICES"] == PART
        assert additions.warnings == []
    for said in (
        "FATAL: nvidia-container-cli not allowed in setuid mode",
        'FATAL: path to "nvidia-container-cli" not set in singularity.conf',
    ):
        [clue] = find_clues(said)
        assert clue.remedy.startswith("leave --nvccli out: --nv does without it, for MIG too")


@about(44)
def test_threads_nodes_that_a_part_needs() -> None:
    wanted = "MIG-GPU-01111111-2222-3333-4444-555555555555/1/0"
    devices = prepare(make_parts(), contain=True, CUDA_VISIBLE_DEVICES=wanted).devices
    caps = {"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"}
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3", *caps} <= set(devices)
    assert not {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"} & set(devices)


@about(45)
def test_threads_nvidia_smi_shows_all_and_it_is_said_why() -> None:
    [said] = prepare(arguments=["nvidia-smi"], CUDA_VISIBLE_DEVICES="1").warnings
    assert said == (
        "nvidia-smi ignores CUDA_VISIBLE_DEVICES=1 and shows all 4 GPUs; CUDA programs see 1 of them. "
        "With --contain, nvidia-smi shows only those."
    )
    assert prepare(CUDA_VISIBLE_DEVICES="1").warnings == []
    assert prepare(arguments=["nvidia-smi"], CUDA_VISIBLE_DEVICES="0,1,2,3").warnings == []
    assert list_cards(prepare(arguments=["nvidia-smi"], contain=True, CUDA_VISIBLE_DEVICES="1")) == ["/dev/nvidia2"]


@about(46)
def test_threads_containall_keeps_the_schedulers_choice() -> None:
    additions = prepare(containall=True, cleanenv=True, contain=True, CUDA_VISIBLE_DEVICES="2")
    assert (list_cards(additions), additions.variables["CUDA_VISIBLE_DEVICES"]) == (["/dev/nvidia1"], "0")
    assert prepare(cleanenv=True, CUDA_VISIBLE_DEVICES="2").variables["CUDA_VISIBLE_DEVICES"] == "2"


@about(47)
def test_threads_variable_is_of_the_task_and_its_loss_is_said(tmp_path: Path) -> None:
    tasks = [prepare(contain=True, CUDA_VISIBLE_DEVICES=number, SLURM_PROCID=number) for number in ("0", "1")]
    assert [list_cards(each) for each in tasks] == [["/dev/nvidia3"], ["/dev/nvidia2"]]
    root = write_machine(tmp_path, make_gpu_tree(models=A100S))
    lost = {"SLURM_JOB_ID": "7", "SLURM_STEP_GPUS": "2"}
    [finding] = check_selection(Surroundings(lost, Settings.load(None, {"HOME": str(tmp_path)}), str(root)))
    assert finding.level == WARNING
    assert finding.what == "this Slurm job was given 1 GPU (2), but CUDA_VISIBLE_DEVICES is not set"
    assert "--export=NIL" in finding.why


@about(48)
def test_threads_two_variables_do_not_hide_a_gpu_twice() -> None:
    additions = prepare(contain=True, CUDA_VISIBLE_DEVICES="1", NVIDIA_VISIBLE_DEVICES="1")
    assert (list_cards(additions), additions.variables["CUDA_VISIBLE_DEVICES"]) == (["/dev/nvidia2"], "0")
    [clue] = find_clues("CUDA error: no CUDA-capable device is detected")
    assert "hidden twice, by NVIDIA_VISIBLE_DEVICES and by CUDA_VISIBLE_DEVICES" in clue.cause
