# SPDX-License-Identifier: BSD-3-Clause
"""A job as JSON takes it, for records. Only what was said is written; what a later kedge added is passed over."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray, Parallel
from kedge.cluster.job_fields import FIELDS, JobField
from kedge.errors import InvalidJob

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
_TEXTS = ("text", "line", "moment", "choice")
_LISTS = ("words", "list", "lines", "choices")
_NUMBERS = ("count", "gpus", "memory", "duration")


def encode_job(job: Job) -> dict[str, object]:
    """The job as a document of `VERSION`; fields by their names in Job."""
    nothing = Job()
    document: dict[str, object] = {"version": VERSION, "name": job.name}
    for field in FIELDS:
        value = getattr(job, field.name)
        if value != getattr(nothing, field.name):
            document[field.name] = _encode(value)
    return document


def decode_job(document: Mapping[str, object]) -> Job:
    """The job of such a document, of this version or another; InvalidJob names the field that cannot be read."""
    values = {}
    for field in FIELDS:
        if field.name in document:
            try:
                values[field.name] = _decode(field, document[field.name])
            except (InvalidJob, TypeError, ValueError, KeyError):
                raise InvalidJob(
                    f"the record of a job is damaged: '{field.name}' cannot be read", context={"key": field.name}
                ) from None
    return Job(**values)


def _encode(value: object) -> object:
    if isinstance(value, JobArray):
        return str(value)
    if isinstance(value, Dependency):
        return {"kind": str(value.kind), "job": value.job, "record": value.record}
    if isinstance(value, tuple):
        return [_encode(each) for each in value]
    return str(value) if isinstance(value, str) else value


def _decode(field: JobField, value: Any) -> Any:
    if field.kind in _LISTS:
        return tuple(_require(each, str) for each in _require(value, list))
    if field.kind == "pairs":
        return tuple((_require(name, str), _require(text, str)) for name, text in _require(value, list))
    if field.kind == "dependencies":
        return tuple(map(_decode_dependency, _require(value, list)))
    if field.kind in _TEXTS:
        return Parallel(value) if field.name == "parallel" else _require(value, str)
    if value is None:
        return getattr(Job(), field.name)
    if field.kind == "array":
        return JobArray.parse(_require(value, str))
    return _require(value, int if field.kind in _NUMBERS else bool)


def _decode_dependency(value: Any) -> Dependency:
    document = _require(value, dict)
    kind = DependencyKind(document["kind"])
    return Dependency(kind, _require(document["job"], str), _require(document.get("record", ""), str))


def _require(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return value
