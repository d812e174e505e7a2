# SPDX-License-Identifier: BSD-3-Clause
"""What was read of an MPI comes back as it was, and is read anew where anything is another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cluster.mpi import MPICH, OPEN_MPI, MpiFacts, MpiImage
from kedge.compat.found_mpis import describe_file, recall_host, recall_image

OPEN = MpiFacts(OPEN_MPI, "4.1.4", pmi=("pmix",), fabrics=("ucx",), variables=(("OPAL_PREFIX", "/opt/x"),))
IMAGE = MpiImage("app.sif", (OPEN, MpiFacts(MPICH, "4.0.2")), "2.36", is_searched=True, notes=("two",))


class Reader:
    """Counts how often an image is read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> MpiImage:
        self.count += 1
        return IMAGE


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"KEDGE_CACHEDIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def test_an_image_is_read_once(environ: dict[str, str]) -> None:
    read = Reader()
    assert [recall_image("/app.sif", "state", environ, read) for _ in range(3)] == [IMAGE] * 3
    assert read.count == 1
    recall_image("/app.sif", "another state", environ, read)
    recall_image("/other.sif", "state", environ, read)
    assert read.count == 3


def test_without_a_key_it_is_read_each_time(environ: dict[str, str]) -> None:
    read = Reader()
    recall_image("/app", "", environ, read)
    recall_image("/app", "", environ, read)
    assert read.count == 2


def test_a_cache_that_others_write_is_not_believed(environ: dict[str, str]) -> None:
    read = Reader()
    for _ in range(2):
        recall_image("/app.sif", "state", environ | {"KEDGE_SHARED_CACHE": "true"}, read)
    assert read.count == 2


def test_mpis_of_a_host(environ: dict[str, str]) -> None:
    assert recall_host("node1", "libraries", environ, lambda: (OPEN,)) == (OPEN,)
    assert recall_host("node1", "libraries", environ, tuple) == (OPEN,)
    assert recall_host("node2", "libraries", environ, tuple) == ()


def test_a_file_is_another_one_when_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "libmpi.so"
    assert describe_file(str(path)) == describe_file("nul\0") == ""
    path.write_text("1")
    before = describe_file(str(path))
    path.write_text("22")
    assert before
    assert describe_file(str(path)) != before
