# SPDX-License-Identifier: BSD-3-Clause
"""Where ranks meet: a name that nodes know, and a port that others hardly have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.launch.rendezvous import choose_rendezvous, find_address
from kedge.model.allocation import AllocatedNode, Allocation


def allocate(*names: str, job: str = "4711", index: str = "", has_id_per_task: bool = True) -> Allocation:
    nodes = tuple(map(AllocatedNode, names or ("n1", "n2")))
    return Allocation("slurm", nodes, job_id=job, array_index=index, has_id_per_task=has_id_per_task)


@pytest.mark.parametrize(
    ("names", "suffix", "address"),
    [
        (("n1", "n2"), "", "n1"),
        (("n1", "n2"), "-ib", "n1-ib"),
        (("n1.site", "n2.site"), "-ib", "n1-ib.site"),
        (("n1", "n2"), ".fast.site", "n1.fast.site"),
        (("n1-ib", "n2-ib"), "-ib", "n1-ib"),
        (("n1",), "-ib", "127.0.0.1"),
    ],
)
def test_address(names: tuple[str, ...], suffix: str, address: str) -> None:
    assert find_address(allocate(*names), suffix) == address


def test_port_comes_from_the_job() -> None:
    found = choose_rendezvous(allocate(job="4711"))
    assert (found.address, found.port, found.endpoint) == ("n1", 24711, "n1:24711")
    assert (
        choose_rendezvous(allocate(job="123456789012.server")).port == choose_rendezvous(allocate(job="456789012")).port
    )


@given(st.integers(1, 10**12), st.integers(0, 200), st.integers(0, 50))
def test_port_is_below_those_that_the_kernel_gives_away(job: int, launch: int, attempt: int) -> None:
    assert 20000 <= choose_rendezvous(allocate(job=str(job)), launch=launch, attempt=attempt).port < 32000


def test_port_differs_between_jobs_tasks_and_launches() -> None:
    ports = {choose_rendezvous(allocate(job=str(job))).port for job in range(5000, 7000)}
    assert len(ports) == 2000
    launches = [choose_rendezvous(allocate(), launch=launch) for launch in range(100)]
    assert len({each.port for each in launches}) == len({each.id for each in launches}) == 100
    attempts = {choose_rendezvous(allocate(), attempt=attempt).port for attempt in range(100)}
    assert len(attempts) == 100
    tasks = [choose_rendezvous(allocate(job="9", index=str(index), has_id_per_task=False)) for index in range(90)]
    assert len({each.port for each in tasks}) == len({each.id for each in tasks}) == 90
    neighbours = {
        choose_rendezvous(allocate(job="10", index=str(index), has_id_per_task=False)).port for index in range(90)
    }
    assert neighbours.isdisjoint(each.port for each in tasks)


def test_port_without_a_job_is_the_process_s() -> None:
    one, other = (choose_rendezvous(allocate("laptop", job=""), process=process) for process in (100, 101))
    assert one.port != other.port
    assert one.id != other.id


def test_endpoint_of_an_ipv6_address() -> None:
    assert choose_rendezvous(allocate("fd00::1", "fd00::2")).endpoint == "[fd00::1]:24711"
