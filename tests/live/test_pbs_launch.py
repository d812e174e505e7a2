# SPDX-License-Identifier: BSD-3-Clause
"""Ranks on two nodes of a real OpenPBS, where there is no ssh and Debian's MPIs know nothing of PBS."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.test_launch_mpi_modes import FAMILIES, list_ranks, make_images
from tests.cluster.two_hosts import TWO
from tests.live.openpbs import OpenPbs


@pytest.fixture(scope="module")
def me(pbs: OpenPbs) -> Iterator[JobUser]:
    with leaving_nothing(pbs) as user:
        yield user


@pytest.fixture(scope="module")
def images(me: JobUser) -> dict[str, str]:
    me.read("pull", "tools.sif", "host:sh,hostname,seq,sleep,touch")
    return {**make_images(me), "tools": "tools.sif"}


ONE_KERNEL = ("--env", "UCX_TLS=tcp,self")  # which both hosts have, and UCX takes them for one node


def list_hosts(lines: list[str]) -> list[str]:
    return sorted(match[1] for line in lines if (match := re.search(r"(pbsn[12])\b", line)))


@pytest.mark.parametrize("family", FAMILIES)
def test_mpi_over_two_nodes(me: JobUser, images: dict[str, str], family: str) -> None:
    lines = list_ranks(me.run_job("--mpi", *TWO, *ONE_KERNEL, images[family], f"ranks-{family}"))
    assert len(lines) == 4, lines
    assert all("of 4" in line and "sum 6" in line for line in lines)
    assert list_hosts(lines) == ["pbsn1", "pbsn1", "pbsn2", "pbsn2"]


@pytest.mark.parametrize("way", ["--ranks", "--each-task"])
def test_ranks_without_mpi_over_two_nodes(me: JobUser, images: dict[str, str], way: str) -> None:
    shown = me.run_job(way, *TWO, images["tools"], "sh", "-c", "echo who $(hostname)")
    lines = [line for line in shown.splitlines() if "who" in line]
    assert list_hosts(lines) == ["pbsn1", "pbsn1", "pbsn2", "pbsn2"], shown


def test_launch_inside_a_job_reaches_the_second_node(me: JobUser, images: dict[str, str]) -> None:
    kedge = " ".join(me.user.program)
    line = f"{kedge} launch {images['openmpi']} ranks-openmpi; {kedge} launch --ranks {images['tools']} hostname"
    lines = me.run_shell(line, *TWO, *ONE_KERNEL).splitlines()
    for found in (list_ranks("\n".join(lines)), [line for line in lines if line.startswith("pbsn")]):
        assert list_hosts(found) == ["pbsn1", "pbsn1", "pbsn2", "pbsn2"], lines


def test_a_signal_reaches_the_ranks_of_both_nodes(me: JobUser, images: dict[str, str]) -> None:
    program = 'trap "echo asked $RANK; exit 0" USR1; touch here.$RANK; for i in $(seq 300); do sleep 0.2; done'
    job = me.submit("--ranks", *TWO, "--bind", str(me.folder), images["tools"], "sh", "-c", program)
    for rank in range(4):
        me.await_file(f"here.{rank}")
    me.read("cancel", "--signal", "USR1", job)
    me.wait(job)
    said = me.read("logs", job)
    assert sorted(re.findall(r"asked (\d)", said)) == ["0", "1", "2", "3"], said
    assert me.status(job)["state"] == "done"
