# SPDX-License-Identifier: BSD-3-Clause
"""Site and scheduler, judged: programs that play a scheduler's answer, refuse, or say nothing at all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kedge.answers.doctor.cluster import (
    check_accounts,
    check_job_records,
    check_mpi_plugins,
    check_scheduler,
    check_shared_folders,
    check_site,
)
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Finding, Surroundings
from kedge.base.frozen import replace
from kedge.cluster.schedulers.mpi_types import parse_mpi_types
from kedge.cluster.sites.profile import SHIPPED, ProfileDirectory, load_site
from kedge.system.settings import Settings
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_reads, assert_says

FOLDERS = (ProfileDirectory(SHIPPED, "shipped"),)
SLURM_LIST = (
    "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4,pmix_v5\n"
)


class Machine:
    """A directory that is the whole PATH, and a site."""

    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder / "home"), "PATH": f"{folder}:/bin:/usr/bin"}
        self.site = load_site(site, FOLDERS)
        self.seen = Surroundings(self.environ, Settings.load(environ=self.environ), site=self.site, patience=20.0)

    def add(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A login node of zih-alpha without any program of Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path))
    # those of this machine must not be found in the directories that users' PATHs lack
    monkeypatch.setattr("kedge.answers.doctor.cluster.find_program", lambda name: _find(tmp_path, name))
    return Machine(tmp_path, "zih-alpha")


def _find(folder: Path, name: str) -> str | None:
    return str(folder / name) if (folder / name).exists() else None


def only(findings: list[Finding], level: str) -> Finding:
    assert [each.level for each in findings] == [level], findings
    if level in (WARNING, FAIL, NOTE):
        assert findings[0].why
        assert findings[0].fix
        assert findings[0].docs.startswith("kedge help doctor ")
    return findings[0]


def test_scheduler_that_answers_is_compared_with_the_profile(machine: Machine) -> None:
    queues = " ".join(each.name for each in machine.site.queues)
    machine.add("sbatch", "exit 1")
    machine.add("sinfo", f'[ "$1" = --version ] && echo "slurm 23.11.4" && exit; for q in {queues}; do echo $q; done')
    count = len(machine.site.queues)
    told = only(check_scheduler(machine.seen), OK)
    assert_reads(told.what, "doctor/slurm-answers-queue", count, "s" * (count != 1))
    machine.add("sbatch", "exit 1")
    machine.add("sinfo", "echo brandnew")
    findings = check_scheduler(machine.seen)
    assert [each.level for each in findings] == [OK, NOTE]
    assert_says(findings[1].what, "site/brandnew-scheduler-not-profile")
    assert "kedge site check" in findings[1].fix


def test_scheduler_that_says_nothing_is_told_in_time(machine: Machine) -> None:
    machine.add("sbatch", "exit 1")
    machine.add("sinfo", '[ "$1" = --version ] && echo "slurm 23.11.4" && exit; exec sleep 60')
    began = time.monotonic()
    finding = only(check_scheduler(replace(machine.seen, patience=2.0)), WARNING)
    assert time.monotonic() - began < 30
    assert_begins(finding.what, "doctor/slurm-did-not-answer-within", "sinfo -h -a -o %R", "2.2")


@each_row(("said", "level", "fix"), [
    ("slurm_load_partitions: Unable to contact slurm controller (connect failure)", FAIL, "does not answer"),
    ("fatal: Could not establish a configuration source", WARNING, "SLURM_CONF"),
    ("\033[2J something new", FAIL, "show the message to the site"),
])  # fmt: skip
def test_scheduler_that_refuses(machine: Machine, said: str, level: str, fix: str) -> None:
    machine.add("sbatch", "exit 1")
    machine.add("sinfo", f"echo '{said}' >&2; exit 1")
    finding = only(check_scheduler(machine.seen), level)
    assert fix in finding.fix
    assert finding.what.isprintable()


def test_scheduler_whose_programs_or_settings_are_not_here(machine: Machine) -> None:
    finding = only(check_scheduler(machine.seen), WARNING)
    assert_reads(finding.what, "doctor/not-found-site-zih-alpha-needs", "sbatch")
    environ = {**machine.environ, "SLURM_CONF": "/no/such/slurm.conf"}
    finding = only(check_scheduler(replace(machine.seen, environ=environ)), FAIL)
    assert finding.fix.startswith("unset SLURM_CONF")
    assert check_mpi_plugins(machine.seen) == []


@each_row(("site", "program", "script", "said"), [
    ("generic-gridengine", "qconf", '[ "$1" = -sql ] && echo all.q || echo "GE 8.1.9"',
     "GE 8.1.9 answers, and has 1"),
    ("generic-pbs", "qstat",
     '[ "$1" = -Qf ] && printf "Queue: a\\n  x = 1\\nQueue: b\\n" || echo "pbs_version = 23.06.06"',
     "pbs_version = 23.06.06 answers, and has 2"),
])  # fmt: skip
def test_scheduler_of_other_kinds(machine: Machine, site: str, program: str, script: str, said: str) -> None:
    machine.add("qsub", "exit 1")
    machine.add(program, script)
    findings = check_scheduler(replace(machine.seen, site=load_site(site, FOLDERS)))
    assert only(findings, OK).what.startswith(said)


def test_mpi_plugins_as_srun_prints_them() -> None:
    assert parse_mpi_types(SLURM_LIST) == ["none", "pmi2", "pmix", "pmix_v4", "pmix_v5"]
    old = "srun: MPI types are...\nsrun: none\nsrun: openmpi\nsrun: pmi2\n"
    assert parse_mpi_types(old) == ["none", "openmpi", "pmi2"]
    assert parse_mpi_types("srun: fatal: Could not establish a configuration source\n") == []


@each_row(("plugins", "mpi_type", "level", "said"), [
    (("none", "pmi2", "pmix"), "", OK, "srun has none, pmi2, pmix"),
    (("none", "pmi2", "pmix"), "pmix_v9", WARNING, "srun refuses that"),
    (("none", "pmi2"), "", NOTE, "support PMIx only"),
    (("none",), "", WARNING, "rank 0 of 1"),
    (("none", "cray_shasta"), "", NOTE, "PMIx"),
])  # fmt: skip
def test_mpi_plugins_are_judged(
    machine: Machine, plugins: tuple[str, ...], mpi_type: str, level: str, said: str
) -> None:
    machine.add("srun", f"printf '%s\\n' {' '.join(plugins)}")
    seen = replace(machine.seen, site=replace(machine.site, mpi_type=mpi_type))
    finding = only(check_mpi_plugins(seen), level)
    assert said in finding.what + finding.why


@each_row(("account", "requires", "level", "said"), [
    ("p_mine", (), OK, "yours: p_mine, p_other"),
    ("p_gone", (), WARNING, "Slurm has no account 'p_gone' for you; yours: p_mine, p_other"),
    ("", ("account",), NOTE, "yours: p_mine, p_other"),
    ("", (), OK, "yours: p_mine, p_other"),
])  # fmt: skip
def test_accounts_are_compared(
    machine: Machine, account: str, requires: tuple[str, ...], level: str, said: str
) -> None:
    machine.add("sacctmgr", "printf 'p_mine\\np_other\\np_mine\\n'")
    site = replace(machine.site, account=account, requires=requires)
    assert only(check_accounts(replace(machine.seen, site=site)), level).what == said


def test_accounts_without_a_database_are_nothing(machine: Machine) -> None:
    machine.add("sacctmgr", "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1")
    assert check_accounts(machine.seen) == []


@each_row(("site", "level", "said"), [
    ("local", NOTE, "no scheduler found"),
    ("generic-slurm", NOTE, "this cluster has no profile"),
    ("zih-taurus", WARNING, "is switched off"),
    ("zih-alpha", OK, "zih-alpha ("),
])  # fmt: skip
def test_site_is_told(machine: Machine, site: str, level: str, said: str) -> None:
    finding = check_site(replace(machine.seen, site=load_site(site, FOLDERS)))[0]
    assert (finding.level, said in finding.what) == (level, True)


def test_site_says_whether_this_is_a_job(machine: Machine) -> None:
    assert "not inside a job" in check_site(machine.seen)[1].what
    environ = {**machine.environ, "SLURM_JOB_ID": "4711", "SLURM_JOB_PARTITION": "alpha"}
    assert_reads(check_site(replace(machine.seen, environ=environ))[1].what, "doctor/inside-job-queue-alpha")
    environ["SLURM_JOB_PARTITION"] = "\033[2J"
    assert check_site(replace(machine.seen, environ=environ))[1].what.isprintable()


def test_shared_folders_where_nodes_do_not_see_the_home(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    site = load_site("sdumont", FOLDERS)
    monkeypatch.setattr("sys.prefix", f"{machine.environ['HOME']}/.venv")
    findings = check_shared_folders(replace(machine.seen, site=site))
    assert [each.level for each in findings] == [WARNING, WARNING]
    assert "where kedge is installed" in findings[0].what
    assert "$SCRATCH is not set" in findings[1].what
    environ = {**machine.environ, "SCRATCH": "/scratch/me"}
    monkeypatch.setattr("sys.prefix", "/scratch/me/.venv")
    finding = only(check_shared_folders(replace(machine.seen, site=site, environ=environ)), NOTE)
    assert finding.fix == "work below /scratch/me"


def test_shared_folders_usually_are(machine: Machine) -> None:
    only(check_shared_folders(machine.seen), OK)
    told = only(check_shared_folders(replace(machine.seen, site=load_site("zih-alpha", FOLDERS))), OK).what
    assert_reads(told, "doctor/compute-nodes-see-your-home")
    unsaid = only(check_shared_folders(replace(machine.seen, site=load_site("generic-slurm", FOLDERS))), OK).what
    assert_says(unsaid, "doctor/unknown-whether-compute-nodes-see")


def test_job_records_have_a_place(machine: Machine) -> None:
    assert only(check_job_records(machine.seen), OK).what == f"{machine.environ['HOME']}/.local/state/kedge/jobs"
    assert not Path(machine.environ["HOME"]).exists()
    Path(machine.environ["HOME"]).write_text("a file")
    finding = only(check_job_records(machine.seen), FAIL)
    assert "KEDGE_JOBDIR" in finding.fix
