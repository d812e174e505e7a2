# SPDX-License-Identifier: BSD-3-Clause
"""`qacct -j`: how jobs ended. The codes of `failed` are those of accounting(5)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.quantities import read_printed_time, read_seconds

_RESCHEDULED, _LIMIT, _SIGNALLED = 25, 37, 100
_KILL = 9
_NUMBER = re.compile(r"\d{1,12}")
_AMOUNT = re.compile(r"([\d.]{1,20})\s*([KMGTkmgt]?)(?:i?[Bb])?")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_REQUEST = re.compile(r"(?:^|[ ,])(h_rt|h_vmem|s_vmem|h_rss)=([^ ,]+)")
_SHOWN = ("maxvmem", "ru_wallclock", "cpu", "slots", "granted_pe", "deleted_by")


def parse_accounts(output: str) -> list[JobStatus]:
    """The last entry of every job and task; one that was put back into the queue has several."""
    statuses: dict[tuple[str, int | None], JobStatus] = {}
    for fields in _split_entries(output):
        if fields.get("pe_taskid", "NONE").upper() not in ("NONE", "UNDEFINED", ""):
            continue  # a part of a parallel job on another node
        status = _read_entry(fields)
        if status is not None:
            statuses[(status.id, status.index)] = status
    return list(statuses.values())


def _split_entries(output: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = []
    for line in output.splitlines():
        if line.startswith("===="):
            entries.append({})
        elif entries:
            key, _, value = line.partition(" ")
            entries[-1].setdefault(key, value.strip())
    return entries


def _read_entry(fields: Mapping[str, str]) -> JobStatus | None:
    id, task = fields.get("jobnumber", ""), fields.get("taskid", "")
    failed, exit_status = _read_number(fields.get("failed", "")), _read_number(fields.get("exit_status", ""))
    if not id.isdecimal() or failed is None or exit_status is None:
        return None
    is_signal = failed in (_LIMIT, _SIGNALLED) and exit_status > 128
    requested = dict(_REQUEST.findall(fields.get("category", "")))
    return JobStatus(
        id=id,
        state=_find_state(fields, failed, exit_status, requested),
        raw=f"failed {failed}, exit_status {exit_status}",
        index=int(task) if task.isdecimal() else None,
        reason=fields["failed"].partition(":")[2].strip(),
        name=fields.get("jobname", ""),
        user=fields.get("owner", ""),
        queue=fields.get("qname", ""),
        nodes=fields.get("hostname", ""),
        exit_code=None if is_signal or 0 < failed < _LIMIT else exit_status,
        signal=exit_status - 128 if is_signal else None,
        submitted=read_printed_time(fields.get("qsub_time", "")),
        started=read_printed_time(fields.get("start_time", "")),
        ended=read_printed_time(fields.get("end_time", "")),
        time_limit=read_seconds(requested.get("h_rt", "")),
        details=tuple((name, fields[name]) for name in _SHOWN if fields.get(name, "NONE") != "NONE"),
    )


def _find_state(fields: Mapping[str, str], failed: int, exit_status: int, requested: Mapping[str, str]) -> State:
    if failed == 0:
        return State.DONE if exit_status == 0 else State.FAILED
    if failed == _RESCHEDULED:
        return State.LOST  # it is in the queue again; else it was deleted there, of which accounts say nothing
    if fields.get("deleted_by", "NONE") != "NONE":
        return State.CANCELLED
    if failed not in (_LIMIT, _SIGNALLED):
        return State.FAILED
    limit = _find_limit(fields, requested)
    if limit is not None:
        return limit
    if failed == _LIMIT:
        return State.OUT_OF_MEMORY if requested and "h_rt" not in requested else State.TIMEOUT
    return State.CANCELLED if exit_status == 128 + _KILL else State.FAILED


def _find_limit(fields: Mapping[str, str], requested: Mapping[str, str]) -> State | None:
    """Which limit of the job's own a signal was for."""
    lasted, allowed = read_amount(fields.get("ru_wallclock", "").rstrip("s")), read_seconds(requested.get("h_rt", ""))
    if lasted is not None and allowed and lasted >= allowed:
        return State.TIMEOUT
    used = read_amount(fields.get("maxvmem", ""))
    wanted = [read_amount(requested[name]) for name in requested if name != "h_rt"]
    slots = _read_number(fields.get("slots", "")) or 1
    if used and any(each and used >= 0.98 * each * slots for each in wanted):
        return State.OUT_OF_MEMORY
    return None


def _read_number(text: str) -> int | None:
    match = _NUMBER.match(text)
    return int(match[0]) if match else None


def read_amount(text: str) -> float | None:
    """`4.156MB` in bytes, or a plain number; None where it is neither."""
    match = _AMOUNT.fullmatch(text.strip())
    try:
        return float(match[1]) * 1024 ** _POWERS[match[2].upper()] if match else None
    except ValueError:
        return None
