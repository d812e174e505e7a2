# SPDX-License-Identifier: BSD-3-Clause
"""The shipped tables are whole, and rows are found under the names that people use."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path

from kedge.base.versions import is_at_least, order
from kedge.compat.tables.columns import RELEASES, TABLE_KINDS
from kedge.compat.tables.learned import has_all, list_cells, make_row, write_rows
from kedge.compat.tables.load import SHIPPED, Tables, load_tables, merge_rows, normalize_image, parse_table
from kedge.compat.tables.rows import CudaRelease, NgcRelease
from kedge.compat.traits import Fact, ImageTraits
from tests.builders.rows import each_row
from tests.wording import assert_begins

PYTORCH, CUDA = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/cuda"
TABLES = load_tables()


def learn(path: Path, *rows: NgcRelease) -> Path:
    path.write_bytes(write_rows(rows))
    return path


@each_row("kind", TABLE_KINDS, ids=lambda kind: kind.name)
def test_tables_every_row_has_a_source(kind: object) -> None:
    with (SHIPPED / kind.file).open(newline="") as file:  # type: ignore[attr-defined]
        rows = list(csv.DictReader(file))
    assert rows
    assert all(len(row["source"]) > 5 for row in rows)
    assert all(None not in row and None not in row.values() for row in rows)


def test_tables_have_what_they_are_known_to_have() -> None:
    assert len(TABLES.cuda) == 69
    assert len(TABLES.gpus) == 115
    assert len(TABLES.releases) == 659
    assert not TABLES.problems
    assert len(TABLES.images) == 12


# Of PyTorch and TensorFlow since 2020: how many tags there are, and of how many each figure is unknown. A figure that
# is found lowers a number here and in docs/guides/tables.md; nothing is filled in because it is likely.
UNKNOWN_SINCE_2020 = {
    "pytorch": (76, 0, 25, 4, 1, 29, 36, 49, 76, 10, 64, 17, 61, 49),
    "tensorflow": (85, 14, 55, 40, 24, 46, 65, 65, 70, 0, 85, 51, 70, 41),
}
# Of which DALI is inside in a version that nobody wrote down
DALI_WITHOUT_VERSION = {"pytorch": 41, "tensorflow": 67}
COUNTED = {
    "Framework version": "framework_version", "Ubuntu": "ubuntu", "Python": "python", "CUDA": "cuda",
    "cuDNN": "cudnn", "NCCL": "nccl", "Open MPI": "openmpi", "Horovod": "horovod", "DALI": "dali", "Apex": "apex",
    "TensorRT": "tensorrt", "JupyterLab": "jupyterlab", "Driver required": "min_driver",
}  # fmt: skip


def list_since_2020(name: str) -> list[NgcRelease]:
    return [row for row in TABLES.list_releases(f"nvcr.io/nvidia/{name}") if row.tag >= "20"]


@each_row("name", UNKNOWN_SINCE_2020)
def test_tables_count_what_is_unknown_of_releases_since_2020(name: str) -> None:
    rows = list_since_2020(name)
    counts = (len(rows), *(sum(not getattr(row, field) for row in rows) for field in COUNTED.values()))
    assert counts == UNKNOWN_SINCE_2020[name]
    assert sum(row.dali == "yes" for row in rows) == DALI_WITHOUT_VERSION[name]


def test_tables_say_how_much_is_unknown_on_pages() -> None:
    page = (Path(__file__).parents[3] / "docs/guides/tables.md").read_text()
    for place, title in enumerate(("Tags", *COUNTED)):
        numbers = [str(UNKNOWN_SINCE_2020[name][place]) for name in ("pytorch", "tensorflow")]
        assert re.search(rf"^\| {title} \| {numbers[0]} \| {numbers[1]} \|$", page, re.MULTILINE), title
    assert "in {pytorch} PyTorch and {tensorflow} TensorFlow tags, that".format_map(DALI_WITHOUT_VERSION) in page
    readme = " ".join((Path(__file__).parents[3] / "README.md").read_text().split())
    numbers = {
        title: sum(row[place] for row in UNKNOWN_SINCE_2020.values()) for place, title in enumerate(("Tags", *COUNTED))
    }
    assert (
        f"CUDA of {numbers['CUDA']} and the Python of {numbers['Python']} of {numbers['Tags']} PyTorch and TensorFlow"
        in readme
    )


# What the tutorials name: the figures that their readers ask for
@each_row(("reference", "known"), [
    ("pytorch:20.03-py3", {"cuda": "10.2.89"}), ("pytorch:21.08-py3", {"framework_version": "1.10.0a0+3fd9dcf"}),
    ("pytorch:21.06-py3",
     {"framework_version": "1.9.0", "cuda": "11.3.1", "python": "3.8", "dali": "yes", "min_driver": "465.19.01"}),
    ("pytorch:22.03-py3", {"framework": "PyTorch", "framework_version": "1.12.0a0+2c916ef", "ubuntu": "20.04.4"}),
    ("pytorch:22.03-py3", {"cuda": "11.6.1.005", "python": "3.8"}),
    ("pytorch:24.03-py3", {"cuda": "12.4.0.041", "python": "3.10.12", "nccl": "2.20.5", "openmpi": "4.1.7"}),
    ("pytorch:24.03-py3", {"framework_version": "2.3.0a0+40ec155e58"}),
    ("tensorflow:21.06-tf1-py3", {"framework": "TensorFlow", "framework_version": "1.15.5", "cuda": "11.3.1"}),
    ("tensorflow:21.06-tf1-py3", {"horovod": "0.22.0", "dali": "1.2", "jupyterlab": "2.3.1", "openmpi": "4.1.1rc1"}),
    ("cuda:12.4.1-devel-ubuntu22.04", {"cuda": "12.4.1", "ubuntu": "22.04"}),
])  # fmt: skip
def test_tables_have_the_tags_of_the_tutorials(reference: str, known: dict[str, str]) -> None:
    image, _, tag = reference.partition(":")
    row = TABLES.find_release(f"nvcr.io/nvidia/{image}", tag)
    assert row is not None
    assert {field: getattr(row, field) for field in known} == known


def test_tables_a_tool_without_a_version_is_inside() -> None:
    row = TABLES.find_release(PYTORCH, "23.08-py3")
    assert (row.apex, row.dali, row.horovod) == ("yes", "1.28.0", "")


def test_tables_cells_are_plain_and_drivers_only_grow() -> None:
    for row in TABLES.releases:
        for value in (row.cuda, row.min_driver, row.bundled_driver, row.python, row.cudnn, row.nccl, row.hpcx):
            assert not value or order(value), (row.image, row.tag, value)
            assert "$" not in value
            assert "(" not in value
        parts = row.capabilities.split("; ") if row.capabilities else []
        assert all(part.endswith("(stated)") or "(" not in part for part in parts)
    for model in TABLES.gpus:
        assert re.fullmatch(r"\d+\.\d", model.capability)
        assert model.smi_names
    for major in (10, 11, 12, 13):
        rows = sorted(
            (row for row in TABLES.cuda if order(row.version)[0] == major), key=lambda row: order(row.version)
        )
        drivers = [row.min_driver for row in rows]
        assert all(is_at_least(later, earlier) for earlier, later in itertools.pairwise(drivers)), drivers
        for row in rows:
            assert not row.minor_floor or is_at_least(row.minor_floor, "450.80.02")


@each_row(("asked", "version", "driver", "stands_for"), [
    ("12.3.2.001", "12.3.2", "545.23.08", ""),
    ("12.4.1", "12.4.1", "550.54.15", ""),
    ("13.0.2.006", "13.0.2", "580.95.05", ""),
    ("11.6.1.005", "11.6.1", "510.47.03", ""),
    ("13.3.1.008", "13.3.0", "610.43.02", "13.3.1.008"),
    ("11.0.167", "11.0.3", "450.51.06", "11.0.167"),
    ("12.1", "12.1.1", "530.30.02", "12.1"), ("12.4", "12.4.1", "550.54.15", "12.4"),
    ("11.7 Update 1 Preview", "11.7.1", "515.48.07", "11.7 Update 1 Preview"),
    ("10.1.243", "10.1.243", "418.39", ""),
    ("9.0", "9.0.176", "384.81", "9.0"),
])  # fmt: skip
def test_find_cuda_exact_or_newest_of_the_minor_which_says_so(
    asked: str, version: str, driver: str, stands_for: str
) -> None:
    found = TABLES.find_cuda(asked)
    assert (found.version, found.min_driver, found.stands_for) == (version, driver, stands_for)


def test_find_cuda_and_release_unknown_is_none() -> None:
    assert not any(TABLES.find_cuda(asked) for asked in ("", "12", "14.0", "99.9.9", "cuda", "..", "12.7"))
    tags = ("", "12.4.1", "12.4.1-full-ubuntu22.04", "12.4.1-{base,devel}-ubuntu22.04", "x" * 500)
    assert not any(TABLES.find_release(CUDA, tag) for tag in tags)


def test_cuda_branches_prefer_what_the_library_says() -> None:
    branches = {row.version: row.compat_branches for row in TABLES.cuda}
    assert branches["12.9.1"] == (535, 550, 560, 565, 570, 575)  # the ELF note; the image's list lacks 575
    assert branches["13.1.0"] == (535, 550, 570, 575, 580, 590)
    assert branches["12.4.1"] == (470, 525, 535)
    assert branches["13.2.1"] == ()


@each_row("name", [
    "nvcr.io/nvidia/pytorch", "docker://nvcr.io/nvidia/pytorch", "docker://nvcr.io/nvidia/pytorch:22.03-py3",
    "nvcr.io#nvidia/pytorch", "nvidia/pytorch", "NVCR.IO/nvidia/pytorch", f"nvcr.io/nvidia/pytorch@sha256:{'0' * 64}",
])  # fmt: skip
def test_find_release_by_the_names_people_write(name: str) -> None:
    row = TABLES.find_release(name, "22.03-py3")
    assert row.cuda == "11.6.1.005"


@each_row(("name", "image"), [
    ("nvidia/cuda", CUDA), ("docker.io/nvidia/cuda", CUDA), ("docker.io/nvidia/caffe", "docker.io/nvidia/caffe"),
    ("ghcr.io/nvidia/cuda", "ghcr.io/nvidia/cuda"), ("localhost:5000/nvidia/cuda", "localhost:5000/nvidia/cuda"),
    ("localhost:5000/nvidia/cuda:1", "localhost:5000/nvidia/cuda"), ("", ""),
])  # fmt: skip
def test_normalize_image(name: str, image: str) -> None:
    assert normalize_image(name) == image


@each_row(("tag", "cudnn", "nccl"), [
    ("12.4.1-base-ubuntu22.04", "", ""),
    ("12.4.1-runtime-ubuntu22.04", "", "2.21.5"), ("12.4.1-devel-ubuntu22.04", "", "2.21.5"),
    ("12.4.1-cudnn-devel-ubuntu22.04", "9.1.0.70", "2.21.5"),
    ("12.4.1-devel-cudnn-ubuntu22.04", "9.1.0.70", "2.21.5"),
    ("11.4.3-cudnn8-devel-ubuntu20.04", "8.2.4.12 or 8.2.4.15", "2.11.4"),
    ("10.1-cudnn7-devel-ubuntu18.04", "7.6.5.32", "2.8.3"),
    ("10.1-cudnn8-devel-ubuntu18.04", "8.0.4.30 or 8.0.5.39", "2.8.3"),
    ("10.2-cudnn8-devel-ubuntu18.04", "8.6.0.163", "2.11.4 or 2.15.5"),
    ("8.0-cudnn6-devel-ubuntu16.04", "6.0.21", ""),
    ("13.0.0-tensorrt-devel-ubuntu24.04", "", "2.27.7"),
])  # fmt: skip
def test_find_release_narrows_a_row_for_several_tags(tag: str, cudnn: str, nccl: str) -> None:
    row = TABLES.find_release(CUDA, tag)
    assert (row.tag, row.cudnn, row.nccl) == (tag, cudnn, nccl)


def test_list_releases_newest_first_and_deleted_lines_marked() -> None:
    tags = [row.tag for row in TABLES.list_releases("nvidia/pytorch")]
    assert tags[:2] == ["26.08-py3", "26.07-py3"]
    assert tags[-1] == "18.06-py3"
    cuda = [row.tag for row in TABLES.list_releases(CUDA)]
    assert len(cuda) == len(set(cuda)) > 1600
    assert "12.4.1-cudnn-devel-ubuntu22.04" in cuda
    assert not any("{" in tag for tag in cuda)
    assert TABLES.list_releases("nvcr.io/nvidia/nothing") == ()
    old, new = (
        TABLES.find_release(CUDA, "11.6.0-base-ubuntu20.04"),
        TABLES.find_release(CUDA, "12.4.1-base-ubuntu22.04"),
    )
    assert old.is_end_of_life
    assert not new.is_end_of_life


@each_row(("tag", "architecture", "listed"), [
    ("24.01-py3", "amd64", "5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX"),
    ("24.01-py3", "", "5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX"),
    ("24.01-py3", "arm64", ""),
    ("25.10-py3", "amd64", "7.5 8.0 8.6 9.0 10.0 12.0+PTX"),
    ("25.10-py3", "arm64", "8.0 8.6 9.0 10.0 11.0 12.0+PTX"),
    ("20.06-py3", "amd64", "5.2 6.0 6.1 7.0 7.5 8.0+PTX"),
    ("20.06-py3", "arm64", "6.0+ (stated)"),
    ("19.10-py3", "amd64", "6.0+ (stated)"),
    ("22.03-py3", "amd64", ""),
])  # fmt: skip
def test_capabilities_differ_by_architecture(tag: str, architecture: str, listed: str) -> None:
    row = TABLES.find_release(PYTORCH, tag)
    assert row.capabilities_on(architecture) == listed


LEARNED = NgcRelease(
    PYTORCH, "26.08-py3", framework="PyTorch", framework_version="2.14.0a0+abc", cuda="13.4.0.001",
    bundled_driver="615.10", capabilities="7.5 8.0+PTX", compat_branches=(535, 580),
    source="registry config sha256:12 (amd64) read 2026-09-20",
)  # fmt: skip


def test_learned_rows_fill_what_is_empty_and_replace_nothing(tmp_path: Path) -> None:
    path = learn(tmp_path / "learned.csv", LEARNED)
    row = load_tables(path).find_release(PYTORCH, "26.08-py3")
    assert (row.capabilities, row.compat_branches) == ("7.5 8.0+PTX", (535, 580))
    assert (row.cuda, row.framework_version) == ("13.4.1.012", "2.14.0a0+4fdf77b940")  # what is shipped stays
    assert_begins(row.source, "compat/newest-tag-catalog-page-seen")
    assert row.source.endswith("; registry config sha256:12 (amd64) read 2026-09-20")
    wrong = NgcRelease(PYTORCH, "22.03-py3", cuda="99.9", python="3.8.10", ubuntu="66.04", source="somebody")
    row = load_tables(learn(tmp_path / "learned.csv", wrong)).find_release(PYTORCH, "22.03-py3")
    assert (row.cuda, row.ubuntu, row.python) == ("11.6.1.005", "20.04.4", "3.8")
    new = NgcRelease("ghcr.io/lab/image", "1.0", cuda="12.4.1", source="registry config")
    known = load_tables(learn(tmp_path / "learned.csv", new))
    assert known.find_release("ghcr.io/lab/image", "1.0") == new
    assert known.list_releases("ghcr.io/lab/image") == (new,)
    assert "ghcr.io/lab/image" in known.images
    assert len(known.releases) == len(TABLES.releases) + 1
    tag = "12.4.1-cudnn-devel-ubuntu22.04"
    new = NgcRelease(CUDA, tag, cuda="0.1", bundled_driver="550.54.15", source="registry config")
    known = load_tables(learn(tmp_path / "learned.csv", new))
    row = known.find_release(CUDA, tag)
    assert (row.cuda, row.bundled_driver) == ("12.4.1", "550.54.15")
    assert len(known.releases) == len(TABLES.releases)
    other = known.find_release(CUDA, "12.4.1-devel-ubuntu22.04")
    assert other.bundled_driver == ""


def test_learned_rows_of_an_older_kedge_are_read(tmp_path: Path) -> None:
    """Its file lacks the columns that came later."""
    table = list(csv.reader(write_rows([LEARNED]).decode().splitlines()))
    later = {table[0].index(column) for column in ("horovod", "dali", "apex", "jupyterlab")}
    path = tmp_path / "learned.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([cell for place, cell in enumerate(row) if place not in later] for row in table)
    tables = load_tables(path)
    assert not tables.problems
    assert tables.learned == (LEARNED,)


def test_learned_rows_and_files_that_change_are_joined(tmp_path: Path) -> None:
    stated = NgcRelease("r.io/x", "1", capabilities="6.0+ (stated)", source="a")
    amd = NgcRelease("r.io/x", "1", capabilities="7.0 8.0+PTX", source="b")
    arm = NgcRelease("r.io/x", "1", capabilities="arm64: 8.0 9.0", source="c")
    joined = merge_rows(merge_rows(stated, amd), arm)
    assert joined.capabilities == "6.0+ (stated); 7.0 8.0+PTX; arm64: 8.0 9.0"
    assert joined.capabilities_on("amd64") == "7.0 8.0+PTX"
    assert joined.capabilities_on("arm64") == "8.0 9.0"
    assert joined.capabilities_on("ppc64le") == "6.0+ (stated)"
    assert merge_rows(amd, NgcRelease("r.io/x", "1", capabilities="9.0", source="d")) == amd
    path = tmp_path / "learned.csv"
    assert load_tables(path) is load_tables()
    learn(path, LEARNED)
    first = load_tables(path)
    assert first is load_tables(path)
    learn(path, LEARNED, NgcRelease("r.io/x", "1", cuda="12.4", source="a"))
    assert len(load_tables(path).learned) == len(first.learned) + 1


def test_rows_are_written_read_back_and_told_whole() -> None:
    rows = [row for row in TABLES.releases if row.same_month == ""]
    table = parse_table(write_rows(rows), "written", RELEASES)
    assert not table.problems
    assert sorted((row for _, row in table.rows), key=repr) == sorted(rows, key=repr)
    assert tuple(list_cells(rows[0])) == RELEASES.columns
    nothing = Tables((), (), ())
    assert nothing.find_cuda("12.4") is None
    assert nothing.find_release(PYTORCH, "22.03-py3") is None
    assert nothing.list_releases(PYTORCH) == ()
    one = CudaRelease("1.0.0", "", "1", "", (), "", "s")
    assert Tables([one], (), ()).find_cuda("1.0.0.5") == one
    assert has_all(TABLES.find_release(PYTORCH, "24.01-py3"))
    without_kernels = TABLES.find_release(PYTORCH, "24.09-py3")
    assert (without_kernels.cuda, without_kernels.bundled_driver, without_kernels.nccl) == (
        "12.6.1",
        "560.35.03",
        "2.22.3",
    )
    assert not has_all(without_kernels)
    assert not has_all(None)


def traits(**facts: str) -> ImageTraits:
    known = {name: Fact(value, "image config, X") for name, value in facts.items()}
    return ImageTraits("nvcr.io/nvidia/pytorch:1", architecture="amd64", **known)  # type: ignore[arg-type]


def test_make_row_holds_what_the_config_says() -> None:
    row = make_row(
        PYTORCH, "1", traits(cuda="13.0.2.006", os="Ubuntu 24.04", mpi="Open MPI 4.1.7", driver="580.95.05"), "s"
    )
    assert row == NgcRelease(
        PYTORCH, "1", cuda="13.0.2.006", ubuntu="24.04", openmpi="4.1.7", bundled_driver="580.95.05", source="s"
    )
    told = ImageTraits(
        "x", cuda=Fact("12.4", "the tag"), os=Fact("Ubuntu 22.04", "the tag"), python=Fact("3.10", "table, y")
    )
    assert make_row(PYTORCH, "1", told, "s") is None
    assert make_row(PYTORCH, "1", traits(os="Rocky Linux 9", mpi="MPICH 4.0"), "s") is None
    told = ImageTraits("x", capabilities=Fact("8.0 9.0+PTX", "image config, X"), architecture="arm64")
    row = make_row(PYTORCH, "1", told, "s")
    assert row.capabilities == "arm64: 8.0 9.0+PTX"
    assert row.capabilities_on("amd64") == ""


@each_row("value", ["=HYPERLINK(1)", "12.4\n1", "x" * 5000, "\x1b[31m1", "../../etc", "latest"])
def test_make_row_empties_what_makes_no_sense(value: str) -> None:
    row = make_row(PYTORCH, "1", traits(cuda=value, python="3.12"), "s")
    assert row == NgcRelease(PYTORCH, "1", python="3.12", source="s")
    assert make_row(PYTORCH, "1", traits(cuda=value), "s") is None
