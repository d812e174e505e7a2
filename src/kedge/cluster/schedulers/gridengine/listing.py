# SPDX-License-Identifier: BSD-3-Clause
"""`qstat -xml`: jobs that wait, run, or are stuck; and Grid Engine's letters for that, see qstat(1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.times import read_iso_time
from kedge.errors import SchedulerFailed

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_LETTERS = frozenset("dEhrRsStTqw")
# XML has no place for these, and names of jobs may have them
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_DECLARATION = re.compile(r"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)


def read_state(letters: str) -> State:
    """`hqw`, `Rr`, `dT` …: letters for what is true of a job at once."""
    flags = set(letters)
    if not flags or not flags <= _LETTERS:
        return State.UNKNOWN
    if "d" in flags:
        return State.COMPLETING
    if "E" in flags:
        return State.HELD
    if "q" in flags or "w" in flags:
        return State.HELD if "h" in flags else State.QUEUED
    if flags & set("sST"):
        return State.SUSPENDED
    return State.RUNNING if flags & set("rt") else State.UNKNOWN


def parse_job_list(output: str) -> list[JobStatus]:
    """Every job and running task that `qstat -xml` tells of."""
    if not output.strip():
        return []
    root = _read_document(output)
    return [status for each in root.iter("job_list") if (status := _read_job(each)) is not None]


def _read_document(output: str) -> Element:
    from xml.etree.ElementTree import ParseError, fromstring  # late: only Grid Engine speaks XML

    begin = output.find("<?xml")
    text = _FORBIDDEN.sub("?", output[max(begin, 0) :])
    if _DECLARATION.search(text):
        raise SchedulerFailed("qstat printed XML with a document type, which Grid Engine never does")
    try:
        # as bytes: the declaration may name an encoding, and a string with one is refused
        return fromstring(re.sub(r"^<\?xml[^>]*\?>", "", text).encode("utf-8", "replace"))
    except (ParseError, ValueError) as problem:
        raise SchedulerFailed(
            f"qstat printed invalid XML: {problem}", context={"said": output[-2000:]}, hint="try it again"
        ) from None


def _read_job(entry: Element) -> JobStatus | None:
    fields = {each.tag: (each.text or "").strip() for each in entry}
    id, letters = fields.get("JB_job_number", ""), fields.get("state", "")
    if not id.isdecimal():
        return None
    tasks = ",".join(piece.removesuffix(":1") for piece in fields.get("tasks", "").split(","))
    is_one = tasks.isdecimal()
    queue, _, host = fields.get("queue_name", "").partition("@")
    return JobStatus(
        id=id,
        state=read_state(letters),
        raw=letters,
        index=int(tasks) if is_one else None,
        pending_indices="" if is_one else tasks,
        name=fields.get("JB_name", ""),
        user=fields.get("JB_owner", ""),
        queue=queue,
        nodes=host,
        submitted=read_iso_time(fields.get("JB_submission_time", "")),
        started=read_iso_time(fields.get("JAT_start_time", "")),
        details=(("slots", fields["slots"]),) if fields.get("slots") else (),
    )
