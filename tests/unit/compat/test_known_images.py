# SPDX-License-Identifier: BSD-3-Clause
"""Images by task, of sites, and for GPUs that NVIDIA's have left: what the shipped table says, and how it is found."""

from __future__ import annotations

import re
from pathlib import Path

from kedge.compat.contents.known_traits import read_known_traits
from kedge.compat.tables.known_images import KNOWN_IMAGES, load_known_images, tell_builds
from kedge.compat.tables.load import load_tables, parse_table
from tests.builders.rows import each_row
from tests.wording import assert_ends

TABLES = load_tables()
PAGES = Path(__file__).parents[3] / "docs"


def find(*words: str) -> list[str]:
    return [f"{row.image}:{row.tags}" for row in load_known_images() if row.has_words(words)]


def test_known_images_say_what_to_know_of_them() -> None:
    assert len(load_known_images()) == 38
    assert all(len(row.source) > 5 for row in load_known_images())
    [locked] = [row.describe() for row in load_known_images() if row.has_words(["chainer"])]
    assert_ends(locked, "compat/locked-pulling-needs-account-ngc")
    by_task = {(row.image.rpartition("/")[2], row.tags, row.task.partition(",")[0]): row for row in load_known_images()}
    bert = by_task["pytorch", "*-py3", "natural language processing"]
    resnet = by_task["pytorch", "*-py3", "image classification"]
    assert (bert.multi_gpu, bert.multi_node) == (True, True)
    assert (resnet.multi_gpu, resnet.multi_node) == (True, None)
    assert resnet.describe().endswith("GPUNet; multi-GPU: yes; multi-node: unknown")


@each_row(("words", "found"), [
    (("image", "classification"), "nvcr.io/nvidia/pytorch:*-py3"),
    (("bert",), "nvcr.io/nvidia/tensorflow:*-tf2-py3"),
    (("BERT",), "docker.io/eriksf/bert-classifier:0.0.1"),
    (("mpi",), "docker.io/tacc/tacc-ubuntu18-impi19.0.7-common:latest"),
    (("k40",), "docker.io/lucasfernandoaes/pytorch-legacy:1.6.0"),
    (("resnet50",), "nvcr.io/nvidia/mxnet:*-py3"),
    (("caffe",), "docker.io/nvidia/caffe:latest"),
    (("lonestar6", "pytorch"), "docker.io/tacc/tacc-ml:ubuntu20.04-cuda11-tf2.6-pt1.10"),
])  # fmt: skip
def test_known_images_are_found_by_task(words: tuple[str, ...], found: str) -> None:
    assert found in find(*words)
    assert find(*words, "nothing-has-this") == []


def test_known_images_are_found_by_several_gpus_nodes_and_kepler() -> None:
    # What is known to do it, and nothing of which that is unknown
    for word, name in (("multi-gpu", "multi_gpu"), ("Multi-Node", "multi_node"), ("multinode", "multi_node")):
        known = [f"{row.image}:{row.tags}" for row in load_known_images() if getattr(row, name)]
        assert find(word) == known
        assert len(known) > 5
    told = tell_builds("Kepler", "PyTorch")
    assert "nelsonliu.me" in told
    assert re.search(r"Warning: it is published by a person.*pin its digest", told)
    assert tell_builds("Volta", "PyTorch") == ""
    assert tell_builds("Kepler", "TensorFlow") == ""


def test_known_images_have_the_tables_of_tacc() -> None:
    # Four base images for MPI, which run on both systems; six for machine learning, CUDA 10 not for A100
    mpi = [row for row in load_known_images() if row.image.startswith("docker.io/tacc/tacc-") and row.mpi]
    learning = [row for row in load_known_images() if row.image == "docker.io/tacc/tacc-ml"]
    assert sorted(row.mpi for row in mpi) == ["Intel MPI 19.0.7", "Intel MPI 19.0.7", "MVAPICH2 2.3", "MVAPICH2 2.3"]
    assert {row.systems for row in mpi} == {("Frontera", "Lonestar6", "local tests")}
    assert len(learning) == 6
    assert {("Lonestar6" in row.systems, row.cuda) for row in learning} == {(False, "10"), (True, "11")}
    page = (PAGES / "sites/tacc.md").read_text()
    for row in load_known_images():
        if row.image.startswith("docker.io/tacc/"):
            name = row.image.removeprefix("docker.io/") + ("" if row.tags == "latest" else f":{row.tags}")
            line = next(line for line in page.splitlines() if f"`{name}`" in line)
            assert all(system in line for system in row.systems if system != "local tests"), line
            assert (row.mpi or f"CUDA {row.cuda}") in line


@each_row(("name", "fact", "value"), [
    ("docker.io/tacc/tacc-ml:centos7-cuda10-tf2.4-pt1.7", "cuda", "10"),
    ("tacc/tacc-ubuntu18-impi19.0.7-common", "mpi", "Intel MPI 19.0.7"),
    ("docker://lucasfernandoaes/pytorch-legacy:1.6.0", "python", "3.6"),
    ("nvcr.io/partners/chainer:4.0.0b1", "cuda", ""),
])  # fmt: skip
def test_known_images_tell_what_is_in_them(name: str, fact: str, value: str) -> None:
    traits = read_known_traits(name, TABLES, "amd64")
    assert traits is not None
    assert getattr(traits, fact).value == value


@each_row("name", ["tacc/tacc-ml:other", "tacc/tacc-ubuntu18-impi19.0.7-common@sha256:" + "0" * 64, "x"])
def test_known_images_say_nothing_of_other_tags(name: str) -> None:
    assert read_known_traits(name, TABLES) is None


@each_row(("column", "value"), [("task", ""), ("source", ""), ("multi_node", "perhaps")])
def test_known_images_a_row_that_makes_no_sense_is_a_problem(column: str, value: str) -> None:
    cells = dict.fromkeys(KNOWN_IMAGES.columns, "x") | {"multi_gpu": "", "multi_node": "yes"} | {column: value}
    text = ",".join(KNOWN_IMAGES.columns) + "\n" + ",".join(cells[name] for name in KNOWN_IMAGES.columns)
    problems = parse_table(text.encode(), "x.csv", KNOWN_IMAGES).problems
    assert [problem.context["column"] for problem in problems] == [column]
