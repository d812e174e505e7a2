# SPDX-License-Identifier: BSD-3-Clause
"""A scheduler whose programs are here and do not work: every verb says what `kedge doctor` says, with the remedy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kedge.errors import NoScheduler, SchedulerFailed
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.wording import assert_begins

SLURM = """\
NAME: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
NAME: error: fetch_config: DNS SRV lookup failed
NAME: fatal: Could not establish a configuration source
"""
GRID = """\
error: fopen("/var/lib/gridengine/default/common/act_qmaster") failed: No such file or directory
error: unable to read qmaster name: can't open "/var/lib/gridengine/default/common/act_qmaster"
"""
DOWN = "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n"
VERBS = {
    "jobs": ("jobs",),
    "status": ("status", "5"),
    "submit": ("submit", "--time", "5m", "-", "true"),
    "cancel": ("cancel", "5"),
    "site": ("site", "init", "--output", "profile.toml"),
}


def run(tmp_path: Path, site: str, said: str, *words: str) -> subprocess.CompletedProcess[str]:
    """kedge on a machine whose programs of the scheduler all say the same, and fail."""
    programs = tmp_path / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    slurm, grid = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo"), ("qsub", "qstat", "qdel", "qconf")
    for name in slurm if site == "generic-slurm" else grid:
        text = said.replace("NAME", name)
        (programs / name).write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\nexit 1\n")
        (programs / name).chmod(0o755)
    system = [each for each in os.environ["PATH"].split(":") if not Path(each, "sbatch").exists()]
    for name in ("sh", "cat"):
        target = programs / name
        if not target.exists():
            target.symlink_to(f"/bin/{name}")
    environment = {"HOME": str(tmp_path), "KEDGE_SITE": site, "PATH": ":".join([str(programs), *system])}
    return kedge(*words, cache=tmp_path / "cache", environment=environment, cwd=tmp_path, check=False)


NO_SLURM = "Slurm is installed but not set up on this host: its programs find no slurm.conf"
NO_GRID = "Grid Engine is installed but not set up on this host"
TROUBLES = [
    *((verb, "generic-slurm", SLURM, NO_SLURM, "SLURM_CONF") for verb in VERBS),
    *((verb, "generic-gridengine", GRID, NO_GRID, "settings.sh: it sets SGE_ROOT") for verb in VERBS),
    ("jobs", "generic-slurm", DOWN, "Unable to contact slurm controller", "the scheduler does not answer: try again"),
]


@each_row(("verb", "site", "said", "message", "remedy"), TROUBLES)
def test_verbs_say_what_is_wrong_with_the_scheduler(*, tmp_path, verb, site, said, message, remedy):
    done = run(tmp_path / f"{verb} {site} {message[:4]}", site, said, *VERBS[verb])
    assert done.returncode == SchedulerFailed.exit_code
    first, hint = done.stderr.splitlines()[0], done.stderr.partition("hint: ")[2]
    assert message in first
    assert "res_nsearch" not in first
    assert remedy in hint
    assert not list(tmp_path.glob("*/.local/state/kedge/jobs/records/*"))  # nothing is left of a job that is nowhere


@pytest.mark.parametrize("verb", ["jobs", "submit", "site"])
def test_verbs_do_not_try_an_unreadable_configuration(tmp_path, verb, monkeypatch):
    """Slurm's own programs try it for a minute each."""
    monkeypatch.setenv("SLURM_CONF", "/nonexistent/slurm.conf")
    done = run(tmp_path, "generic-slurm", "scontrol: fatal: tried for a minute\n", *VERBS[verb])
    assert done.returncode == NoScheduler.exit_code
    assert_begins(done.stderr, "doctor/cannot-read", "SLURM_CONF", "/nonexistent/slurm.conf")
    assert "unset SLURM_CONF" in done.stderr


@pytest.mark.parametrize(("site", "said"), [("generic-slurm", SLURM), ("generic-gridengine", GRID)])
def test_doctor_says_the_same(tmp_path: Path, site: str, said: str) -> None:
    told = run(tmp_path, site, said, "jobs").stderr.splitlines()[0].removeprefix("kedge: ")
    shown = " ".join(run(tmp_path, site, said, "doctor").stdout.split())
    assert told in shown
