# SPDX-License-Identifier: BSD-3-Clause
"""What is proposed here, where kedge was installed from, and what must not leave the machine in a report."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from kedge.answers.here import find_here, list_next
from kedge.answers.own_origin import read_record
from kedge.answers.report import Censor, is_secret_name, show_environment
from kedge.cli.redaction import redact
from kedge.cli.verbs import VERBS
from kedge.cluster.site import Queue, Site
from kedge.system.settings import Settings
from tests.builders.rows import each_row

SLURM, NONE = Site("here", "here", "slurm"), Site("local", "local", "local")
KNOWN = Site("here", "here", "slurm", queues=(Queue("gpu", gpu="A100-SXM4-40GB"),))


@each_row(("site", "image", "job", "verbs"), [
    (KNOWN, "", False, ["recommend", "submit", "alloc"]),
    (SLURM, "", False, ["pull", "submit", "alloc"]),
    (SLURM, "a.sif", False, ["exec", "submit", "alloc"]),
    (SLURM, "a.sif", True, ["exec", "launch", "doctor"]),
    (NONE, "", False, ["pull", "exec", "doctor"]),
    (NONE, "a.sif", False, ["explain", "exec", "doctor"]),
])  # fmt: skip
def test_three_commands_that_fit_the_place(site: Site, image: str, job: bool, verbs: list[str]) -> None:
    steps = list_next(site, image, has_gpus=True, is_job=job, nodes=2)
    assert [shlex.split(step.command)[1] for step in steps] == verbs
    assert set(verbs) <= set(VERBS)
    assert all(len(f"  {step.command}  # {step.does}") < 100 for step in steps)


def test_image_of_the_directory_is_proposed(tmp_path: Path) -> None:
    for name, when in (("old.sif", 1), ("new.sif", 2), ("note.txt", 3)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    (tmp_path / "folder.sif").mkdir()
    environ = {"HOME": str(tmp_path), "KEDGE_SITE": "generic-slurm", "PATH": "/nowhere"}
    here = find_here(Settings.load(None, environ), environ, tmp_path)
    assert here.image == "new.sif"
    assert any("new.sif" in step.command for step in here.next)
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    assert find_here(Settings.load(None, environ), environ, tmp_path / "gone").image == ""


PIP = f"{shlex.quote(sys.executable)} -m pip install --upgrade"


def test_clones_and_uv_are_installed_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "a clone"
    (clone / ".git").mkdir(parents=True)
    record = {"url": clone.as_uri(), "dir_info": {}}
    found = read_record(json.dumps(record), "pip")
    assert found.what == f"the clone {clone}"
    assert found.lines == (f"git -C '{clone}' pull", f"{PIP} '{clone}'")
    editable = read_record(json.dumps({**record, "dir_info": {"editable": True}}), "pip")
    assert editable.lines == (f"git -C '{clone}' pull",)
    record = json.dumps({"url": "https://example.org/kedge.git", "vcs_info": {"vcs": "git"}})
    monkeypatch.setattr(sys, "prefix", "/home/me/.local/share/uv/tools/kedge")
    assert read_record(record, "uv").lines == ("uv tool install --reinstall git+https://example.org/kedge.git",)
    monkeypatch.setattr(sys, "prefix", "/home/me/venv")
    assert read_record(record, "uv").lines[0].startswith("uv pip install --python ")


@each_row("revision", ["", "v2"])
def test_a_repository_is_named_with_its_revision(revision: str) -> None:
    about = {"vcs": "git", "commit_id": "0" * 40, **({"requested_revision": revision} if revision else {})}
    found = read_record(json.dumps({"url": "https://example.org/kedge.git", "vcs_info": about}), "pip")
    assert found.lines == (f"{PIP} git+https://example.org/kedge.git" + ("@v2" if revision else ""),)


@each_row(("record", "what"), [
    ({}, "of which no record was kept"),
    ({"url": "file:///x/kedge-0.1.0-py3-none-any.whl", "archive_info": {}},
     "the file /x/kedge-0.1.0-py3-none-any.whl"),
    ({"url": "file:///nonexistent/kedge", "dir_info": {}}, "which is gone"),
])  # fmt: skip
def test_lines_that_would_not_work_are_not_shown(record: dict[str, object], what: str) -> None:
    found = read_record(json.dumps(record), "pip")
    assert found.what.endswith(what)
    assert found.lines == ()


SECRETS = (
    *("NGC_API_KEY", "NGC_CLI_API_KEY", "DOCKER_PASSWORD", "SINGULARITY_DOCKER_PASSWORD", "HF_TOKEN", "SLURM_JWT"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "PGPASSWORD", "MYSQL_PWD_FILE", "SSH_AUTH_SOCK"),
    *("GITHUB_PAT", "OPENAI_API_KEY", "KEDGE_SIGN_PASSPHRASE", "APPTAINER_ENCRYPTION_PASSPHRASE", "XAUTHORITY"),
)
NEEDED = ("PWD", "PATH", "KEDGE_KEYSDIR", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "KEDGE_KEYSERVER")


def test_names_that_speak_of_secrets_are_known_and_those_that_help_desks_need_are_not() -> None:
    assert [name for name in (*SECRETS, *NEEDED) if is_secret_name(name)] == [*SECRETS]


def test_environment_shows_what_matters_and_nothing_else() -> None:
    shown = list(
        show_environment(
            {
                "SLURM_JOB_ID": "7", "EDITOR": "vim", "NGC_API_KEY": "nvapi-secret", "MY_DIARY": "private",
                "SINGULARITYENV_OMP_NUM_THREADS": "4", "SINGULARITYENV_DIARY": "private",
                "SINGULARITYENV_API_KEY": "private", "no_proxy": "localhost",
                "ALL_PROXY": "socks5://ada:p@ss@proxy:1080",
            }
        )
    )  # fmt: skip
    assert shown == [
        "ALL_PROXY='***@proxy:1080'", "NGC_API_KEY=***", "SINGULARITYENV_API_KEY is set",
        "SINGULARITYENV_DIARY is set", "SINGULARITYENV_OMP_NUM_THREADS='4'", "SLURM_JOB_ID='7'",
        "no_proxy='localhost'",
    ]  # fmt: skip


@each_row(("text", "expected"), [
    ("https://ada:pass@host/x", "https://ada:***@host/x"),
    ("proxy ada:pass@host:3128", "proxy ***@host:3128"),
    ("https://abcdefghijklmnop@host/x.git", "https://***@host/x.git"),
    ("key nvapi-abcdefgh12345678", "key ***"),
    ("a eyJhbGciOiJIUzI1.eyJleHAiOjE3MDAw.c2lnbmF0dXJl b", "a *** b"),
    ("at /home/ada/x and /home/ada", "at ~/x and ~"),
    ("at /home/ada2/x", "at /home/ada2/x"),
    ("said s3cret-in-a-file", "said ***"),
    ("sha256:" + "0123456789abcdef" * 4, "sha256:" + "0123456789abcdef" * 4),
    ("PATH='/opt/python@3.11/bin:/usr/bin'", "PATH='/opt/python@3.11/bin:/usr/bin'"),
])  # fmt: skip
def test_censor_takes_out_secrets_and_leaves_the_rest(text: str, expected: str) -> None:
    censor = Censor({"X_TOKEN": "s3cret-in-a-file", "Y_TOKEN": "no"}, redact, home=Path("/home/ada"))
    assert censor.clean(text) == expected


def test_censor_leaves_the_home_to_its_owner() -> None:
    assert Censor({}, redact).clean("/home/ada/x") == "/home/ada/x"
    assert Censor({}, redact, home=Path("/")).clean("/usr/x") == "/usr/x"
