# SPDX-License-Identifier: BSD-3-Clause
"""What kedge saw on compute nodes, kept where the login node sees it: its driver and GPUs are not the login node's.

One small file for each kind of node of a queue, replaced whole. `kedge doctor` writes it inside a job. Who reads it
trusts nothing: what is damaged or not the user's own is passed over with a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kedge.base.frozen import as_dict, frozen
from kedge.base.patterns import late_pattern
from kedge.base.progress import Progress, Silent
from kedge.cluster.schedulers.current_job import find_current_job
from kedge.cluster.site import Site, expand_path
from kedge.cluster.sites.find_site import choose_site
from kedge.cluster.sites.profile import find_folders, load_site
from kedge.errors import KedgeError
from kedge.jobs.records import find_record_root
from kedge.system.files import write_atomically
from kedge.system.private_files import make_private, read_own_file
from kedge.system.settings import Settings

STALE_AFTER = 90 * 86400.0  # seconds; drivers are replaced a few times a year
_VERSION = 1
_LIMIT = 64 << 10  # bytes; ours have three thousand
_MOST_FILES = 256
_MOST_GPUS = 64
_AHEAD = 86400.0  # seconds that a node's clock may be before ours
_TEXT = late_pattern(r"[ -~]{0,128}")
_VERSION_TEXT = late_pattern(r"([0-9]{1,6}(\.[0-9]{1,6}){0,3})?")
_FLAG = late_pattern(r"[a-z0-9_.]{1,32}")


@frozen
class NodeFacts:
    """What a compute node is; empty means that it was not found out."""

    driver: str = ""  # 535.104.05
    gpus: tuple[str, ...] = ()  # the names of its models, each once
    gpu_count: int = 0  # those that the job had, which may be fewer than the node has
    architecture: str = ""  # amd64, arm64
    cpu: str = ""  # the processor's name
    cpu_features: tuple[str, ...] = ()  # flags as /proc/cpuinfo names them
    glibc: str = ""


@frozen
class Remembered:
    """Facts, with when and where they were seen."""

    site: str
    queue: str
    host: str
    when: float  # seconds since 1970
    facts: NodeFacts
    is_stale: bool = False  # older than 90 days

    @property
    def source(self) -> str:
        """Where the facts are from, as a reader is told it."""
        date = time.strftime("%Y-%m-%d", time.localtime(self.when))
        return f"seen by a job on {self.host} on {date}" + (", which is long ago" if self.is_stale else "")


@frozen
class _JobPlace:
    """The site and the queue of the job that this is."""

    site: Site
    queue: str


def find_job_queue(environ: Mapping[str, str]) -> str:
    """The queue of the job that this runs in; empty outside a job, and where the scheduler does not say."""
    job = find_current_job(environ)
    return job.queue if job is not None else ""


def find_job_place(environ: Mapping[str, str], settings: Settings) -> _JobPlace | None:
    """The site and the queue of the job that this runs in; None outside a job, and where the site is not known."""
    queue = find_job_queue(environ)
    if not queue:
        return None
    try:
        return _JobPlace(choose_site(settings, environ), queue)
    except KedgeError:
        return None


def remember_node(environ: Mapping[str, str], settings: Settings, facts: NodeFacts) -> Path | None:
    """Keep what this node is for the login node; None outside a job, and where it cannot be written. Never raises."""
    place = find_job_place(environ, settings)
    if place is None or _refuse(_encode(place, facts)) is not None:
        return None
    folder = find_node_folder(settings, place.site, environ)
    kind = hashlib.sha256(repr((place.queue, facts.gpus, facts.architecture)).encode()).hexdigest()[:16]
    path = folder / f"{place.site.name}~{kind}.json"
    try:
        make_private(folder)
        write_atomically(path, json.dumps(_encode(place, facts), indent=1).encode() + b"\n", mode=0o600)
    except (OSError, KedgeError):
        return None
    return path


def recall_nodes(
    site: str, queue: str, environ: Mapping[str, str], settings: Settings, progress: Progress | None = None
) -> list[Remembered]:
    """The kinds of nodes that were seen in a queue, or with an empty one in all of the site's; the last seen first."""
    try:
        known = load_site(site, find_folders(environ))
    except KedgeError:
        return []
    folder = find_node_folder(settings, known, environ)
    found = []
    for path in _list_files(folder, known.name):
        seen = _read(path, progress or Silent())
        if seen is not None and seen.site == known.name and queue in ("", seen.queue):
            found.append(seen)
    return sorted(found, key=lambda each: each.when, reverse=True)


