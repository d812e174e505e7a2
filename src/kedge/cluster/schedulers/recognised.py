# SPDX-License-Identifier: BSD-3-Clause
"""Schedulers that kedge knows by sight: it says whose job or script this is, and does not submit to them."""

from __future__ import annotations

from kedge.cluster.schedulers.facts import SchedulerFacts

LSF = SchedulerFacts(
    name="lsf",
    title="LSF",
    prefix="#BSUB",
    submit="bsub",
    interactive=("bsub",),
    job_id="LSB_JOBID",
    job_mark="LSB_JOBID",
    job_scope=("LSB_JOBID",),
    traces=r"\bLSB_\w+|\bblaunch\b",
    ask_for_gpu="add '-gpu num=1' to bsub",
    job_with_memory="bsub -I -M 8G",
)
FLUX = SchedulerFacts(name="flux", title="Flux", prefix="#flux:", submit="flux batch")
RECOGNISED = {facts.name: facts for facts in (LSF, FLUX)}
