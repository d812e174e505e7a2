# SPDX-License-Identifier: BSD-3-Clause
"""Jobs wherever they were submitted to: `kedge status` finds one of the local queue, or from before `kedge site init`.

A site that the user names with --site is the only one that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kedge.errors import JobNotFound, SiteProblem, UsageError
from kedge.frozen import replace
from kedge.jobs.records import Record
from kedge.ops.jobs.clusters import Cluster, open_cluster
from kedge.ops.jobs.control import FoundJob, find_job
from kedge.settings import Settings


def locate_job(settings: Settings, environ: Mapping[str, str], word: str) -> tuple[Cluster, FoundJob]:
    """A job by what its user calls it, and the cluster that it is on: this one first, `last` on any."""
    cluster = open_cluster(settings, environ)
    if settings.sources["site"].kind == "flag":
        return cluster, find_job(cluster, word)
    try:
        here = find_job(cluster, word) if word != "last" else None
        if here is not None and here.record is not None:
            return cluster, here
    except JobNotFound:
        here = None
    elsewhere = _find_elsewhere(cluster, word)
    if elsewhere is None:
        return cluster, here or find_job(cluster, word)
    record, index = elsewhere
    return _open_place(record, cluster, settings, environ), FoundJob(record.id, record, index)


def locate_jobs(settings: Settings, environ: Mapping[str, str], words: Sequence[str]) -> tuple[Cluster, list[FoundJob]]:
    """Several jobs of one cluster."""
    located = [locate_job(settings, environ, word) for word in words]
    names = list(dict.fromkeys(cluster.site.name for cluster, _ in located))
    if len(names) > 1:
        raise UsageError(
            f"these jobs are on several sites: {', '.join(names)}",
            hint=f"give those of one at a time: --site {names[0]}",
        )
    return located[0][0], [job for _, job in located]


def _find_elsewhere(cluster: Cluster, word: str) -> tuple[Record, int | None] | None:
    """The newest record of any site that the word fits, and the task that it names."""
    whole, underscore, index = word.rpartition("_")
    tries = [(word, None), *([(whole, int(index))] if underscore and index.isdecimal() else [])]
    for name, task in tries:
        try:
            return cluster.records.find(name, ""), task
        except JobNotFound:
            continue
    return None


def _open_place(record: Record, cluster: Cluster, settings: Settings, environ: Mapping[str, str]) -> Cluster:
    """The cluster of a record; where its profile is gone, this one if it has the same scheduler."""
    if record.site == cluster.site.name:
        return cluster
    try:
        other = open_cluster(replace(settings, site=record.site), environ)
    except SiteProblem:
        if record.scheduler == cluster.backend.name:
            return cluster
        raise
    return replace(other, records=cluster.records)
