# SPDX-License-Identifier: BSD-3-Clause
"""Whether the NVIDIA driver answers, and what it says of its GPUs."""

from __future__ import annotations

from collections import Counter

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.gpu.nvidia.host import look_at_gpus
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.container.devices.nvidia.card_selection import VARIABLE
from kedge.system.host.gpu_probe import MISMATCH, GpuProbe, ProbedGpu, probe_gpus

NAME = "gpu-answer"
_DOCS = f"kedge help doctor {NAME}"
_SECONDS = 1.5  # a driver that must first wake its GPUs may take longer; the finding says so
_TELL = "use another node and tell the administrators"


def check_nvml(surroundings: Surroundings) -> list[Finding]:
    """Whether the driver answers, and what it says: in a child, because a broken one never does."""
    gpus = look_at_gpus(surroundings)
    if not gpus.can_be_examined:
        return []
    path = gpus.libraries.find("libnvidia-ml")
    probe = probe_gpus(_SECONDS * surroundings.patience, gpus.locate(path) if path else "")
    findings = judge_probe(probe, gpus.driver.version or gpus.libraries.version)
    return findings + _judge_parts(surroundings.environ.get(VARIABLE, ""), probe)


def judge_probe(probe: GpuProbe, version: str) -> list[Finding]:
    """What the driver's answer means; `version` is what the kernel runs."""
    if not probe.has_answered:
        return [_explain_silence(probe)]
    findings = [Finding(NAME, OK, _describe(probe))] if any(not gpu.problem for gpu in probe.gpus) else []
    if version and probe.driver and probe.driver != version:
        findings.append(_explain_mismatch(f"the driver library is version {probe.driver}, the kernel runs {version}"))
    if not probe.gpus:
        what = f"driver {probe.driver} gives this process no GPU"
        fix = "request GPUs from the scheduler; in a job that did: " + _TELL
        findings.append(Finding(NAME, WARNING, what, why="programs find no GPU", fix=fix, docs=_DOCS))
    for number, gpu in enumerate(probe.gpus):
        findings += _judge_gpu(number, gpu)
    if any(gpu.is_persistent is False for gpu in probe.gpus):
        why = "the first GPU program waits, often for seconds, until the driver has initialised the GPUs"
        fix = "administrators can start 'nvidia-persistenced' or run 'nvidia-smi -pm 1'"
        findings.append(Finding(NAME, NOTE, "persistence mode is off", why=why, fix=fix, docs=_DOCS))
    return findings


def _explain_silence(probe: GpuProbe) -> Finding:
    if probe.code == MISMATCH:
        return _explain_mismatch(probe.problem)
    if probe.has_hung:
        why = "nvidia-smi, NCCL and CUDA use the same calls and may hang too"
        fix = "run 'timeout 60 nvidia-smi': if it is only slow, persistence mode is off; if it hangs, " + _TELL
        return Finding(NAME, WARNING, probe.problem, why=why, fix=fix, docs=_DOCS)
    why = "nvidia-smi and NCCL use the same calls and will fail"
    return Finding(NAME, FAIL, probe.problem, why=why, fix=_TELL, docs=_DOCS)


def _explain_mismatch(what: str) -> Finding:
    return Finding(
        NAME,
        FAIL,
        what,
        why="the driver was updated, but the old module still runs: CUDA and nvidia-smi fail with "
        "'Driver/library version "
        "mismatch' (NVML 18, CUDA 803)",
        fix="the node must be rebooted, or its module reloaded: " + _TELL,
        docs=_DOCS,
    )


def _judge_gpu(number: int, gpu: ProbedGpu) -> list[Finding]:
    """Return what is wrong with a GPU, or must be known of it."""
    if gpu.problem:
        why = "programs on this GPU fail; other GPUs may work"
        return [Finding(NAME, FAIL, f"GPU {number}: {gpu.problem}", why=why, fix=_TELL, docs=_DOCS)]
    findings = []
    if gpu.fabric in ("not started", "in progress"):
        what = f"GPU {number}: NVLink fabric {gpu.fabric}"
        why = "CUDA does not start until the fabric manager has set up the GPUs (error 802, system not yet initialized)"
        fix = "wait a minute; if it does not change, the service nvidia-fabricmanager is not running: " + _TELL
        findings.append(Finding(NAME, FAIL, what, why=why, fix=fix, docs=_DOCS))
    if gpu.is_partitioned and gpu.parts:
        what = f"GPU {number} uses MIG: {count_things(len(gpu.parts), 'instance')} for this process"
        why = "a CUDA program can use one MIG instance only"
        fix = f"set CUDA_VISIBLE_DEVICES={gpu.parts[0]}; in a job the scheduler sets it"
        findings.append(Finding(NAME, NOTE, what, why=why, fix=fix, docs=_DOCS))
    elif gpu.is_partitioned:
        what = f"GPU {number}: MIG is on, but this process has no MIG instance"
        why = "CUDA programs find no device"
        fix = "request a MIG instance from the scheduler; administrators create them with 'nvidia-smi mig -cgi'"
        findings.append(Finding(NAME, WARNING, what, why=why, fix=fix, docs=_DOCS))
    return findings


def _judge_parts(value: str, probe: GpuProbe) -> list[Finding]:
    """Parts of MIG that CUDA_VISIBLE_DEVICES names: only the driver knows which there are."""
    known = [part for gpu in probe.gpus for part in gpu.parts]
    named = [word.strip() for word in value.split(",") if word.strip().startswith("MIG-") and "/" not in word]
    lost = [word for word in named if not any(part.startswith(word) for part in known)]
    if not lost or not probe.has_answered:
        return []
    what = f"{VARIABLE} names {lost[0]}, which is not a MIG instance of this process"
    fix = f"use {', '.join(known)}" if known else f"request a MIG instance from the scheduler, or 'unset {VARIABLE}'"
    return [Finding(NAME, WARNING, what, why="CUDA programs find no device", fix=fix, docs=_DOCS)]


def _describe(probe: GpuProbe) -> str:
    """`driver 580.95.05, CUDA 13.0; 4 × NVIDIA A100-SXM4-40GB (8.0)`."""
    kinds = Counter((gpu.name, gpu.capability) for gpu in probe.gpus if not gpu.problem)
    shown = [
        f"{count} × {name or 'a GPU'}" + (f" (compute capability {capability})" if capability else "")
        for (name, capability), count in kinds.items()
    ]
    cuda = f", CUDA up to {probe.cuda}" if probe.cuda else ""
    return f"driver {probe.driver or 'of unknown version'}{cuda}; {', '.join(shown)}"
