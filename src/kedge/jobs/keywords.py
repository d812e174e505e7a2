# SPDX-License-Identifier: BSD-3-Clause
"""A job's description from keywords of a Python call: the keys of kedge.toml, or the words of the flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedge.base.nearest import propose
from kedge.cluster.job import Job
from kedge.cluster.job_fields import BY_KEY, BY_NAME, find_meaning
from kedge.cluster.job_rules import find_problems
from kedge.cluster.job_values import change_job, read_value
from kedge.errors import InvalidJob


def make_job(keywords: Mapping[str, object], *, needs_command: bool = True) -> Job:
    """The job; InvalidJob names the keyword that is wrong. None stands for a keyword that was not given."""
    changes: dict[str, Any] = {}
    for name, value in keywords.items():
        field = BY_KEY.get(name) or find_meaning(name)
        if field is None:
            hint = propose(name, BY_KEY) or f"the keywords are: {', '.join(BY_KEY)}"
            raise InvalidJob(f"a job has no '{name}'", context={"key": name}, hint=hint)
        if value is None:
            continue
        try:
            found = read_value(field, value)
        except InvalidJob as problem:
            raise InvalidJob(f"{name}: {problem.message}", context={"key": name}, hint=problem.hint) from None
        changes = {**found, **changes, field.name: found[field.name]}
    job = change_job(Job(), changes)
    for each in find_problems(job, needs_command=needs_command):
        key = BY_NAME[each.field].key
        raise InvalidJob(f"{key}: {each.message}", context={"key": key}, hint=each.hint)
    return job
