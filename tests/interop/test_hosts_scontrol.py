# SPDX-License-Identifier: BSD-3-Clause
"""Host lists mean what Slurm's own program says that they mean: some made at random."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from kedge.cluster.hosts import parse_hosts
from kedge.errors import LaunchRefused
from tests.builders.host_lists import make_host_list
from tests.builders.rows import each_row
from tests.requirements import require_program

SETTINGS = "ClusterName=lists\nSlurmctldHost=localhost\nAuthType=auth/none\nCredType=cred/none\n"


@pytest.fixture
def settings(tmp_path: Path) -> str:
    """Without any slurm.conf scontrol asks the network for one."""
    path = tmp_path / "slurm.conf"
    path.write_text(SETTINGS)
    return str(path)


def ask_scontrol(text: str, settings: str) -> subprocess.CompletedProcess[str]:
    words = [require_program("scontrol"), "show", "hostnames", text]
    return subprocess.run(words, env={"SLURM_CONF": settings}, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_hosts_as_scontrol(count: int, settings: str) -> None:
    random = Random(1402)
    for _ in range(count):
        text, _ = make_host_list(random)
        assert parse_hosts(text) == tuple(ask_scontrol(text, settings).stdout.split()), text


@each_row("text", ["n[2-1]", "n[]", "n[a]", "n[1-3:2]", "n[1-5/2]"])
def test_hosts_scontrol_refuses_too(text: str, settings: str) -> None:
    done = ask_scontrol(text, settings)
    assert "Invalid hostlist" in done.stdout + done.stderr
    with pytest.raises(LaunchRefused):
        parse_hosts(text)
