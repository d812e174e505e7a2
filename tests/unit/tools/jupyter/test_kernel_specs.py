# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of kedge in Jupyter's directories: names, places, what is listed and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders.rows import each_row

from kedge.errors import NotebookProblem, UsageError
from kedge.tools.jupyter.kernel_specs import (
    Kernel,
    describe_kernel,
    find_kernel,
    find_kernel_folder,
    list_kernels,
    name_kernel,
    remove_kernel,
)


def write_kernel(folder: Path, display_name: str = "My kernel") -> Path:
    path = folder / name_kernel(display_name)
    kernel = Kernel(path.name, display_name, str(path), "/a.sif", "3.11", "6.29.5", "", job=False)
    path.mkdir(parents=True)
    (path / "kernel.json").write_text(json.dumps(describe_kernel(kernel, ["x"], {})))
    return path


@each_row(
    ("shown", "name"),
    [("My first kernel", "my-first-kernel"), ("PyTorch 24.03 (kedge)", "pytorch-24.03-kedge"), ("a/../b", "a-..-b")],
)
def test_kernel_names_are_what_jupyter_takes(shown: str, name: str) -> None:
    assert name_kernel(shown) == name


@each_row("shown", ["", "..", "日本", "///"])
def test_kernel_name_without_a_letter_is_refused(shown: str) -> None:
    with pytest.raises(UsageError, match="no letter"):
        name_kernel(shown)


@each_row(
    ("environ", "place"),
    [
        ({"HOME": "/h"}, "/h/.local/share/jupyter/kernels"),
        ({"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/jupyter/kernels"),
        ({"HOME": "/h", "XDG_DATA_HOME": "/d", "JUPYTER_DATA_DIR": "/j"}, "/j/kernels"),
    ],
)
def test_kernel_folder_is_jupyters(environ: dict[str, str], place: str) -> None:
    assert str(find_kernel_folder(environ)) == place
    assert str(find_kernel_folder(environ, "/env")) == "/env/share/jupyter/kernels"


def test_kernel_folder_without_a_home_is_refused() -> None:
    with pytest.raises(UsageError, match="no home"):
        find_kernel_folder({})


def test_kernels_of_others_are_not_listed(tmp_path: Path) -> None:
    own = write_kernel(tmp_path)
    for name, text in {"python3": '{"argv": []}', "broken": "{", "odd": '{"metadata": {"kedge": {"x": 1}}}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.json").write_text(text)
    assert [kernel.path for kernel in list_kernels(tmp_path)] == [str(own)]
    assert list_kernels(tmp_path / "none") == []


def test_kernel_is_found_by_either_name_and_removed(tmp_path: Path) -> None:
    path = write_kernel(tmp_path)
    assert find_kernel(tmp_path, "My kernel") == find_kernel(tmp_path, "my-kernel")
    with pytest.raises(NotebookProblem, match="no kernel 'my-kernal'") as caught:
        find_kernel(tmp_path, "my-kernal")
    assert "my-kernel" in str(caught.value.hint)
    remove_kernel(find_kernel(tmp_path, "my-kernel"))
    assert not path.exists()
