# SPDX-License-Identifier: BSD-3-Clause
"""The checks of GPUs, over trees of machines that are well and of machines that are ill, with a real library to ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.answers.doctor.cluster import check_mpi
from kedge.answers.doctor.gpu import (
    check_cdi,
    check_devices,
    check_driver,
    check_fabric,
    check_libraries,
    check_nvml,
    check_selection,
    judge_probe,
)
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.base.frozen import replace
from kedge.system.host.gpu_probe import GpuProbe
from kedge.system.settings import Settings
from tests.builders.findings import require_whole
from tests.builders.gpu_hosts import ALL
from tests.builders.nvml import FOLDER, make_gpu_tree, write_machine
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_ends, assert_reads, assert_says

BARE: dict[str, bytes | str | None] = {"/proc/sys/kernel/hostname": "login1\n", "/dev/null": ""}


def make_surroundings(root: Path, **environ: str) -> Surroundings:
    return Surroundings(environ, Settings.load(None, {"HOME": str(root)}), str(root), patience=20.0)


def only(findings: list[Finding]) -> Finding:
    """The one finding, which says why and leads to the guide where all is not well."""
    assert len(findings) == 1, findings
    return findings[0] if findings[0].level == OK else require_whole(findings[0])


@pytest.fixture(name="machine")
def healthy_machine(tmp_path: Path) -> Path:
    return write_machine(tmp_path / "machine")


def test_doctor_gpu_healthy_machine_is_all_ok(machine: Path) -> None:
    here = make_surroundings(machine, PATH="/nonexistent")
    assert_reads(only(check_driver(here)).what, "run/nvidia-driver-loaded", "580.95.05")
    assert only(check_devices(here)).what == "1 GPU: /dev/nvidia0"
    assert_reads(only(check_nvml(here)).what, "doctor/driver-cuda-up-nvidia-compute")
    assert_says(only(check_libraries(here)).what, "doctor/libraries-driver", len(ALL), "580.95.05", FOLDER)
    assert "is not set" in only(check_selection(here)).what
    for check in (check_driver, check_devices, check_nvml, check_libraries, check_selection):
        assert all(finding.level == OK for finding in check(here))


def test_doctor_gpu_login_node_is_told_once_how_to_ask(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {**BARE, "/usr/bin/sbatch": "#!"})
    (root / "usr/bin/sbatch").chmod(0o755)
    here = make_surroundings(root)
    finding = only(check_driver(here))
    assert finding.level == NOTE
    assert_says(finding.what, "compat/no-nvidia-gpu", "login1")
    assert "--gres=gpu:1" in finding.fix
    for check in (check_devices, check_nvml, check_libraries, check_selection, check_cdi, check_fabric):
        assert check(here) == []


def test_doctor_gpu_card_without_module_fails(tmp_path: Path) -> None:
    card = "/sys/bus/pci/devices/0000:01:00.0"
    root = write_machine(tmp_path, {**BARE, f"{card}/vendor": "0x10de\n", f"{card}/class": "0x030200\n"})
    finding = only(check_driver(make_surroundings(root)))
    assert finding.level == FAIL
    assert "modprobe nvidia" in finding.fix


def test_doctor_gpu_missing_uvm_node_fails(tmp_path: Path) -> None:
    tree = make_gpu_tree()
    del tree["/dev/nvidia-uvm"]
    finding = only(check_devices(make_surroundings(write_machine(tmp_path, tree))))
    assert finding.level == FAIL
    assert "/dev/nvidia-uvm is missing" in finding.what
    assert "nvidia-modprobe" in finding.fix


def test_doctor_gpu_hanging_driver_costs_its_deadline(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_INIT", "hang")
    finding = only(check_nvml(replace(make_surroundings(machine), patience=0.2)))
    assert finding.level == WARNING
    assert_says(finding.what, "doctor/did-not-answer-s", "0.3")
    assert "timeout 60 nvidia-smi" in finding.fix


@each_row(
    ("code", "what", "fix"),
    [("18", "version mismatch", "rebooted"), ("9", "not loaded", "administrators"), ("crash", "SIGABRT", "node")],
)
def test_doctor_gpu_driver_that_refuses_fails(
    machine: Path, monkeypatch: pytest.MonkeyPatch, code: str, what: str, fix: str
) -> None:
    monkeypatch.setenv("FAKE_NVML_INIT", code)
    finding = only(check_nvml(make_surroundings(machine)))
    assert finding.level == FAIL
    assert what in finding.what
    assert fix in finding.fix


def test_doctor_gpu_answer_of_another_version_is_a_mismatch(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_DRIVER", "535.104.05")
    last = check_nvml(make_surroundings(machine))[-1]
    assert last.level == FAIL
    assert_reads(last.what, "doctor/driver-library-version-kernel-runs", "535.104.05", "580.95.05")
    assert "rebooted" in last.fix


def test_doctor_gpu_lost_gpu_fails_and_the_others_are_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_GPUS", "NVIDIA H200,lost,NVIDIA H200")
    first, second = check_nvml(make_surroundings(machine))
    assert "2 × NVIDIA H200" in first.what
    assert second.level == FAIL
    assert_begins(second.what, "doctor/gpu-gpu-lost")


def test_doctor_gpu_fabric_that_is_not_joined_fails(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_FABRIC", "1")
    finding = check_nvml(make_surroundings(machine))[-1]
    assert finding.level == FAIL
    assert "NVLink fabric not started" in finding.what
    assert "802" in finding.why


def test_doctor_gpu_mig_says_how_to_choose_a_part(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_MIG", "1")
    finding = check_nvml(make_surroundings(machine))[-1]
    assert finding.level == NOTE
    assert "uses MIG: 2 instances" in finding.what
    assert "CUDA_VISIBLE_DEVICES=MIG-" in finding.fix


def test_doctor_gpu_driver_without_gpus_is_a_warning() -> None:
    finding = only(judge_probe(GpuProbe(driver="580.95.05", cuda="13.0"), "580.95.05"))
    assert finding.level == WARNING
    assert_says(finding.what, "doctor/gives-process-no-gpu")


def test_doctor_gpu_libraries_of_another_driver_fail(tmp_path: Path) -> None:
    tree = make_gpu_tree(library_version="575.57.08")
    finding = only(check_libraries(make_surroundings(write_machine(tmp_path, tree))))
    assert finding.level == FAIL
    assert_says(finding.what, "run/kernel-runs-nvidia-driver", "580.95.05")
    assert "575.57.08" in finding.what
    assert "rebooted" in finding.what


@each_row(("content", "word"), [(b"", "is empty"), (b"<html>", "is not a library")])
def test_doctor_gpu_broken_library_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    tree = make_gpu_tree()
    tree[f"{FOLDER}/libcuda.so.580.95.05"] = content
    finding = only(check_libraries(make_surroundings(write_machine(tmp_path / word, tree))))
    assert finding.level == FAIL
    assert finding.what == f"{FOLDER}/libcuda.so.580.95.05 {word}"


def test_doctor_gpu_missing_compiler_of_ptx_is_a_warning(tmp_path: Path) -> None:
    tree = make_gpu_tree(libraries={stem: name for stem, name in ALL.items() if "ptxjit" not in stem})
    finding = only(check_libraries(make_surroundings(write_machine(tmp_path, tree))))
    assert finding.level == WARNING
    assert "libnvidia-ptxjitcompiler.so.580.95.05 is missing" in finding.what


@each_row(("value", "level", "words"), [
    ("0", OK, "CUDA_VISIBLE_DEVICES=0"), ("3", WARNING, "names GPU 3"), ("GPU-ffff", WARNING, "names GPU GPU-ffff"),
    ("", WARNING, "is empty"), ("-1", WARNING, "will see no GPU"), ("0,0", WARNING, "twice"),
])  # fmt: skip
def test_doctor_gpu_selection(machine: Path, value: str, level: str, words: str) -> None:
    finding = only(check_selection(make_surroundings(machine, CUDA_VISIBLE_DEVICES=value)))
    assert finding.level == level
    assert words in finding.what


def test_doctor_gpu_selection_in_jobs_and_outside(machine: Path) -> None:
    finding = only(check_selection(make_surroundings(machine, SLURM_JOB_ID="7")))
    assert finding.level == WARNING
    assert_reads(finding.what, "doctor/slurm-job-given-no-gpu", "1 GPU")
    granted = make_surroundings(machine, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", CUDA_VISIBLE_DEVICES="0")
    assert only(check_selection(granted)).what == "CUDA_VISIBLE_DEVICES=0"
    assert_ends(only(check_selection(make_surroundings(machine, CUDA_VISIBLE_DEVICES="0"))).what, "doctor/not-set-job")


def test_doctor_gpu_unknown_part_of_mig_is_a_warning(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_MIG", "1")
    last = check_nvml(make_surroundings(machine, CUDA_VISIBLE_DEVICES="MIG-ffff"))[-1]
    assert last.level == WARNING
    assert_says(last.what, "doctor/names-not-mig-instance", "MIG-ffff")
    known = check_nvml(make_surroundings(machine, CUDA_VISIBLE_DEVICES="MIG-0111"))[-1]
    assert known.level == NOTE


def write_specification(root: Path, library: str, folder: str = "etc/cdi") -> None:
    specification = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
        "containerEdits": {"mounts": [{"hostPath": library, "containerPath": library}]},
    }
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "nvidia.json").write_text(json.dumps(specification))


def test_doctor_cdi_specifications_are_compared_with_the_driver(machine: Path) -> None:
    finding = only(check_cdi(make_surroundings(machine)))
    assert finding.level == OK
    assert "--nv does not need them" in finding.what
    write_specification(machine, f"{FOLDER}/libcuda.so.580.95.05")
    finding = only(check_cdi(make_surroundings(machine)))
    assert finding.level == OK
    assert_reads(finding.what, "doctor/etc-cdi-nvidia-json-nvidia")
    write_specification(machine, f"{FOLDER}/libcuda.so.535.104.05")
    finding = only(check_cdi(make_surroundings(machine)))
    assert finding.level == WARNING
    assert_says(finding.what, "doctor/driver-but-kernel-runs", "535.104.05", "580.95.05")
    assert "nvidia-ctk cdi generate" in finding.fix
    (machine / "etc/cdi/nvidia.json").write_text("{")
    finding = only(check_cdi(make_surroundings(machine)))
    assert finding.level == WARNING
    assert "/etc/cdi/nvidia.json cannot be used" in finding.what


def test_doctor_fabric_nvswitch_without_its_manager_warns(tmp_path: Path) -> None:
    root = write_machine(tmp_path, {**make_gpu_tree(), "/dev/nvidia-nvswitchctl": ""})
    finding = only(check_fabric(make_surroundings(root)))
    assert finding.level == WARNING
    assert "802" in finding.why
    (root / "proc/77").mkdir()
    (root / "proc/77/comm").write_text("nv-fabricmanage\n")
    assert only(check_fabric(make_surroundings(root))).level == OK


def test_doctor_fabric_infiniband_is_looked_at(tmp_path: Path) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    tree = {**BARE, f"{port}/state": "4: ACTIVE\n", f"{port}/rate": "200 Gb/sec (4X HDR)\n"}
    root = write_machine(tmp_path, tree)
    finding = only(check_fabric(make_surroundings(root)))
    assert finding.level == WARNING
    assert "no /dev/infiniband/uverbs*" in finding.what
    (root / "dev/infiniband").mkdir()
    (root / "dev/infiniband/uverbs0").write_text("")
    finding = only(check_fabric(make_surroundings(root)))
    assert (finding.level, finding.what) == (OK, "mlx5_0 ACTIVE, 200 Gb/sec (4X HDR)")
    (root / port.lstrip("/") / "state").write_text("1: DOWN\n")
    finding = only(check_fabric(make_surroundings(root)))
    assert finding.level == WARNING
    assert_says(finding.what, "doctor/no-port-up-down")


def test_doctor_mpi_none_says_what_to_load(tmp_path: Path) -> None:
    finding = only(check_mpi(make_surroundings(tmp_path, PATH=str(tmp_path))))
    assert finding.level == NOTE
    assert "module load" in finding.fix


@pytest.mark.parametrize(("files", "environ", "said"), [
    ({"/usr/local/cuda/version.json": '{"cuda": {"version": "13.2.1"}}'}, {}, "13.2.1 is installed"),
    ({"/sw/cuda/version.txt": "CUDA Version 13.1.0\n"}, {"CUDA_HOME": "/sw/cuda/"}, "13.1.0 is installed"),
    ({"/sw/c/bin/nvcc": "#!", "/sw/c/version.txt": "CUDA Version 13.1.0\n"}, {"PATH": "/sw/c/bin"}, "(/sw/c)"),
    ({"/usr/local/cuda/version.json": '{"cuda": {"version": "12.4.1"}}'}, {}, ""),
    ({"/usr/local/cuda/version.json": '{"cuda": 7}', "/usr/local/cuda/version.txt": "?"}, {}, ""),
])  # fmt: skip
def test_doctor_gpu_toolkit_newer_than_the_driver_is_said_to_make_no_difference(
    tmp_path: Path, files: dict[str, bytes | str | None], environ: dict[str, str], said: str
) -> None:
    here = make_surroundings(write_machine(tmp_path, {**make_gpu_tree(), **files}), **environ)
    found = [each for each in check_driver(here) if each.level != OK]
    if not said:
        assert found == []
        return
    assert said in only(found).what
    assert_ends(only(found).what, "doctor/but-driver-runs-cuda-up", "580.95.05", "13.0")


def test_doctor_gpu_variable_that_was_lost_in_a_job(tmp_path: Path) -> None:
    root = write_machine(tmp_path, make_gpu_tree(models=("NVIDIA H200",) * 4))
    lost = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2,3"}
    finding = only(check_selection(make_surroundings(root, **lost)))
    assert finding.level == WARNING
    assert_reads(finding.what, "doctor/slurm-job-given-gpus-but", "CUDA_VISIBLE_DEVICES")
    assert only(check_selection(make_surroundings(root, **lost, CUDA_VISIBLE_DEVICES="2,3"))).level == OK
    assert only(check_selection(make_surroundings(root, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1,2,3"))).level == OK


def test_doctor_gpu_other_libcuda_on_the_path_of_the_shell(tmp_path: Path) -> None:
    compat = "/usr/local/cuda-13/compat"
    tree = {
        **make_gpu_tree(),
        f"{compat}/libcuda.so.590.44.01": b"\x7fELF",
        f"{compat}/libcuda.so.1": "-> libcuda.so.590.44.01",
    }
    root = write_machine(tmp_path, tree)
    finding = check_libraries(make_surroundings(root, LD_LIBRARY_PATH=f"/opt/x/lib:{compat}"))[-1]
    assert finding.level == WARNING
    assert f"{compat}, 590.44.01" in finding.what
    assert "803 or 804" in finding.why
    assert check_libraries(make_surroundings(root, LD_LIBRARY_PATH=f"{FOLDER}"))[-1].level != WARNING
