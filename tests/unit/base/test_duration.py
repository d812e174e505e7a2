# SPDX-License-Identifier: BSD-3-Clause
"""Durations, amounts of memory, arrays and dependencies: what is read, and what is refused with which remedy."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.base.duration import LONGEST, format_duration, parse_duration, shorten_duration
from kedge.cluster.job import Dependency, DependencyKind, Job, JobArray, parse_dependencies
from kedge.cluster.memory import parse_memory, shorten_memory
from kedge.errors import InvalidJob
from tests.builders.rows import each_row

GIB = 1 << 30


@each_row(("text", "seconds"), [
    ("2h", 7200), ("90m", 5400), ("1d12h", 36 * 3600), ("30s", 30), ("1h30m", 5400), ("1.5h", 5400),
    ("2 hours 5 min", 7500), ("1w", 7 * 86400), (" 2H ", 7200), ("1:30:00", 5400), ("001:30:00", 5400),
    ("0:90:00", 5400), ("72:00:00", 72 * 3600), ("1-12", 36 * 3600), ("1-12:30", 36 * 3600 + 1800),
    ("1-12:30:15", 36 * 3600 + 1815), ("0-48:00:00", 48 * 3600),
])  # fmt: skip
def test_duration_reads_what_all_schedulers_agree_on(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@each_row(("text", "message", "hint"), [
    ("90", "'90' has no unit", "90m for minutes"),
    ("1:30", "1m30s for some schedulers and 1h30m for others", "1:30:00"),
    ("01:05", "1m5s for some schedulers and 1h5m", "write 1h5m (or 1:05:00), or 1m5s"),
    ("", "empty", "90m, 2h"),
    ("  ", "empty", "90m, 2h"),
    ("soon", "'soon' is not a duration", "90m, 2h"),
    ("-2h", "not a duration", "90m, 2h"),
    ("12h1d", "not a duration", "1d12h"),
    ("1h1h", "not a duration", "1d12h"),
    ("1h30", "not a duration", "1d12h"),
    ("0", "not a time above zero", "leave it out"),
    ("0:00:00", "not a time above zero", "leave it out"),
    ("0.3s", "whole number of seconds", "90m"),
    ("4000d", "more than ten years", "leave it out"),
    ("UNLIMITED", "not a time limit", "leave it out"),
    ("٣h", "not a duration", "90m"),
    ("9" * 5000, "not a duration", "90m"),
    ("1:2:3:4", "not a duration", "90m"),
])  # fmt: skip
def test_duration_refusal_names_the_remedy(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_duration(text)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert len(caught.value.message) < 200


def test_duration_is_written_for_every_scheduler() -> None:
    assert format_duration(90) == "0:01:30"
    assert format_duration(36 * 3600 + 61) == "36:01:01"
    assert format_duration(36 * 3600 + 61, days=True) == "1-12:01:01"
    assert format_duration(5400, days=True) == "1:30:00"
    assert [shorten_duration(each) for each in (30, 90, 3600, 5400, 86460)] == ["30s", "90s", "1h", "1h30m", "1d1m"]


@given(st.integers(1, LONGEST))
def test_duration_every_form_reads_back(seconds: int) -> None:
    for text in (format_duration(seconds), format_duration(seconds, days=True), shorten_duration(seconds)):
        assert parse_duration(text) == seconds


@given(st.text(max_size=40))
def test_duration_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_memory, JobArray.parse, parse_dependencies):
        with contextlib.suppress(InvalidJob):
            assert parse(text)


@each_row(("text", "amount"), [
    ("64G", 64 * GIB), ("64GB", 64 * GIB), ("64gb", 64 * GIB), ("64GiB", 64 * GIB), ("64 G", 64 * GIB),
    ("512M", GIB // 2), ("1.5T", 1536 * GIB), ("2048K", 2 << 20), ("1000b", 1000), ("0.1K", 103),
])  # fmt: skip
def test_memory_is_binary_however_it_is_spelt(text: str, amount: int) -> None:
    assert parse_memory(text) == amount


@each_row(("text", "message", "hint"), [
    ("64", "'64' has no unit", "64G for gigabytes or 64M"), ("0", "'0' has no unit", "G"),
    ("0G", "not an amount above zero", "leave it out"), ("-1G", "not an amount", "512M"),
    ("64W", "not an amount", "512M"), ("64i", "not an amount", "512M"), ("all", "not an amount", "512M"),
    ("", "empty", "512M"), ("9" * 18 + "P", "more than any node", "64G"),
])  # fmt: skip
def test_memory_refusal_names_the_remedy(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_memory(text)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


@given(st.integers(1, 1 << 60))
def test_memory_reads_back(amount: int) -> None:
    assert parse_memory(shorten_memory(amount)) == amount


def test_arrays_and_nodes_are_counted() -> None:
    array = JobArray.parse("0-9%2")
    assert (len(array), array.limit, array.indices, str(array)) == (10, 2, list(range(10)), "0-9%2")
    assert JobArray.parse("1,3,5-9:2").indices == [1, 3, 5, 7, 9]
    assert JobArray.parse(" 1, 3 ").indices == [1, 3]
    assert JobArray.parse("17").indices == [17]
    assert len(JobArray.parse("0-999999")) == 1_000_000
    assert JobArray.parse(str(JobArray.parse("1,3,5-9:2%4"))) == JobArray.parse("1,3,5-9:2%4")
    assert Job(tasks=8, tasks_per_node=4).node_count == 2
    assert Job(nodes=3).node_count == 3
    assert Job(tasks=8).node_count == 1


@each_row(("text", "message"), [
    ("9-0", "counts down"), ("1,1", "repeats an index"), ("1-5,3", "repeats an index"),
    ("0-1000000", "1000001 indices"), ("0-999999999", "1000000000 indices"), ("0-9:0", "step of 0"),
    ("0-9%0", "to run at once"), ("0-9%", "to run at once"), ("0-9%2%3", "to run at once"),
    ("-1", "neither an index"), ("a-b", "neither an index"), ("1,,2", "neither an index"), ("", "neither an index"),
])  # fmt: skip
def test_array_refusals(text: str, message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as caught:
        JobArray.parse(text)
    assert caught.value.hint


def test_dependencies_plain_means_after_success() -> None:
    ok, any_end, begun = DependencyKind.AFTER_OK, DependencyKind.AFTER_ANY, DependencyKind.AFTER
    assert parse_dependencies("12") == (Dependency(ok, "12"),)
    assert parse_dependencies("my training") == (Dependency(ok, "my training"),)
    assert parse_dependencies("123[].server") == (Dependency(ok, "123[].server"),)
    assert parse_dependencies("afterok:12") == (Dependency(ok, "12"),)
    assert parse_dependencies("afterany:1:2,after:3") == (
        Dependency(any_end, "1"),
        Dependency(any_end, "2"),
        Dependency(begun, "3"),
    )
    assert [str(each) for each in parse_dependencies("afterok:1,afterany:2")] == ["1", "afterany:2"]


@each_row("text", ["", " ", "afterok:", "12,13", "12:13", "after:12,13", "aftercorr:2", "a\nb"])
def test_dependencies_refusals_say_the_kinds(text: str) -> None:
    with pytest.raises(InvalidJob, match="is not a job to wait for") as caught:
        parse_dependencies(text)
    assert "afternotok:JOB" in str(caught.value.hint)
