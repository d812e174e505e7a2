# SPDX-License-Identifier: BSD-3-Clause
"""The chart of driver × tag: what it says is what one verdict says, and the rows are those a reader looks for."""

from __future__ import annotations

from kedge.base.frozen import replace
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.driver_chart import Chart, ChartRow, make_chart
from kedge.compat.judge import judge
from kedge.compat.tables.gpu_names import find_gpu
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Target
from kedge.compat.verdict import MINOR, NATIVE, NO, UNKNOWN
from tests.builders.rows import each_row

PYTORCH, CUDA = "nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/cuda"
TABLES = load_tables()


def make_target(gpu: str, driver: str) -> Target:
    return Target(f"{gpu} with driver {driver}", "named", (find_gpu(gpu, TABLES),), True, driver, architecture="amd64")


def find_row(chart: Chart, tag: str) -> ChartRow:
    return next(row for row in chart.rows if row.tag == tag)


def read_cell(chart: Chart, tag: str, branch: str) -> str:
    place = [column.branch for column in chart.columns].index(branch)
    return find_row(chart, tag).cells[place]


@each_row(("gpu", "driver"), [("A100-SXM4-40GB", "535.104.05"), ("V100", "470.82.01"), ("H200", "580")])
def test_chart_cells_are_the_verdicts(gpu: str, driver: str) -> None:
    target = make_target(gpu, driver)
    chart = make_chart(PYTORCH, TABLES, target, tag="24.03-py3")
    host = next(column for column in chart.columns if column.is_host)
    assert (host.driver, host.branch) == (driver, driver[:3])
    for row in chart.rows:
        traits = read_traits(f"{PYTORCH}:{row.tag}", environment={}, labels={}, history=(), tables=TABLES)
        assert read_cell(chart, row.tag, host.branch) == judge(traits, target, TABLES).outcome
    assert len({row.cells for row in chart.rows}) > 1


def test_chart_of_drivers_and_gpus() -> None:
    chart = make_chart(PYTORCH, TABLES, make_target("A100", "535.104.05"), tag="24.03-py3")
    assert read_cell(chart, "24.03-py3", "550") == NATIVE
    assert read_cell(chart, "24.03-py3", "535") != NATIVE
    assert read_cell(chart, "23.10-py3", "535") == NATIVE
    assert read_cell(chart, "23.10-py3", "525") != NATIVE
    chart = make_chart(PYTORCH, TABLES, None, tag="24.03-py3")
    assert not any(column.is_host for column in chart.columns)
    assert chart.gpus == ""
    assert [read_cell(chart, "24.03-py3", branch) for branch in ("525", "535", "550")] == [MINOR, MINOR, NATIVE]
    chart = make_chart(PYTORCH, TABLES, make_target("K40", "470.82.01"), tag="24.03-py3")
    assert {cell for row in chart.rows for cell in row.cells} == {NO}


def test_chart_rows_are_the_image_and_what_is_known() -> None:
    chart = make_chart(PYTORCH, TABLES, make_target("A100", "535.104.05"), tag="24.03-py3", rows=10)
    assert len(chart.rows) == 10
    assert [row.tag for row in chart.rows if row.is_image] == ["24.03-py3"]
    natives = [row.tag for row in chart.rows if read_cell(chart, row.tag, "535") == NATIVE]
    assert natives[0] == "23.10-py3"
    tags = [row.tag for row in chart.rows]
    assert tags == sorted(tags, reverse=True)
    listed = {release.tag for release in TABLES.list_releases(PYTORCH)}
    assert len(chart.rows) + sum(row.skipped for row in chart.rows) + chart.skipped + chart.unknown == len(listed)
    chart = make_chart(PYTORCH, TABLES, None)
    assert all(row.cuda for row in chart.rows)
    assert chart.unknown > 0
    unknown = next(row.tag for row in TABLES.list_releases(PYTORCH) if not row.cuda)
    own = find_row(make_chart(PYTORCH, TABLES, None, tag=unknown), unknown)  # but not the image that was asked about
    assert set(own.cells) == {UNKNOWN}


def test_chart_columns_are_the_machines() -> None:
    chart = make_chart(PYTORCH, TABLES, make_target("A100", "515.65.01"))
    branches = [int(column.branch) for column in chart.columns]
    assert branches == sorted(branches)
    assert {470, 515, 525, 535, 550, 570, 580} <= set(branches)
    assert [column.driver for column in chart.columns if column.is_host] == ["515.65.01"]
    assert all(column.driver.startswith(column.branch) for column in chart.columns)
    offers = {column.branch: column.cuda for column in chart.columns}
    assert (offers["470"], offers["535"], offers["550"], offers["580"]) == ("11.4", "12.2", "12.4", "13.0")
    target = replace(make_target("A100", "565.57.01"), cuda="12.7")  # a driver whose CUDA no toolkit has
    chart = make_chart(PYTORCH, TABLES, target)
    assert [column.cuda for column in chart.columns if column.is_host] == ["12.7"]


def test_chart_keeps_to_one_flavour_and_judges_its_own_row() -> None:
    chart = make_chart(CUDA, TABLES, None, tag="12.4.1-devel-ubuntu22.04")
    own = next(row for row in chart.rows if row.is_image)
    assert (own.tag, own.label) == ("12.4.1-devel-ubuntu22.04", "12.4.1-…")
    assert sum(row.tag.endswith("-devel-ubuntu22.04") for row in chart.rows) > 5
    assert len({row.label for row in chart.rows}) == len(chart.rows)
    tensorflow = make_chart("nvcr.io/nvidia/tensorflow", TABLES, None, tag="22.03-tf1-py3")
    assert find_row(tensorflow, "22.03-tf1-py3").is_image
    flavours = {row.tag.partition("-")[2] for row in tensorflow.rows if row.tag < "23.03" and row.tag > "19.11"}
    assert flavours == {"tf1-py3"}
    facts = {"CUDA_VERSION": "13.0.2.006", "CUDA_DRIVER_VERSION": "580.95.05"}
    traits = read_traits(f"{PYTORCH}:27.01-py3", environment=facts, labels={}, history=(), tables=TABLES)
    chart = make_chart(PYTORCH, TABLES, None, tag="27.01-py3", traits=traits)
    assert chart.rows[0].tag == "27.01-py3"
    assert chart.rows[0].is_image
    assert read_cell(chart, "27.01-py3", "580") == NATIVE
    assert not any(row.is_image for row in make_chart(PYTORCH, TABLES, None, tag="27.01-py3").rows)


def test_chart_of_other_images_and_processors() -> None:
    chart = make_chart("docker.io/library/debian", TABLES, make_target("A100", "535.104.05"), tag="12")
    assert chart.rows == ()
    assert make_chart(f"docker://{PYTORCH}", TABLES, None).image == PYTORCH
    of_amd64 = make_chart(PYTORCH, TABLES, make_target("T4", "580.95.05"), tag="25.10-py3")
    of_arm64 = make_chart(
        PYTORCH, TABLES, replace(make_target("T4", "580.95.05"), architecture="arm64"), tag="25.10-py3"
    )
    assert read_cell(of_amd64, "25.10-py3", "580") == NATIVE
    assert read_cell(of_arm64, "25.10-py3", "580") == NO
