# SPDX-License-Identifier: BSD-3-Clause
"""A directory wants its programs run: PATH has an empty or relative entry, as `export PATH=$PATH:` leaves one.

Whoever fills a shared directory, or a repository that is cloned, then names a program `sbatch`, `mpirun`, `docker` …
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.system.programs import find_program
from tests.builders.containers import Runner, give_to
from tests.builders.rows import each_row

PLANTED = (
    *("sbatch", "srun", "salloc", "squeue", "sacct", "sinfo", "scontrol", "sacctmgr", "scancel"),
    *("qsub", "qstat", "qhost", "qconf", "qacct", "qdel", "pbsnodes", "mpirun", "mpiexec", "mpiexec.hydra", "orterun"),
    *("squashfuse", "squashfuse_ll", "fuse-overlayfs", "fuse2fs", "fusermount3", "newuidmap", "newgidmap"),
    *("mkfs.ext3", "debugfs", "mksquashfs", "lfs", "quota", "docker", "podman", "docker-credential-planted"),
    *("apptainer", "singularity", "enroot", "ch-run", "nvidia-smi", "ldconfig", "gpg", "git", "kedge", "planted"),
)
PATHS = ("", ":/nowhere", ".", "tools", "../hostile")  # nothing of the system's: what is found is the directory's
VERBS = (
    ("doctor", "--offline"),
    ("explain", "--offline", "docker://ubuntu"),
    ("pull", "--retries", "0", "--force", "HOME/image.sif", "docker://localhost:1/image"),
    ("pull", "docker-daemon:image:tag"),
    ("pull", "--force", "HOME/image.sif", "host:planted"),
    ("overlay", "create", "HOME/overlay.img"),
    ("jobs", "--site", "generic-slurm"),
    ("jobs", "--site", "generic-gridengine"),
    ("submit", "--site", "generic-slurm", "-", "true"),
    ("alloc", "--site", "generic-slurm"),
    ("local-queue", "run", "--", "planted"),
    ("site", "init", "here"),
    ("exec", "--runtime", "enroot", "IMAGE", "true"),
    ("exec", "--writable-tmpfs", "IMAGE", "true"),
)


@pytest.fixture
def hostile(runner: Runner) -> Iterator[Path]:
    """A directory whose programs write their names into a file beside it."""
    folder, marks = runner.folder / "hostile", runner.folder / "marks"
    marks.write_text("")
    marks.chmod(0o666)
    for place in (folder, folder / "tools"):
        place.mkdir(exist_ok=True)
        for name in PLANTED:
            (place / name).write_text(f'#!/bin/sh\necho "{name} $0" >>{marks}\nexit 1\n')
            (place / name).chmod(0o755)
    config = runner.home / ".docker/config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({"credsStore": "planted"}))
    give_to(runner, runner.home)
    yield folder
    assert marks.read_text() == ""


@each_row("words", VERBS, ids=lambda words: "-".join(words[:3]).replace("/", ""))
def test_programs_of_the_current_directory_are_not_run(
    runner: Runner, hostile: Path, image: str, words: tuple[str, ...]
) -> None:
    named = {"HOME/image.sif": f"{runner.home}/image.sif", "HOME/overlay.img": f"{runner.home}/overlay.img"}
    named["IMAGE"] = image
    done = runner.run(*(named.get(word, word) for word in words), env={"PATH": ":".join(PATHS)}, cwd=hostile)
    assert "Traceback" not in done.stderr
    (runner.home / "overlay.img").unlink(missing_ok=True)


def test_a_program_that_only_the_current_directory_has_is_missing_and_the_reason_is_said(
    runner: Runner, hostile: Path
) -> None:
    done = runner.run("jobs", "--site", "generic-pbs", env={"PATH": ".:/nowhere"}, cwd=hostile)
    assert "'qstat' was not found" in done.stderr
    assert "current directory" in done.stderr


def test_search_takes_absolute_entries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "planted"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in ("", ":", ".", "./", "..", f"../{tmp_path.name}", f"nowhere::{tmp_path.name}"):
        assert find_program("planted", path) is None
    assert find_program("planted", f":{tmp_path}:.") == str(program)
    assert find_program("./planted") == "./planted"  # what has a slash is what the caller says
    assert find_program("nothing", str(tmp_path)) is None
    assert find_program("sh", os.defpath) in ("/bin/sh", "/usr/bin/sh")
    program.chmod(0o644)
    assert find_program("planted", str(tmp_path)) is None
    (tmp_path / "folder").mkdir()
    assert find_program("folder", str(tmp_path)) is None
