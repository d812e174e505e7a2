# SPDX-License-Identifier: BSD-3-Clause
"""Tags: what they say of themselves, their order, filters, and which series of images have ended."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from kedge.compat.contents.tag_filters import is_since, list_architectures, list_ended, read_cuda_range, read_since
from kedge.compat.contents.tag_names import ATTACHMENT, DATE, MOVING, OTHER, is_newer, read_tag, sort_names
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import UsageError
from tests.builders.rows import each_row

CUDA = "nvcr.io/nvidia/cuda"


@each_row(("tag", "image", "expected"), [
    ("24.03-tf2-py3", "", {"version": "24.03", "month": "2024-03", "series": "tf2", "python": "3", "cuda": ""}),
    ("18.12.1-py3", "", {"version": "18.12.1", "month": "2018-12", "series": ""}),
    ("24.03-py3-igpu", "", {"month": "2024-03", "is_jetson": True, "series": ""}),
    ("26.07-trtllm-python-py3", "", {"month": "2026-07", "series": "trtllm-python"}),
    ("24.01-py3-sdk", "", {"month": "2024-01", "series": "sdk"}),
    ("24.04-maxtext-py3", "", {"month": "2024-04", "series": "maxtext"}),
    ("26.04-cuda12-py3.13", "", {"month": "2026-04", "cuda": "12", "python": "3.13"}),
    ("26.03-cuda13.2-devel-ubuntu24.04", "",
     {"month": "2026-03", "cuda": "13.2", "flavour": "devel", "system": "Ubuntu 24.04"}),
    ("22.3-devel-cuda11.6-ubuntu20.04", "", {"month": "2022-03", "cuda": "11.6", "system": "Ubuntu 20.04"}),
    ("12.4.1-cudnn-devel-ubuntu22.04", CUDA,
     {"cuda": "12.4.1", "cudnn": "yes", "flavour": "devel", "system": "Ubuntu 22.04", "month": ""}),
    ("11.6.2-devel-cudnn8-ubi8", CUDA, {"cuda": "11.6.2", "cudnn": "8", "flavour": "devel", "system": "UBI 8"}),
    ("10.1-base", CUDA, {"cuda": "10.1", "flavour": "base", "month": ""}),
    ("12.4.1-base-ubuntu22.04", "docker.io/team/app", {"cuda": "", "version": "12.4.1"}),
    ("2.4.0-cuda12.4-cudnn9-runtime", "docker.io/pytorch/pytorch", {"cuda": "12.4", "month": "", "cudnn": "9"}),
    ("1.13.0-cu117", "", {"cuda": "11.7"}),
    ("0.17-cuda10.1-runtime-ubuntu18.04", "", {"cuda": "10.1", "month": "", "version": "0.17"}),
    ("18.12", "docker.io/library/node", {"month": "", "version": "18.12"}),
    ("r35.1.0-pth1.13-py3", "nvcr.io/nvidia/l4t-pytorch", {"is_jetson": True, "month": ""}),
    ("2.1.0-rc1", "", {"prerelease": (-1, 1), "version": "2.1.0"}),
    ("1.2-arm64", "", {"machine": "arm64"}),
    ("latest", "", {"kind": MOVING}),
    ("jammy-20240125", "", {"kind": DATE, "version": "2024.01.25", "month": "2024-01"}),
    ("2024-01-25", "", {"kind": DATE, "version": "2024.01.25"}),
    ("alpine", "", {"kind": OTHER, "version": ""}),
    ("sha256-" + "a" * 64 + ".sig", "", {"kind": ATTACHMENT}),
])  # fmt: skip
def test_read_tag_knows_the_conventions(tag: str, image: str, expected: dict[str, object]) -> None:
    found = read_tag(tag, image)
    assert {name: getattr(found, name) for name in expected} == expected


ORDERS = {
    "pytorch": ["latest", "26.08-py3", "25.10-py3", "25.10-py3-igpu", "24.03-py3", "18.12.1-py3", "18.12-py3"],
    "tensorflow": ["23.03-tf2-py3", "23.03-tf1-py3", "23.02-tf2-py3", "19.09-py3", "19.09-py2"],
    "cuda": ["13.0.0-base-ubuntu24.04", "12.10.0-base-ubuntu22.04", "12.4.1-base-ubuntu22.04",
             "12.4.1-runtime-ubuntu22.04", "12.4.1-devel-ubuntu22.04", "12.4.1-cudnn-devel-ubuntu22.04",
             "12.4.1-base-ubuntu20.04", "12.4.0-base-ubuntu22.04", "9.1-base-centos7"],
    "dl-base": ["26.06-cuda13.3-devel-ubuntu24.04", "25.12-cuda13.1-devel-ubuntu24.04"],
    "nvhpc": ["22.11-devel-cuda11.8-ubuntu20.04", "22.3-devel-cuda11.6-ubuntu20.04"],
    "semver": ["latest", "v2.10.0", "2.9.1", "2.9.1-rc2", "2.9.1-rc1", "2.9.1-beta.3", "2.9.1a1", "1.0"],
    "dates": ["20240201", "2024-01-25", "jammy-20231231"],
    "rest": ["latest", "stable", "1.0", "20240201", "app2", "app10", "beta", "sha256-" + "0" * 64 + ".sig"],
}  # fmt: skip


def sort_tags(tags: Iterable[str], image: str = "") -> list[str]:
    return [name.text for name in sort_names(read_tag(tag, image) for tag in tags)]


@each_row("name", ORDERS)
def test_sort_names_is_the_order_people_read(name: str) -> None:
    expected = ORDERS[name]
    for seed in range(5):
        shuffled = list(expected)
        random.Random(seed).shuffle(shuffled)
        assert sort_tags(shuffled, CUDA if name == "cuda" else "") == expected


def test_sort_names_takes_any_text_and_newer_is_by_version() -> None:
    odd = ["", "-", "--", "...", "9" * 5000, "1." * 60, "٣.٤", "v", "cuda", "1-" + "-" * 100, "a\x00b", "²"]
    assert sorted(sort_tags(odd)) == sorted(odd)
    names = [read_tag(tag) for tag in ORDERS["semver"][1:]]
    assert all(is_newer(newer, older) for newer, older in pairwise(names))
    assert not is_newer(read_tag("latest"), read_tag("1.0"))
    assert not is_newer(read_tag("20240101"), read_tag("1.0"))
    assert not is_newer(read_tag("24.03-py3"), read_tag("24.03-py3-igpu"))


TENSORFLOW = "nvcr.io/nvidia/tensorflow"


@each_row(("wanted", "yes", "no", "unknown"), [
    ("12", ["12.4.1", "12", "12.0"], ["11.8.0", "13.0.0", "120.1"], [""]),
    ("12.4", ["12.4", "12.4.1.003"], ["12.5.0", "12.40"], ["12", "new"]),
    ("=12.4.1", ["12.4.1"], ["12.4.0"], ["12.4"]),
    (">=12", ["12.0", "13.0", "12"], ["11.8"], [""]),
    (">12", ["13.0"], ["12.9", "11.8"], []),
    ("<=12", ["12.9", "11.8"], ["13.0"], []),
    ("< 12.4", ["12.3.2", "11.8"], ["12.4.0", "13"], ["12"]),
    (">=11.8,<13", ["11.8.0", "12.9"], ["13.0", "11.7"], [""]),
])  # fmt: skip
def test_cuda_range_holds(wanted: str, yes: list[str], no: list[str], unknown: list[str]) -> None:
    chosen = read_cuda_range(wanted)
    assert [chosen.holds(version) for version in (*yes, *no, *unknown)] == (
        [True] * len(yes) + [False] * len(no) + [None] * len(unknown)
    )


@each_row("text", ["", ",", "new", ">=", "12.x", "12;13", "=>12", "-1", "1" * 50])
def test_cuda_range_refuses_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError, match="--cuda takes versions"):
        read_cuda_range(text)


def test_since_compares_releases_months_years_and_versions() -> None:
    for since in (read_since("24.03"), read_since("2024-03"), read_since("2024-03-15")):
        assert is_since(read_tag("24.03-py3"), since)
        assert is_since(read_tag("25.01-py3"), since)
        assert is_since(read_tag("24.02-py3"), since) is False
        assert is_since(read_tag("latest"), since) is None
    assert is_since(read_tag("12.10.0-base", "nvcr.io/nvidia/cuda"), "12.4")
    assert is_since(read_tag("12.4.1-base", "nvcr.io/nvidia/cuda"), read_since("2024-03")) is None
    assert is_since(read_tag("20240401"), read_since("2024-03"))
    assert [is_since(read_tag(tag), read_since("2024")) for tag in ("24.01-py3", "23.12-py3")] == [True, False]
    assert [is_since(read_tag(tag), read_since("2024.05")) for tag in ("24.05-py3", "24.04-py3")] == [True, False]
    assert [is_since(read_tag(tag), read_since("2024")) for tag in ("2024.1", "2023.4")] == [True, False]
    assert is_since(read_tag("12.4.1-base", "nvcr.io/nvidia/cuda"), read_since("2024")) is None
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
