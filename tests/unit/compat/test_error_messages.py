# SPDX-License-Identifier: BSD-3-Clause
"""Messages that users meet, as the programs write them: each is recognised, and a failed job's output is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.compat.error_messages import MESSAGES, find_clues
from kedge.errors import JobFailed
from kedge.jobs.records import Draft, Record, Records
from kedge.model.job_state import JobStatus, State
from kedge.ops.jobs.failure_clues import find_failure_clue
from kedge.ops.jobs.find_job import FoundJob
from kedge.ops.jobs.wait import require_success

FAILED = JobStatus("12", State.FAILED, "FAILED", exit_code=1)
SAYINGS = {
    "job-memory": (
        "slurmstepd-n1: error: StepId=2.batch exceeded memory limit (429772800 > 52428800), being killed",
        "more memory than it asked for",
    ),
    "requirement": (
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a "
        "newer version, or use an earlier cuda container: unknown.",
        "asks for cuda>=12.8",
    ),
    "invalid-requirement": ("nvidia-container-cli: requirement error: invalid expression", "malformed"),
    "version-mismatch": ("Failed to initialize NVML: Driver/library version mismatch", "updated while the old one"),
    "not-ready-802": (
        "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered internally at",
        "fabric manager does not run",
    ),
    "mismatch-803": ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "does not go with the driver in the kernel"),
    "forward-804": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on "
        "non supported HW",
        "runs on data-center GPUs only",
    ),
    "unavailable": (
        "ERROR: This container was built for NVIDIA Driver Release 580.95 or later, but\n       version 535.104.05 was "
        "detected and compatibility mode is UNAVAILABLE.",
        "driver 535.104.05 of that node is too old for the image, which was built for 580.95,",
    ),
    "insufficient-35": ("CUDA driver version is insufficient for CUDA runtime version", "error 35"),
    "empty-libcuda": ("ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short", "empty libcuda"),
    "no-libcuda": (
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "--nv was left out",
    ),
    "no-driver": ("WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.", "--nv"),
    "nvccli-setuid": ("FATAL: nvidia-container-cli not allowed in setuid mode", "--nvccli"),
    "host-glibc": (
        "/lib64/libc.so.6: version `GLIBC_2.34' not found (required by /.singularity.d/libs/libGLX.so.0)",
        "/.singularity.d/libs/libGLX.so.0, was brought into an image whose C library is older",
    ),
    "torch-architectures": (
        "GeForce RTX 3090 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70.\n",
        "no kernels for a GPU of compute capability 8.6; it has 3.7 5.0 6.0 7.0",
    ),
    "no-kernel-209": ("CUDA error: no kernel image is available for execution on the device", "error 209"),
    "ptx-222": ("the provided PTX was compiled with an unsupported toolchain.", "error 222"),
    "no-device": ("RuntimeError: cuda runtime error (100) : no CUDA-capable device is detected", "hidden twice"),
    "gpu-memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of",
        "memory of the GPU is full",
    ),
    "memory-error": ("MemoryError", "more memory than the node or the job's limit gives"),
    "full-disk": ("OSError: [Errno 28] No space left on device: '/tmp/x'", "a disk is full, or a quota is used up"),
    "no-module": (
        "[rank0]: ModuleNotFoundError: No module named 'transformers.models'",
        "Python has no module transformers.models there",
    ),
    "pip-constraint": ("    The user requested (constraint) torch==2.7.0a0+7c8ec84", "PIP_CONSTRAINT"),
    "no-manifest": ("manifest unknown: manifest unknown", "no 'latest'"),
    "minor-mode": ("WARNING: CUDA Minor Version Compatibility mode ENABLED.", "error 222"),
    "forward-mode": ("NOTE: CUDA Forward Compatibility mode ENABLED.", "as it is made to"),
}


def test_messages_have_a_case_each() -> None:
    assert [each.name for each in MESSAGES] == list(SAYINGS)


@pytest.mark.parametrize("name", SAYINGS)
def test_messages_are_recognised_among_other_lines(name: str) -> None:
    line, meaning = SAYINGS[name]
    [clue] = find_clues(f"epoch 1\n{line}\nTraceback\n", notes=True)
    assert meaning in clue.cause
    assert clue.remedy
    assert "{" not in clue.cause
    assert clue.is_failure is not name.endswith("-mode")
    assert clue.line.split()[0] == line.split()[0]


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Exceeded job memory limit",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed",
        "=>> PBS: job killed: mem 2097152kb exceeded limit 1048576kb",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "cp: error writing 'x': Disk quota exceeded",
        "ImportError: No module named yaml",
    ],
)
def test_messages_of_other_versions_are_recognised(line: str) -> None:
    [clue] = find_clues(f"epoch 1\n{line}\n")
    assert clue.line == line


def test_messages_modes_that_work_are_no_failures() -> None:
    assert find_clues(SAYINGS["minor-mode"][0] + SAYINGS["forward-mode"][0]) == ()
    assert find_clues("all is well\n") == ()


def test_messages_cause_comes_before_what_follows_from_it() -> None:
    first = find_clues("\n".join(SAYINGS[name][0] for name in ("no-device", "torch-architectures", "forward-804")))[0]
    assert "error 804" in first.cause


def test_messages_long_and_wild_text_is_bounded() -> None:
    line = "x" * 300_000 + " CUDA failure 804 \x1b[31m" + "y" * 300_000
    [clue] = find_clues(line)
    assert clue.line == "CUDA failure 804"
    assert find_clues("supports CUDA capabilities " + "sm_90 " * 50_000) == ()


def make_record(folder: Path, output: str) -> Record:
    records = Records(folder / "jobs")
    key, _ = records.place()
    draft = Draft("train", "here", "slurm", {}, str(folder), str(folder / "{id}.out"), "", ["sbatch"])
    (folder / "12.out").write_text(output)
    return records.name_id(records.create(key, draft, ""), "12")


def test_clue_of_a_failed_job_is_in_the_end_of_its_output(tmp_path: Path) -> None:
    record = make_record(tmp_path, "step\n" * 200_000 + SAYINGS["no-kernel-209"][0])
    clue = find_failure_clue(record, FAILED)
    assert clue is not None
    assert clue.line == SAYINGS["no-kernel-209"][0]
    assert find_failure_clue(record, JobStatus("12", State.DONE, "COMPLETED")) is None
    assert find_failure_clue(None, FAILED) is None
    (tmp_path / "12.out").unlink()
    assert find_failure_clue(record, FAILED) is None


def test_clue_is_part_of_the_error_of_a_wait(tmp_path: Path) -> None:
    record = make_record(tmp_path, SAYINGS["not-ready-802"][0])
    with pytest.raises(JobFailed) as caught:
        require_success(FoundJob("12", record), [FAILED], lambda status: "it ended with status 1")
    assert caught.value.context["its output says"].startswith("Unexpected error from cudaGetDeviceCount()")
    assert "fabric manager" in caught.value.context["which means"]
    assert (caught.value.hint or "").endswith("see its output: kedge logs 12")
