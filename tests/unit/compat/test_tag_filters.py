# SPDX-License-Identifier: BSD-3-Clause
"""Filters of tags: by CUDA, by age, by processor; and which series of images have ended."""

from __future__ import annotations

import pytest

from kedge.compat.contents.tag_filters import is_since, list_architectures, list_ended, read_cuda_range, read_since
from kedge.compat.contents.tag_names import read_tag
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import UsageError
from tests.builders.rows import each_row

TENSORFLOW = "nvcr.io/nvidia/tensorflow"


@each_row(
    ("wanted", "yes", "no", "unknown"),
    [
        ("12", ["12.4.1", "12", "12.0"], ["11.8.0", "13.0.0", "120.1"], [""]),
        ("12.4", ["12.4", "12.4.1.003"], ["12.5.0", "12.40"], ["12", "new"]),
        ("=12.4.1", ["12.4.1"], ["12.4.0"], ["12.4"]),
        (">=12", ["12.0", "13.0", "12"], ["11.8"], [""]),
        (">12", ["13.0"], ["12.9", "11.8"], []),
        ("<=12", ["12.9", "11.8"], ["13.0"], []),
        ("< 12.4", ["12.3.2", "11.8"], ["12.4.0", "13"], ["12"]),
        (">=11.8,<13", ["11.8.0", "12.9"], ["13.0", "11.7"], [""]),
    ],
)
def test_cuda_range_holds(wanted: str, yes: list[str], no: list[str], unknown: list[str]) -> None:
    chosen = read_cuda_range(wanted)
    assert [chosen.holds(version) for version in (*yes, *no, *unknown)] == (
        [True] * len(yes) + [False] * len(no) + [None] * len(unknown)
    )


@each_row("text", ["", ",", "new", ">=", "12.x", "12;13", "=>12", "-1", "1" * 50])
def test_cuda_range_refuses_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="--cuda takes versions"):
        read_cuda_range(text)


def test_since_compares_releases_months_and_versions() -> None:
    for since in (read_since("24.03"), read_since("2024-03"), read_since("2024-03-15")):
        assert is_since(read_tag("24.03-py3"), since)
        assert is_since(read_tag("25.01-py3"), since)
        assert is_since(read_tag("24.02-py3"), since) is False
        assert is_since(read_tag("latest"), since) is None
    assert is_since(read_tag("12.10.0-base", "nvcr.io/nvidia/cuda"), "12.4")
    assert is_since(read_tag("12.4.1-base", "nvcr.io/nvidia/cuda"), read_since("2024-03")) is None
    assert is_since(read_tag("20240401"), read_since("2024-03"))


def test_since_takes_a_year_for_images_of_months_and_of_years() -> None:
    assert [is_since(read_tag(tag), read_since("2024")) for tag in ("24.01-py3", "23.12-py3")] == [True, False]
    assert [is_since(read_tag(tag), read_since("2024.05")) for tag in ("24.05-py3", "24.04-py3")] == [True, False]
    assert [is_since(read_tag(tag), read_since("2024")) for tag in ("2024.1", "2023.4")] == [True, False]
    assert is_since(read_tag("12.4.1-base", "nvcr.io/nvidia/cuda"), read_since("2024")) is None


def test_since_refuses_what_is_neither() -> None:
    for text in ("", "spring", "2024-13", "24.", "1-2"):
        with pytest.raises(UsageError, match="--since takes"):
            read_since(text)


def test_architectures_are_those_that_somebody_states() -> None:
    def ask(notes: str = "", capabilities: str = "", tag: str = "24.03-py3") -> tuple[str, ...]:
        return list_architectures(NgcRelease("i", tag, notes=notes, capabilities=capabilities), read_tag(tag))

    assert ask("one row; arch amd64,arm64,ppc64le; more") == ("amd64", "arm64", "ppc64le")
    assert ask(capabilities="amd64: 7.5 8.0+PTX; arm64: 8.0 9.0") == ("amd64", "arm64")
    assert ask(capabilities="7.5 8.0+PTX") == ()
    assert ask(tag="1.0-aarch64") == ("arm64",)
    assert list_architectures(None, read_tag("24.03-py3")) == ()


def test_series_end_unless_a_newer_tag_is_seen() -> None:
    old = [read_tag(tag) for tag in ("23.03-tf1-py3", "25.02-tf2-py3", "18.12-py3")]
    assert [each.last for each in list_ended(TENSORFLOW, old)] == ["23.03", "25.02"]
    assert [each.last for each in list_ended(TENSORFLOW, [*old, read_tag("26.01-tf2-py3")])] == ["23.03"]
    assert list_ended(TENSORFLOW, [*old, read_tag("26.01-tf1-py3")]) == []
    assert list_ended("nvcr.io/nvidia/pytorch", old) == []
