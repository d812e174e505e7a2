# SPDX-License-Identifier: BSD-3-Clause
"""The GPU driver: whether it is loaded and answers, its devices can be opened, and jobs see the GPUs they have."""

from __future__ import annotations

from collections import Counter

from kedge.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.doctor.gpu.host import find_other_driver, look_at_gpus
from kedge.doctor.gpu.toolkit import judge_toolkit
from kedge.doctor.surroundings import Surroundings
from kedge.host.gpu_probe import MISMATCH, GpuProbe, ProbedGpu, probe_gpus
from kedge.model.counting import count_things
from kedge.runtime.devices.nvidia.card_selection import VARIABLE, select_cards
from kedge.runtime.devices.nvidia.missing_parts import find_job, has_grant
from kedge.runtime.options import RunOptions
from kedge.schedulers.choose import list_facts

_PAGE = "kedge help doctor"
_SECONDS = 1.5  # a driver that must first wake its GPUs may take longer, and is told of then
_TELL = "use another node, and tell the administrators"


def check_driver(surroundings: Surroundings) -> list[Finding]:
    """The kernel's module and its version."""
    name, docs = "gpu-driver", f"{_PAGE} gpu-driver"
    gpus = look_at_gpus(surroundings)
    other = find_other_driver(gpus)
    if other:
        return [Finding(name, OK, other)]
    for lack in gpus.list_lacks("module"):
        return [Finding(name, FAIL, _end(lack.what), "no program can use the GPU without it", lack.fix, docs)]
    for lack in gpus.list_lacks("absent"):
        why = "programs that need a GPU do not run here; on a login node that is as it should be"
        return [Finding(name, NOTE, _end(lack.what), why, lack.fix, docs)]
    if gpus.driver.version:
        loaded = Finding(name, OK, f"NVIDIA driver {gpus.driver.version} is loaded")
        return [loaded, *judge_toolkit(gpus, gpus.driver.version)]
    if gpus.libraries.version:
        told = f"NVIDIA driver {gpus.libraries.version}, by its libraries (the kernel does not say)"
        return [Finding(name, OK, told)]
    return [
        Finding(
            name,
            WARNING,
            "its version is not known: neither the kernel nor its libraries say it",
            "what runs here depends on it, and 'kedge explain' cannot judge without it",
            "ask it: 'nvidia-smi'; then name it: 'kedge explain IMAGE --driver VERSION'",
            docs,
        )
    ]


def check_devices(surroundings: Surroundings) -> list[Finding]:
    """The nodes in /dev: there, and for this user."""
    name, docs = "gpu-devices", f"{_PAGE} gpu-devices"
    gpus = look_at_gpus(surroundings)
    if not gpus.has_gpu or find_other_driver(gpus):
        return []
    why = "a container gets the devices of the host; programs in it will find no GPU"
    lacks = [Finding(name, FAIL, _end(lack.what), why, lack.fix, docs) for lack in gpus.list_lacks("devices")]
    if lacks:
        return lacks
    usable, refused = gpus.driver.usable, gpus.driver.refused
    shown = f"{count_things(len(usable), 'GPU')}: {', '.join(card.node for card in usable)}"
    if refused:
        shown += f" ({len(refused)} more {'is' if len(refused) == 1 else 'are'} not for this process)"
    return [Finding(name, OK, shown)]


def check_nvml(surroundings: Surroundings) -> list[Finding]:
    """Whether the driver answers, and what it says: in a child, because a broken one never does."""
    gpus = look_at_gpus(surroundings)
    if not gpus.has_gpu or find_other_driver(gpus):
        return []
    path = gpus.libraries.find("libnvidia-ml")
    probe = probe_gpus(_SECONDS * surroundings.patience, gpus.locate(path) if path else "")
    findings = judge_probe(probe, gpus.driver.version or gpus.libraries.version)
    return findings + _judge_parts(surroundings.environ.get(VARIABLE, ""), probe)


