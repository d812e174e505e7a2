# SPDX-License-Identifier: BSD-3-Clause
"""Which tags somebody wants to see: by CUDA version, by age; and which series of NVIDIA's images have ended."""

from __future__ import annotations

from collections.abc import Iterable

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.base.versions import is_at_least, order
from kedge.compat.contents.tag_names import DATE, VERSION, TagName
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import UsageError

_TERM = late_pattern(r"\s*(>=|<=|==|=|>|<)?\s*v?(\d{1,2}(?:\.\d{1,3}){0,3})\s*\Z")
_SINCE = late_pattern(r"(?:(20\d\d)-(0[1-9]|1[0-2])(?:-(\d\d))?|v?(\d{1,9}(?:\.\d{1,9}){0,3}))\Z")
_FIRST_YEAR = 2000
_YEAR = late_pattern(r"(20\d\d)(?:\.(0?[1-9]|1[0-2]))?\Z")
_ARCHITECTURES = late_pattern(r"\barch ([a-z0-9_]+(?:,[a-z0-9_]+)*)")


@frozen
class VersionRange:
    """Versions, such as those of CUDA: `12`, `12.4`, `>=12`, `>=11.8,<13`; fields that are not named may be any."""

    terms: tuple[tuple[str, tuple[int, ...]], ...]

    def holds(self, version: str) -> bool | None:
        """Whether a version is one of them; None where the version says too little."""
        fields = order(version)
        answers = [_compare(fields, operator, wanted) for operator, wanted in self.terms]
        if False in answers:
            return False
        return None if None in answers else True


def read_cuda_range(text: str) -> VersionRange:
    """What `--cuda` names."""
    return read_version_range(text, "--cuda", "versions of CUDA", "as in: --cuda 12, --cuda 12.4, --cuda '>=12'")


def read_version_range(text: str, option: str, what: str, hint: str) -> VersionRange:
    """The versions that an option names; `what` and `hint` say how they are written."""
    terms = []
    for part in text.split(","):
        match = _TERM.match(part)
        if match is None:
            raise UsageError(f"{option} takes {what}, not '{text[:60]}'", hint=hint)
        terms.append((match[1] or "==", order(match[2])))
    return VersionRange(tuple(terms))


def _compare(fields: tuple[int, ...], operator: str, wanted: tuple[int, ...]) -> bool | None:
    if not fields:
        return None
    ours = fields[: len(wanted)]
    if len(ours) < len(wanted) and ours == wanted[: len(ours)]:
        return None  # `12` may be 12.4, or not
    return {
        ">=": ours >= wanted, "<=": ours <= wanted, ">": ours > wanted, "<": ours < wanted
    }.get(operator, ours == wanted)  # fmt: skip


def read_since(text: str) -> str:
    """What `--since` names: a version, 24.01 or 2024, or a month, 2024-01; the day of a date does not count."""
    match = _SINCE.match(text.strip())
    if match is None:
        raise UsageError(
            f"--since takes a release or a month, not '{text[:60]}'", hint="as in: --since 24.01, or --since 2024-01"
        )
    return match[4] or f"{match[1]}-{match[2]}"


def is_since(name: TagName, since: str) -> bool | None:
    """Whether a tag is of that release or a later one; None where its name does not tell."""
    if "-" in since:
        return name.month >= since if name.month else None
    year = _YEAR.match(since)
    if year and name.month:
        return name.month >= f"{year[1]}-{int(year[2] or 1):02}"
    if name.kind == DATE or (year and order(name.version)[:1] < (_FIRST_YEAR,)):
        return None  # only versions that are numbered by years compare with one
    return is_at_least(name.version, since) if name.kind == VERSION else None


def list_architectures(row: NgcRelease | None, name: TagName) -> tuple[str, ...]:
    """The architectures that a tag is known to be for; empty where that is unknown."""
    if name.machine:
        return (name.machine,)
    if row is None:
        return ()
    match = _ARCHITECTURES.search(row.notes)
    if match:
        return tuple(match[1].split(","))
    parts = [part.partition(": ")[0] for part in row.capabilities.split("; ")]
    listed = tuple(part for part in parts if part in ("amd64", "arm64"))
    return listed if len(listed) > 1 else ()


@frozen
class EndedSeries:
    """A series of images that NVIDIA makes no more."""

    image: str
    series: str  # tf1; empty: all of the image
    last: str  # 23.03
    sentence: str


_ENDED = (
    EndedSeries(
        "nvcr.io/nvidia/tensorflow",
        "tf1",
        "23.03",
        "the series of TensorFlow 1 ended with 23.03: there is no newer one, and no fixes",
    ),
    EndedSeries(
        "nvcr.io/nvidia/tensorflow",
        "",
        "25.02",
        "the series of TensorFlow ended with 25.02: there is no newer one, and no fixes",
    ),
)


def list_ended(image: str, names: Iterable[TagName]) -> list[EndedSeries]:
    """The series of an image that have ended; none of which a newer tag is seen, whatever was known before."""
    known = list(names)
    return [
        series
        for series in _ENDED
        if series.image == image and not any(covers(series, name) and _is_later(name, series.last) for name in known)
    ]


def covers(ended: EndedSeries, name: TagName) -> bool:
    """Whether a tag belongs to a series."""
    return name.kind == VERSION and ended.series in ("", name.series)


def _is_later(name: TagName, last: str) -> bool:
    return order(name.version)[:2] > order(last)
