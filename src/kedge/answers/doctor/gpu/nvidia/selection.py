# SPDX-License-Identifier: BSD-3-Clause
"""Which NVIDIA GPUs programs are told to use, and whether those are the GPUs of the job."""

from __future__ import annotations

from collections import Counter

from kedge.answers.doctor.finding import OK, WARNING, Finding
from kedge.answers.doctor.gpu.nvidia.host import look_at_gpus
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.cluster.schedulers.choose import list_facts
from kedge.container.devices.gpu_advice import find_job, has_grant
from kedge.container.devices.nvidia.card_selection import VARIABLE, select_cards
from kedge.container.options import RunOptions

NAME = "gpu-selection"
_DOCS = f"kedge help doctor {NAME}"


def check_selection(surroundings: Surroundings) -> list[Finding]:
    """Which GPUs programs are told to use: CUDA_VISIBLE_DEVICES."""
    gpus = look_at_gpus(surroundings)
    value = surroundings.environ.get(VARIABLE)
    if not gpus.has_gpu:
        return []
    warnings = select_cards(RunOptions(), gpus.host, gpus.driver).warnings
    if warnings:
        what, _, fix = warnings[0].partition(". ")
        why = "CUDA reads the variable and hides all other GPUs"
        fix = fix or f"correct it, or 'unset {VARIABLE}'; 'nvidia-smi -L' lists the GPUs"
        return [Finding(NAME, WARNING, what.rstrip("."), why=why, fix=fix, docs=_DOCS)]
    job = find_job(surroundings.environ)
    if value is None and job is not None and gpus.driver.usable and not has_grant(surroundings.environ):
        usable = count_things(len(gpus.driver.usable), "GPU")
        what = f"this {job.title} job was given no GPU, but {usable} can be opened"
        why = "its programs can use GPUs of other jobs: both become slow or run out of memory"
        return [
            Finding(NAME, WARNING, what, why=why, fix=f"request GPUs, or hide them: 'export {VARIABLE}='", docs=_DOCS)
        ]
    granted = _list_granted(surroundings)
    if value is None and granted and len(granted) < len(gpus.driver.usable):
        given = f"{count_things(len(granted), 'GPU')} ({','.join(granted)})"
        title = f"{job.title} " if job else ""
        what = f"this {title}job was given {given}, but {VARIABLE} is not set"
        why = f"programs see all {len(gpus.driver.usable)} GPUs, those of other jobs too: sbatch --export=NIL, "
        why += "'env -i' and 'ssh' lose the variable"
        fix = "start programs with srun, which sets it for every task"
        return [Finding(NAME, WARNING, what, why=why, fix=fix, docs=_DOCS)]
    if value is None:
        return [Finding(NAME, OK, f"{VARIABLE} is not set: programs see all GPUs that this user may open")]
    words = [word.strip() for word in value.split(",")]
    twice = next((word for word, count in Counter(words).items() if count > 1), None)
    if twice is not None:
        what = f"{VARIABLE}={value} names '{twice}' twice"
        fix = "name every GPU once"
        return [
            Finding(NAME, WARNING, what, why="CUDA treats this as an error: programs see no GPU", fix=fix, docs=_DOCS)
        ]
    return [Finding(NAME, OK, f"{VARIABLE}={value}" + ("" if job else ", not set by a job"))]


def _list_granted(surroundings: Surroundings) -> list[str]:
    """The numbers of the GPUs that the scheduler says it gave this step or job."""
    values = (surroundings.environ.get(name) for facts in list_facts() for name in facts.gpu_lists)
    granted = next(filter(None, values), "")
    return [word.strip() for word in granted.split(",") if word.strip().isdigit()]