def judge_probe(probe: GpuProbe, version: str) -> list[Finding]:
    """What the driver's answer means; `version` is what the kernel runs."""
    if not probe.has_answered:
        return [_explain_silence(probe)]
    name, docs = "gpu-answer", f"{_PAGE} gpu-answer"
    findings = [Finding(name, OK, _describe(probe))] if any(not gpu.problem for gpu in probe.gpus) else []
    if version and probe.driver and probe.driver != version:
        findings.append(_explain_mismatch(f"the driver says it is {probe.driver}, the kernel runs {version}"))
    if not probe.gpus:
        what = f"driver {probe.driver} answers, but has no GPU for this process"
        fix = "ask the scheduler for GPUs; in a job that did: " + _TELL
        findings.append(Finding(name, WARNING, what, "programs will find no GPU", fix, docs))
    for number, gpu in enumerate(probe.gpus):
        findings += _judge_gpu(number, gpu)
    if any(gpu.is_persistent is False for gpu in probe.gpus):
        why = "the driver wakes the GPUs anew for the first program, which waits for that, often for seconds"
        fix = "administrators start 'nvidia-persistenced', or 'nvidia-smi -pm 1'"
        findings.append(Finding(name, NOTE, "persistence mode is off", why, fix, docs))
    return findings


def _explain_silence(probe: GpuProbe) -> Finding:
    name, docs = "gpu-answer", f"{_PAGE} gpu-answer"
    if probe.code == MISMATCH:
        return _explain_mismatch(probe.problem)
    if probe.has_hung:
        why = "nvidia-smi, NCCL and CUDA ask in the same way, and may hang, too"
        fix = "try 'timeout 60 nvidia-smi': if it is slow only, persistence mode is off; if it does not end, " + _TELL
        return Finding(name, WARNING, probe.problem, why, fix, docs)
    why = "nvidia-smi and NCCL ask the driver in the same way and will fail"
    return Finding(name, FAIL, probe.problem, why, _TELL, docs)


def _explain_mismatch(what: str) -> Finding:
    return Finding(
        "gpu-answer",
        FAIL,
        what,
        "the driver was updated while the old one still runs: CUDA and nvidia-smi fail with 'Driver/library version "
        "mismatch' (NVML 18, CUDA 803)",
        "the node must be rebooted, or the module loaded anew: " + _TELL,
        f"{_PAGE} gpu-answer",
    )


def _judge_gpu(number: int, gpu: ProbedGpu) -> list[Finding]:
    """What is wrong with one of them, or must be known."""
    name, docs = "gpu-answer", f"{_PAGE} gpu-answer"
    if gpu.problem:
        why = "programs that are given this GPU fail; the others may work"
        return [Finding(name, FAIL, f"GPU {number}: {gpu.problem}", why, _TELL, docs)]
    findings = []
    if gpu.fabric in ("not started", "in progress"):
        what = f"GPU {number}: its NVLink fabric is {gpu.fabric}"
        why = (
            "CUDA does not start before the fabric manager has joined the GPUs (error 802, system not yet initialized)"
        )
        fix = "wait a minute; if it stays so, the service nvidia-fabricmanager does not run: " + _TELL
        findings.append(Finding(name, FAIL, what, why, fix, docs))
    if gpu.is_partitioned and gpu.parts:
        what = f"GPU {number} is divided by MIG: {count_things(len(gpu.parts), 'part')} for this process"
        why = "a CUDA program uses one part of it, never several"
        fix = f"choose one with CUDA_VISIBLE_DEVICES={gpu.parts[0]}; in a job the scheduler does that"
        findings.append(Finding(name, NOTE, what, why, fix, docs))
    elif gpu.is_partitioned:
        what = f"GPU {number}: MIG is on, but there is no part of it for this process"
        why = "CUDA programs will find no device"
        fix = "ask the scheduler for a part; administrators make parts with 'nvidia-smi mig -cgi'"
        findings.append(Finding(name, WARNING, what, why, fix, docs))
    return findings


