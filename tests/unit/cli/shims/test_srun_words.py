# SPDX-License-Identifier: BSD-3-Clause
"""`srun --container-…`: the options of Pyxis become kedge's, and all others stay with srun."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from kedge.cli.shims.srun_words import split_words, translate
from kedge.container.flags import parse_words
from kedge.errors import UsageError
from kedge.system.start_kedge import own_command
from tests.builders.rows import each_row

LINES = [
    ("--container-image=a/b:1 id", "", "exec --no-mount cwd --no-home docker://a/b:1 id"),
    ("-N 2 --mpi pmi2 -n4 -W 30 --container-image nvcr.io#nvidia/cuda:1 -l a.out -N 9",
     "-N 2 --mpi pmi2 -n4 -W 30 -l", "exec --no-mount cwd --no-home docker://nvcr.io#nvidia/cuda:1 a.out -N 9"),
    ("--pty --container-image=/x.sqsh bash", "--pty", "exec --no-mount cwd --no-home /x.sqsh bash"),
    ("--container-image=./x.sqsh id", "", "exec --no-mount cwd --no-home {cwd}/x.sqsh id"),
    ("--container-image=x --container-mounts=/a:/b:ro+rprivate,/c,tmpfs:/d,.:/e id", "",
     "exec --no-mount cwd --no-home --bind /a:/b:ro --bind /c:/c --scratch /d --bind {cwd}:/e docker://x id"),
    ("--container-image=x --container-mount-home --container-workdir=/w --container-remap-root id", "",
     "exec --no-mount cwd --pwd /w --fakeroot docker://x id"),
    ("--container-image=x --container-entrypoint --container-writable --container-unshare=net,uts id", "",
     "run --no-mount cwd --no-home --writable-tmpfs --net --network none --uts docker://x id"),
    ("--no-container-mount-home --container-readonly --no-container-entrypoint --container-image=x id", "",
     "exec --no-mount cwd --no-home docker://x id"),
]  # fmt: skip


@each_row(("line", "kept", "expected"), LINES)
def test_words_in_kedges(line: str, kept: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, _ = translate(shlex.split(line), {})
    at = words.index("/bin/sh")
    start = shlex.split(expected.format(cwd=tmp_path))
    assert (words[:at], words[at + 4 :]) == (shlex.split(kept), own_command(*start))
    parse_words(start[0], start[1:], {})


def test_words_and_variables_without_a_container_stay() -> None:
    words = ["-n", "2", "grep", "--container-image=x", "file"]
    assert translate(words, {}) == (words, {})
    assert split_words(["--container-id=1", "x"])[0] == ["--container-id=1"]
    _, variables = translate(shlex.split("--container-image=x --container-env=A,B id"), {"A": "1,2"})
    assert variables == {"KEDGEENV_A": "1,2"}


def test_a_name_stands_for_the_image_of_an_earlier_step_of_the_job(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "7", "HOME": str(tmp_path)}
    with pytest.raises(UsageError, match="no step of job 7"):
        translate(shlex.split("--container-name=n id"), job)
    translate(shlex.split("--container-image=a/b:1 --container-name=n true"), job)
    words, _ = translate(shlex.split("--container-name=n:exec id"), job)
    assert words[-2:] == ["docker://a/b:1", "id"]
    with pytest.raises(UsageError):
        translate(shlex.split("--container-name=n id"), {**job, "SLURM_JOB_ID": "8"})
    job = {"SLURM_JOB_ID": "7", "HOME": str(tmp_path), "SLURM_JOB_START_TIME": str(int(time.time()))}
    translate(shlex.split("--container-image=a/b:1 --container-name=n true"), job)
    assert translate(shlex.split("--container-name=n id"), job)
    later = {**job, "SLURM_JOB_START_TIME": str(int(time.time()) + 3600)}
    with pytest.raises(UsageError, match="no step of job 7"):
        translate(shlex.split("--container-name=n id"), later)


def test_names_that_no_step_uses_are_removed(tmp_path: Path) -> None:
    """As the next name is given; a step that uses a name keeps it."""
    folder = tmp_path / ".local/state/kedge/named-containers"
    for number in (7, 8):
        job = {"SLURM_JOB_ID": str(number), "HOME": str(tmp_path)}
        translate(shlex.split("--container-image=a/b:1 --container-name=n true"), job)
    for path in folder.iterdir():
        os.utime(path, (time.time() - 70 * 86400,) * 2)
    translate(shlex.split("--container-name=n id"), {"SLURM_JOB_ID": "8", "HOME": str(tmp_path)})
    translate(shlex.split("--container-image=a/b:1 --container-name=m true"), {**job, "SLURM_JOB_ID": "9"})
    assert sorted(path.name for path in folder.iterdir()) == ["8.n", "9.m"]


@each_row(("line", "said"), [
    ("--container-image=x", "there is none"),
    ("--container-mounts=/a id", "need an image"),
    ("--container-image=x --container-save=/y id", "--container-save"),
    ("--container-image=x --container-mounts=umount:/a id", "umount:/a"),
    ("--container-image=x --container-name=a/b id", "is no name"),
])  # fmt: skip
def test_what_is_refused_has_a_reason(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        translate(shlex.split(line), {})
    assert raised.value.hint
