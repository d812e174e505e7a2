# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of kedge: in Jupyter's directories, their words, and the login node's side of one in a job."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.builders.rows import each_row

from kedge.errors import FileProblem, NotebookProblem, UsageError
from kedge.tools.jupyter.kernel_command import KernelCommand, drop_parent, require_packages
from kedge.tools.jupyter.kernel_in_job import read_connection, run_in_job
from kedge.tools.jupyter.kernel_on_node import CHANNELS, localize, socket_of
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


@each_row(("environ", "place"), [
    ({"HOME": "/h"}, "/h/.local/share/jupyter/kernels"),
    ({"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/jupyter/kernels"),
    ({"HOME": "/h", "XDG_DATA_HOME": "/d", "JUPYTER_DATA_DIR": "/j"}, "/j/kernels"),
])  # fmt: skip
def test_kernel_folder_is_jupyters(environ: dict[str, str], place: str) -> None:
    assert str(find_kernel_folder(environ)) == place
    assert str(find_kernel_folder(environ, "/env")) == "/env/share/jupyter/kernels"


def test_kernels_are_listed_in_the_home_and_others_are_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no home"):
        find_kernel_folder({})
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


def test_kernel_words_bind_and_start_what_the_image_has() -> None:
    words = KernelCommand("/a.sif", ("--nv",), "/usr/bin/python3").exec_words("/run/k/c.json")
    assert words[:5] == ["exec", "--nv", "--bind", "/run/k", "/a.sif"]
    assert words[5:] == ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/k/c.json"]
    command = KernelCommand("/a.sif", ("--bind", "/b"), "python3", "", ("cell.py",))
    assert command.exec_words("/run/c.json")[-3:] == ["-f", "/run/c.json", "cell.py"]
    assert command.start_words("F")[4:] == ["--option", "--bind", "--option", "/b", "--", "/a.sif", "cell.py"]
    words = KernelCommand("/a.sif", (), "python3", "/p").exec_words("/run/c.json")
    assert "/p:/p:ro" in words
    assert "sys.path.append" in words[words.index("-c") + 1]
    assert "PYTHONPATH" not in " ".join(words)
    assert drop_parent({"JPY_PARENT_PID": "7", "A": "b"}) == {"A": "b"}


def test_kernel_whose_packages_are_gone_says_so(tmp_path: Path) -> None:
    require_packages(KernelCommand("/a.sif", packages=str(tmp_path)))
    with pytest.raises(FileProblem, match="packages of this kernel are gone"):
        require_packages(KernelCommand("/a.sif", packages=str(tmp_path / "gone")))


def test_connection_on_the_node_has_sockets_instead_of_ports(tmp_path: Path) -> None:
    given = {"ip": "127.0.0.1", "transport": "tcp", "key": "k", **{f"{name}_port": 5000 for name in CHANNELS}}
    found = localize(given, tmp_path)
    assert (found["transport"], found["key"]) == ("ipc", "k")
    for name in CHANNELS:
        assert f"{found['ip']}-{found[f'{name}_port']}" == str(socket_of(tmp_path, name))


PORTS = {f"{name}_port": 0 for name in CHANNELS}  # 0: any free port


def write(folder: Path, document: object) -> str:
    path = folder / "connection.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_connection_is_what_jupyter_wrote(tmp_path: Path) -> None:
    given = {"ip": "127.0.0.1", "transport": "tcp", "key": "k", **PORTS}
    assert read_connection(write(tmp_path, given)) == given
    (tmp_path / "broken").write_text("{")
    for name in ("broken", "missing"):
        with pytest.raises(FileProblem, match=name):
            read_connection(str(tmp_path / name))


@each_row("document", [[], {}, {"ip": "x"}, {"ip": "/s", "transport": "ipc", **PORTS}])
def test_connection_without_ports_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(NotebookProblem, match="not a connection file with TCP ports"):
        read_connection(write(tmp_path, document))


def test_job_that_is_refused_ends_the_kernel_with_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["sh", "-c", "echo a site says hello; echo no such partition >&2; exit 3"]
    notes: list[str] = []
    assert run_in_job(words, {"ip": "127.0.0.1", **PORTS}, dict(os.environ), notes.append) == 3
    errors = capfd.readouterr().err
    assert "no such partition" in errors
    assert "a site says hello" in errors
    assert notes == []
