# SPDX-License-Identifier: BSD-3-Clause
"""`kedge site`: which site this is, what is known, whether a job fits, and profiles that are written. Needs nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from kedge.cluster.sites.profile import SHIPPED
from tests.builders.warm_kedge import run_kedge
from tests.requirements import REPOSITORY
from tests.wording import assert_ends, assert_reads, assert_says

RECORDED = REPOSITORY / "tests/golden/discover"
SCONTROL = f"""#!/bin/sh
case "$*" in
    *partition*) cat '{RECORDED}/slurm-partitions.txt' ;;
    *node*) cat '{RECORDED}/slurm-hosts.txt' ;;
    *config*) cat '{RECORDED}/slurm-config.txt' ;;
esac
"""
SINFO = f"#!/bin/sh\ncat '{RECORDED}/slurm-nodes.txt'\n"
QSTAT = f"""#!/bin/sh
case "$*" in
    *Q*) cat '{RECORDED}/pbs-queues.txt' ;;
    *B*) cat '{RECORDED}/pbs-server.txt' ;;
esac
"""
PBSNODES = f"#!/bin/sh\ncat '{RECORDED}/pbs-nodes.txt'\n"
FAILING = "#!/bin/sh\necho 'Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"


class Place:
    """A home and a PATH of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.programs = folder / "bin"
        self.home.mkdir()
        self.programs.mkdir()
        (folder / "settings").touch()
        self.settings = str(folder / "settings")  # of a scheduler: that it is there says that the scheduler is

    @property
    def profiles(self) -> Path:
        return self.home / ".config/kedge/sites"

    def add(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    def add_profile(self, name: str, text: str) -> None:
        self.profiles.mkdir(parents=True, exist_ok=True)
        (self.profiles / f"{name}.toml").write_text(text)

    def site(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = ("SLURM_", "SGE_", "PBS_", "KEDGE_", "XDG_", "TACC_")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
        environ |= {"HOME": str(self.home), "PATH": f"{self.programs}:{environ['PATH']}", **variables}
        environ["KEDGE_SITE_CONFIG"] = str(self.home / "none.toml")
        return run_kedge(["site", *words], environment=environ, folder=Path.cwd())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_site_detect_says_which_and_why(place: Place) -> None:
    told = json.loads(place.site("detect", "--json", SLURM_CONF=place.settings, TACC_SYSTEM="vista").stdout)
    assert told["site"] == "tacc-vista"
    assert_reads(told["reason"], "site/is-set-for-it", "TACC_SYSTEM")
    assert told["others"] == [{"site": "generic-slurm", "reason": "SLURM_CONF is set"}]
    shown = place.site("detect", SLURM_CONF=place.settings, KEDGE_SITE="abci3").stdout.splitlines()
    assert shown[1].split(maxsplit=1) == ["abci3", "requested (environment: KEDGE_SITE)"]


def test_site_detect_takes_the_setting_of_the_user(place: Place) -> None:
    text = 'inherits = "generic-slurm"\ntitle = "Mine"\n'
    place.add_profile("mine", f'{text}hostnames = ["{os.uname().nodename}"]\n')
    assert json.loads(place.site("detect", "--json").stdout)["site"] == "mine"
    place.add_profile("mine", text)
    (place.home / ".config/kedge/config.toml").write_text('site = "mine"\n')
    assert json.loads(place.site("detect", "--json").stdout)["site"] == "mine"
    unknown = place.site("detect", KEDGE_SITE="mien")
    assert unknown.returncode == 75
    assert_ends(unknown.stderr, "base/did-you-mean", "mine")


def test_site_list_shows_all_and_warns_of_broken_ones(place: Place) -> None:
    place.add_profile("bad", "tilte = 'x'\n")
    done = place.site("list")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names == sorted([*(path.stem for path in SHIPPED.glob("*.toml")), "bad"])
    assert "(retired) AIST ABCI 2.0" in done.stdout
    assert f"{place.profiles}/bad.toml line 1: tilte: unknown key" in done.stderr
    told = {each["name"]: each for each in json.loads(place.site("list", "--json").stdout)}
    assert (told["bad"]["origin"], told["abci2"]["origin"], told["abci2"]["is_retired"]) == ("user", "shipped", True)


def test_site_show_prints_a_profile_that_can_be_used(place: Place) -> None:
    text = place.site("show", "tacc-frontera").stdout
    place.add_profile("copy", text)
    ours = json.loads(place.site("show", "copy", "--json").stdout)
    theirs = json.loads(place.site("show", "tacc-frontera", "--json").stdout)
    assert {**ours, "name": "", "origin": ""} == {**theirs, "name": "", "origin": ""}
    rows = place.site("show", "--queues", "abci2").stdout.splitlines()
    assert rows[1].split()[:6] == ["rt_F", "-", "40", "360G", "4", "V100-SXM2-16GB"]


def test_site_check_tells_whether_a_job_fits(place: Place) -> None:
    good = place.site("check", "tacc-frontera", "--gpus", "4", "--time", "2h", "--nodes", "2")
    assert (good.returncode, good.stdout) == (0, "tacc-frontera accepts this job; kedge adds --tasks 2 --queue rtx\n")
    assert_reads(good.stderr, "site/rtx-allocates-whole-nodes-gpus", 4)
    bad = place.site("check", "zih-alpha", "--gpus", "16")
    assert bad.returncode == 71
    assert bad.stderr.endswith("hint: try: --nodes 2 --gpus 8 --queue alpha\n")
    told = json.loads(place.site("check", "zih-alpha", "--gpus", "16", "--json").stdout)
    assert told["context"]["nearest"] == "--nodes 2 --gpus 8 --queue alpha"
    interactive = place.site("check", "abci3", "--interactive", "--account", "g", "--time", "13h")
    assert_says(interactive.stderr, "site/interactive-job-rt-hc-run", "12h")


def test_site_init_writes_a_profile_from_slurm(place: Place) -> None:
    place.add("scontrol", SCONTROL)
    place.add("sinfo", SINFO)
    place.add("sacctmgr", FAILING)
    done = place.site("init", "tiny", SLURM_CONF=place.settings)
    assert done.returncode == 0, done.stderr
    path = place.profiles / "tiny.toml"
    assert done.stderr == f"Wrote {path}: tiny (Slurm 22.05.8), 4 partitions\n"
    assert list(place.profiles.iterdir()) == [path]
    assert_reads(place.site("check", "tiny", SLURM_CONF=place.settings).stdout, "site/profile-tiny-matches-scheduler")
    again = place.site("init", "tiny", SLURM_CONF=place.settings)
    assert again.returncode == 31
    assert place.site("init", "tiny", "--force", SLURM_CONF=place.settings).returncode == 0


def test_site_check_compares_with_the_scheduler(place: Place) -> None:
    place.add("scontrol", SCONTROL)
    place.add("sinfo", SINFO)
    queue = '[[queues]]\nname = "gpu"\nmax_time = "1d"\n'
    place.add_profile("old", f'inherits = "generic-slurm"\ntitle = "Old"\n{queue}')
    done = place.site("check", "old", SLURM_CONF=place.settings)
    assert done.returncode == 1
    assert_reads(done.stdout.splitlines()[0], "site/gpu-max-time-profile-scheduler", "1d", "8h")


def test_site_init_writes_a_profile_from_pbs(place: Place) -> None:
    place.add("qstat", QSTAT)
    place.add("pbsnodes", PBSNODES)
    target = place.home / "pbs.toml"
    done = place.site("init", "abc", "--output", str(target), PBS_CONF_FILE=place.settings, SLURM_CONF="")
    assert done.returncode == 0, done.stderr
    shown = json.loads(place.site("show", str(target), "--json").stdout)
    assert [each["name"] for each in shown["queues"]] == ["rt_HF", "rt_HG", "big"]
    printed = place.site("init", "abc", "--output", "-", PBS_CONF_FILE=place.settings)
    assert printed.stdout == target.read_text()


def test_site_init_refuses_names_that_are_none(place: Place) -> None:
    place.add("scontrol", SCONTROL)
    place.add("sinfo", SINFO)
    for name in ("../evil", "a b", "-"):
        assert place.site("init", "--", name, SLURM_CONF=place.settings).returncode == 75, name
    assert not (place.home / ".config/kedge/evil.toml").exists()
    assert place.site("init", "--", "", SLURM_CONF=place.settings).returncode == 0


def test_site_init_of_a_scheduler_that_does_not_answer_writes_nothing(place: Place) -> None:
    place.add("scontrol", FAILING)
    place.add("sinfo", FAILING)
    done = place.site("init", "x", SLURM_CONF=place.settings)
    assert done.returncode == 72
    assert "connect failure" in done.stderr
    assert not place.profiles.exists()


def test_site_init_where_the_place_cannot_be_written(place: Place) -> None:
    place.add("scontrol", SCONTROL)
    place.add("sinfo", SINFO)
    (place.home / "file").write_text("")
    done = place.site("init", "x", "--output", str(place.home / "file/x.toml"), SLURM_CONF=place.settings)
    assert done.returncode == 30
    assert_says(done.stderr, "image/part-path-file")