def find_node_folder(settings: Settings, site: Site, environ: Mapping[str, str]) -> Path:
    """Where the files are: beside the records of jobs, which both kinds of nodes see, else in the store."""
    is_unseen = not site.home_on_nodes and settings.job_directory is None and not expand_path(site.scratch, environ)
    if is_unseen:
        return settings.cache_directory / "nodes"
    return find_record_root(settings, site, environ) / "nodes"


def _encode(place: _JobPlace, facts: NodeFacts) -> dict[str, Any]:
    host = os.uname().nodename
    return {
        "version": _VERSION,
        "site": place.site.name,
        "queue": place.queue,
        "host": host,
        "when": time.time(),
        **as_dict(facts),
    }


def _list_files(folder: Path, site: str) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name for entry in entries if entry.name.startswith(f"{site}~") and entry.name.endswith(".json")
            ]
    except OSError:
        return []
    return [folder / name for name in sorted(names)[:_MOST_FILES]]


def _read(path: Path, progress: Progress) -> Remembered | None:
    try:
        record = json.loads(read_own_file(path, _LIMIT))
        wrong = _refuse(record)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as problem:
        wrong = getattr(problem, "strerror", None) or "it is not JSON"
    if wrong is not None:
        progress.warn(f"{path} is not what kedge wrote about a node, and is passed over: {wrong}")
        return None
    facts = NodeFacts(
        driver=record["driver"],
        gpus=tuple(record["gpus"]),
        gpu_count=record["gpu_count"],
        architecture=record["architecture"],
        cpu=record["cpu"],
        cpu_features=tuple(record["cpu_features"]),
        glibc=record["glibc"],
    )
    is_stale = time.time() - record["when"] > STALE_AFTER
    return Remembered(
        site=record["site"],
        queue=record["queue"],
        host=record["host"],
        when=float(record["when"]),
        facts=facts,
        is_stale=is_stale,
    )


def _refuse(record: object) -> str | None:
    """Why this cannot be what kedge wrote; None: it can."""
    if not isinstance(record, dict):
        return "it is no table"
    if record.get("version") != _VERSION:
        return "it is of another version of kedge"
    return next(
        (f"'{name}' is not usable" for name, is_usable in _RULES.items() if not is_usable(record.get(name))), None
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def _is_version(value: object) -> bool:
    return isinstance(value, str) and _VERSION_TEXT.fullmatch(value) is not None


def _is_list(value: object, most: int, is_usable: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and len(value) <= most and all(is_usable(each) for each in value)


def _is_flag(value: object) -> bool:
    return isinstance(value, str) and _FLAG.fullmatch(value) is not None


def _is_moment(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0.0 < float(str(value)) < time.time() + _AHEAD  # by its text: a huge int has no float


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_GPUS


_RULES: dict[str, Callable[[object], bool]] = {
    "site": lambda value: bool(value) and _is_text(value),
    "queue": lambda value: bool(value) and _is_text(value),
    "host": _is_text,
    "when": _is_moment,
    "driver": _is_version,
    "gpus": lambda value: _is_list(value, _MOST_GPUS, _is_text),
    "gpu_count": _is_count,
    "architecture": _is_text,
    "cpu": _is_text,
    "cpu_features": lambda value: _is_list(value, 512, _is_flag),
    "glibc": _is_version,
}
