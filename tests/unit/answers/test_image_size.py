# SPDX-License-Identifier: BSD-3-Clause
"""What holds the bytes of an image: layers, packages, directories, types, copies, and what can go."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kedge.answers.image_size import measure_image
from kedge.answers.pages.size_page import render_size
from kedge.base.reference import Reference
from kedge.compat.contents.size_report import SizeReport
from kedge.image.convert import ConvertRequest, convert, read_target
from kedge.image.formats.oci.writer import write_layout
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings
from tests.builders.oci_images import make_image
from tests.builders.rows import each_row

MB = 1 << 18
SITE = "usr/local/lib/python3.11/site-packages"


def fill(letter: str, size: int) -> bytes:
    return letter.encode() * size


LAYERS: Sequence[Mapping[str, bytes]] = (
    {
        "usr/bin/tool": fill("t", MB),
        "usr/lib/libtool.so.1": fill("l", 2 * MB),
        "root/big.tar.gz": fill("z", 5 * MB),
        "var/lib/dpkg/status": b"Package: tool\nStatus: install ok installed\nVersion: 1\n\n"
        b"Package: libx-dev\nStatus: install ok installed\nVersion: 2\n",
        "var/lib/dpkg/info/tool.list": b"/.\n/usr/bin/tool\n/lib/libtool.so.1\n",
        "var/lib/dpkg/info/libx-dev.list": b"/usr/lib/libx.a\n",
        "usr/lib/libx.a": fill("a", MB),
    },
    {
        "root/.wh.big.tar.gz": b"", "var/lib/apt/lists/x": fill("p", 3 * MB),
        f"{SITE}/torch/lib.so": fill("s", 4 * MB), f"{SITE}/torch-2.dist-info/METADATA": b"Name: torch\nVersion: 2\n",
        f"{SITE}/torch-2.dist-info/RECORD": b"torch/lib.so,sha256=x,4\n", "opt/copy.so": fill("s", 4 * MB),
    },
)  # fmt: skip


@pytest.fixture(name="workplace")
def make_workplace(tmp_path: Path) -> Workplace:
    environ = {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "cache"), "KEDGE_ARCH": "arm64"}
    return Workplace(Settings.load({}, environ))


@pytest.fixture(name="report")
def make_report(tmp_path: Path, workplace: Workplace) -> SizeReport:
    write_layout(tmp_path / "image", [make_image(LAYERS)])
    return measure_image(Reference.parse(f"oci:{tmp_path / 'image'}"), workplace)


def test_size_report_adds_up(report: SizeReport) -> None:
    assert [layer.hidden for layer in report.layers] == [5 * MB, 0]
    assert report.layers[0].examples == ("/root/big.tar.gz",)
    assert report.size == sum(layer.size for layer in report.layers) - 5 * MB
    sizes = {package.name: (package.manager, package.size) for package in report.packages}
    # /lib is no link to /usr/lib in this image, so dpkg's list names no file there
    assert sizes == {"torch": ("pip", 4 * MB), "tool": ("dpkg", MB), "libx-dev": ("dpkg", MB)}
    assert sum(share.size for share in report.managers) == report.size
    assert sum(share.size for share in report.directories) == report.size
    assert {share.name for share in report.directories} >= {"/opt/copy.so", f"/{SITE}/torch/lib.so"}
    assert report.types[0].name == "shared libraries"
    assert sum(share.size for share in report.types) == report.size
    assert sum(share.files for share in report.types) == report.files
    (group,) = report.duplicates
    assert group.paths == ("/opt/copy.so", f"/{SITE}/torch/lib.so")
    assert group.wasted == 4 * MB
    savings = {saving.name: saving.size for saving in report.savings}
    assert savings == {
        "deleted-later": 5 * MB, "apt-lists": 3 * MB, "duplicates": 4 * MB, "static-libraries": MB, "build-tools": MB,
    }  # fmt: skip
    assert [saving.is_optional for saving in report.savings] == [False, False, True, True, True]


@each_row("name", ["image.sif", "sandbox"])
def test_size_of_other_formats_is_the_same_without_layers(
    name: str, tmp_path: Path, workplace: Workplace, report: SizeReport
) -> None:
    source = Reference.parse(f"oci:{tmp_path / 'image'}")
    convert(ConvertRequest(source, read_target(str(tmp_path / name))), workplace)
    other = measure_image(Reference.parse(str(tmp_path / name)), workplace)
    assert not other.layers
    assert other.duplicates == report.duplicates
    assert [p for p in other.packages if p.size] == [p for p in report.packages if p.size]


def test_size_of_linked_files_and_of_nothing(tmp_path: Path, workplace: Workplace) -> None:
    for name in ("opt/conda/pkgs/numpy", "opt/conda/lib"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    (tmp_path / "tree/opt/conda/pkgs/numpy/a.so").write_bytes(fill("n", MB))
    os.link(tmp_path / "tree/opt/conda/pkgs/numpy/a.so", tmp_path / "tree/opt/conda/lib/a.so")
    (tmp_path / "tree/opt/conda/pkgs/numpy.conda").write_bytes(fill("c", MB))
    report = measure_image(Reference.parse(str(tmp_path / "tree")), workplace)
    assert report.size == 2 * MB
    assert [(saving.name, saving.size) for saving in report.savings] == [("conda-cache", MB)]
    (tmp_path / "empty").mkdir()
    report = measure_image(Reference.parse(str(tmp_path / "empty")), workplace)
    assert (report.size, report.files) == (0, 0)
    assert "0 B in 0 files" in render_size(report, made="now", version="1")


def test_size_report_is_a_small_page_and_json(report: SizeReport) -> None:
    page = render_size(report, made="now", version="1")
    assert len(page) < 100_000
    assert page.count("<svg") >= 3
    assert "RUN apt-get update" in page
    assert "http" not in page.replace("http-equiv", "")
    document = json.loads(json.dumps(report.as_dict()))
    assert document["hidden"] == 5 * MB
    assert document["savings"][0]["better"].startswith("RUN")
