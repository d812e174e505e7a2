# SPDX-License-Identifier: BSD-3-Clause
"""One description of a job for any scheduler: submitted, watched, recorded; scripts of others; the local queue."""

# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.
PUBLIC = (
    "alloc",
    "cancel",
    "cluster",
    "description",
    "efficiency",
    "failure_clues",
    "find_job",
    "job_handle",
    "keywords",
    "local.directives",
    "local_queue",
    "logs",
    "merge_status",
    "queue_target",
    "records",
    "runs.recorder",
    "runs.rerun",
    "runs.run_facts",
    "runs.run_record",
    "script",
    "seen_nodes",
    "status",
    "submit",
    "submitted_ids",
    "wait",
)
