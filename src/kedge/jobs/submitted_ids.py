# SPDX-License-Identifier: BSD-3-Clause
"""The ids of submitted jobs, read from what the submit command printed; who asks for jobs needs no more of `submit`."""

from __future__ import annotations

import contextlib

from kedge.cluster.output_pattern import fill_pattern
from kedge.errors import FileProblem, SchedulerFailed
from kedge.jobs.cluster import Cluster
from kedge.jobs.records import Record
from kedge.system.private_files import read_own_file

_ANSWER_LIMIT = 1 << 20  # bytes of what a submit command prints


def show_output(record: Record) -> str:
    """The output file, with INDEX in it for the tasks of an array."""
    return fill_pattern(record.output.replace("{index}", "INDEX"), name=record.name, id=record.id, index=None)


def recover_id(record: Record, cluster: Cluster) -> Record | None:
    """Note the id of a submission whose kedge was killed before it could; None if there is no id."""
    try:
        text = read_own_file(record.folder / "submit.out", _ANSWER_LIMIT).decode(errors="replace")
        return cluster.records.name_id(record, cluster.backend.parse_submit(text))
    except (OSError, SchedulerFailed, FileProblem):
        return None


def recover_ids(cluster: Cluster) -> None:
    """Read the ids of jobs whose kedge was killed while it submitted them."""
    for key in cluster.records.list_new():
        with contextlib.suppress(FileProblem):
            record = cluster.records.read(key, "")
            if record.site == cluster.site.name:
                recover_id(record, cluster)