def _judge_parts(value: str, probe: GpuProbe) -> list[Finding]:
    """Parts of MIG that CUDA_VISIBLE_DEVICES names: only the driver knows which there are."""
    known = [part for gpu in probe.gpus for part in gpu.parts]
    named = [word.strip() for word in value.split(",") if word.strip().startswith("MIG-") and "/" not in word]
    lost = [word for word in named if not any(part.startswith(word) for part in known)]
    if not lost or not probe.has_answered:
        return []
    what = f"{VARIABLE} names {lost[0]}, and there is no such part of a GPU for this process"
    fix = f"there are: {', '.join(known)}" if known else f"ask the scheduler for a part, or 'unset {VARIABLE}'"
    return [Finding("gpu-answer", WARNING, what, "CUDA programs will find no device", fix, f"{_PAGE} gpu-answer")]


def check_selection(surroundings: Surroundings) -> list[Finding]:
    """Which GPUs programs are told to use: CUDA_VISIBLE_DEVICES."""
    name, docs = "gpu-selection", f"{_PAGE} gpu-selection"
    gpus = look_at_gpus(surroundings)
    value = surroundings.environ.get(VARIABLE)
    if not gpus.has_gpu:
        return []
    warnings = select_cards(RunOptions(), gpus.host, gpus.driver).warnings
    if warnings:
        what, _, fix = warnings[0].partition(". ")
        why = "CUDA reads the variable and hides all other GPUs"
        fix = fix or f"correct it, or 'unset {VARIABLE}'; 'nvidia-smi -L' lists the GPUs"
        return [Finding(name, WARNING, _end(what), why, fix, docs)]
    job = find_job(surroundings.environ)
    if value is None and job is not None and gpus.driver.usable and not has_grant(surroundings.environ):
        what = (
            f"this {job.title} job was given no GPU, but {count_things(len(gpus.driver.usable), 'GPU')} can be opened"
        )
        why = "nothing keeps its programs from GPUs that other jobs were given: both get slow, or run out of memory"
        return [Finding(name, WARNING, what, why, f"ask for GPUs in the job, or hide them: 'export {VARIABLE}='", docs)]
    granted = _list_granted(surroundings)
    if value is None and granted and len(granted) < len(gpus.driver.usable):
        given = f"{count_things(len(granted), 'GPU')} ({','.join(granted)})"
        title = f"{job.title} " if job else ""
        what = f"this {title}job was given {given}, but {VARIABLE} is not set"
        why = f"programs see all {len(gpus.driver.usable)} GPUs, those of other jobs too: sbatch --export=NIL, "
        why += "'env -i' and 'ssh' lose the variable"
        fix = "start programs with srun, which sets it for every task, or leave out what drops it"
        return [Finding(name, WARNING, what, why, fix, docs)]
    if value is None:
        return [Finding(name, OK, f"{VARIABLE} is not set: programs see every GPU that they may use")]
    words = [word.strip() for word in value.split(",")]
    twice = next((word for word, count in Counter(words).items() if count > 1), None)
    if twice is not None:
        what = f"{VARIABLE}={value} names '{twice}' twice"
        fix = "name every GPU once"
        return [Finding(name, WARNING, what, "CUDA takes that for an error, and programs see no GPU", fix, docs)]
    return [Finding(name, OK, f"{VARIABLE}={value}" + ("" if job else ", which no job has set"))]


def _list_granted(surroundings: Surroundings) -> list[str]:
    """The numbers of the GPUs that the scheduler says it gave this step or job."""
    values = (surroundings.environ.get(name) for facts in list_facts() for name in facts.gpu_lists)
    granted = next(filter(None, values), "")
    return [word.strip() for word in granted.split(",") if word.strip().isdigit()]


def _describe(probe: GpuProbe) -> str:
    """`driver 580.95.05, CUDA 13.0; 4 × NVIDIA A100-SXM4-40GB (8.0)`."""
    kinds = Counter((gpu.name, gpu.capability) for gpu in probe.gpus if not gpu.problem)
    shown = [
        f"{count} × {name or 'a GPU'}" + (f" (compute capability {capability})" if capability else "")
        for (name, capability), count in kinds.items()
    ]
    cuda = f", CUDA up to {probe.cuda}" if probe.cuda else ""
    return f"driver {probe.driver or 'of a version it does not tell'}{cuda}; {', '.join(shown)}"


def _end(sentence: str) -> str:
    """A sentence as a finding has it, without its last stop."""
    return sentence.rstrip(".")
