# SPDX-License-Identifier: BSD-3-Clause
"""The words of a kernel: what is bound, and where packages that kedge brought stand in the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.errors import FileProblem
from kedge.tools.jupyter.kernel_on_node import CHANNELS, localize, socket_of
from kedge.tools.jupyter.kernel_specs import KernelCommand, drop_parent, require_packages


def test_kernel_of_an_image_with_ipykernel() -> None:
    words = KernelCommand("/a.sif", ("--nv",), "/usr/bin/python3").exec_words("/run/k/c.json")
    assert words[:5] == ["exec", "--nv", "--bind", "/run/k", "/a.sif"]
    assert words[5:] == ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/k/c.json"]


def test_kernel_takes_arguments_that_programs_of_jupyter_add() -> None:
    command = KernelCommand("/a.sif", ("--bind", "/b"), "python3", "", ("cell.py",))
    assert command.exec_words("/run/c.json")[-3:] == ["-f", "/run/c.json", "cell.py"]
    assert command.start_words("F")[4:] == ["--option", "--bind", "--option", "/b", "--", "/a.sif", "cell.py"]


def test_kernel_with_packages_sees_them_behind_its_own_and_read_only() -> None:
    words = KernelCommand("/a.sif", (), "python3", "/p").exec_words("/run/c.json")
    assert "/p:/p:ro" in words
    assert "sys.path.append" in words[words.index("-c") + 1]
    assert "PYTHONPATH" not in " ".join(words)


def test_kernel_whose_packages_are_gone_says_so(tmp_path: Path) -> None:
    require_packages(KernelCommand("/a.sif", packages=str(tmp_path)))
    with pytest.raises(FileProblem, match="packages of this kernel are gone"):
        require_packages(KernelCommand("/a.sif", packages=str(tmp_path / "gone")))


def test_kernel_on_another_host_does_not_look_for_jupyters_process() -> None:
    assert drop_parent({"JPY_PARENT_PID": "7", "A": "b"}) == {"A": "b"}


def test_connection_on_the_node_has_sockets_instead_of_ports(tmp_path: Path) -> None:
    given = {"ip": "127.0.0.1", "transport": "tcp", "key": "k", **{f"{name}_port": 5000 for name in CHANNELS}}
    found = localize(given, tmp_path)
    assert (found["transport"], found["key"]) == ("ipc", "k")
    for name in CHANNELS:
        assert f"{found['ip']}-{found[f'{name}_port']}" == str(socket_of(tmp_path, name))
