# SPDX-License-Identifier: BSD-3-Clause
"""Finds a job by its id, its name or `last`: at this site first, then wherever else the user submitted jobs.

With --site only that site is searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kedge.base.frozen import frozen, replace
from kedge.errors import JobNotFound, SiteProblem, UsageError
from kedge.jobs.cluster import Cluster, open_cluster
from kedge.jobs.records import Record
from kedge.jobs.submitted_ids import recover_ids
from kedge.system.settings import Settings


@frozen
class FoundJob:
    """A job by its id, with its record where kedge submitted it; `index` where the user named one task."""

    id: str
    record: Record | None
    index: int | None = None

    @property
    def name(self) -> str:
        """The job as sentences name it: `12 (train)`, `12_3 (train)`."""
        id = self.id or (self.record.key if self.record else "")
        shown = id if self.index is None else f"{id}_{self.index}"
        return f"{shown} ({self.record.name})" if self.record else shown

    @property
    def typed_id(self) -> str:
        """The id as commands take it anywhere: with --site where the site must be named."""
        return self.record.typed_id if self.record else self.id


def locate_job(settings: Settings, environ: Mapping[str, str], word: str) -> tuple[Cluster, FoundJob]:
    """Find a job and the cluster it is on: this cluster first; `last` is the newest of any site."""
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
    return _open_cluster_of(record, cluster, settings, environ), FoundJob(record.id, record, index)


def locate_jobs(settings: Settings, environ: Mapping[str, str], words: Sequence[str]) -> tuple[Cluster, list[FoundJob]]:
    """Find several jobs, which must be on one cluster."""
    located = [locate_job(settings, environ, word) for word in words]
    names = list(dict.fromkeys(cluster.site.name for cluster, _ in located))
    if len(names) > 1:
        raise UsageError(
            f"these jobs are on different sites: {', '.join(names)}",
            hint=f"name the jobs of one site at a time: --site {names[0]}",
        )
    return located[0][0], [job for _, job in located]


def find_job(cluster: Cluster, word: str) -> FoundJob:
    """Find a job of one cluster by `12`, `12_3`, its name, its record's key, or `last`."""
    recover_ids(cluster)
    try:
        record = cluster.records.find(word, cluster.site.name)
        return FoundJob(record.id, record)
    except JobNotFound:
        id, underscore, index = word.rpartition("_")
        if underscore and index.isdecimal():
            job = find_job(cluster, id)
            return FoundJob(job.id, job.record, int(index))
        if word[:1].isdecimal():
            return FoundJob(word, None)
        raise


def _find_elsewhere(cluster: Cluster, word: str) -> tuple[Record, int | None] | None:
    """The newest record of any site that matches the word, and the task that the word names."""
    whole, underscore, index = word.rpartition("_")
    tries = [(word, None), *([(whole, int(index))] if underscore and index.isdecimal() else [])]
    for name, task in tries:
        try:
            return cluster.records.find(name, ""), task
        except JobNotFound:
            continue
    return None


def _open_cluster_of(record: Record, cluster: Cluster, settings: Settings, environ: Mapping[str, str]) -> Cluster:
    """The cluster of a record; if its profile is gone, this cluster where it has the same scheduler."""
    if record.site == cluster.site.name:
        return cluster
    try:
        other = open_cluster(replace(settings, site=record.site), environ)
    except SiteProblem:
        if record.scheduler == cluster.backend.name:
            return cluster
        raise
    return replace(other, records=cluster.records)
