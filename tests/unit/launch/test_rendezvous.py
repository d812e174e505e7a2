# SPDX-License-Identifier: BSD-3-Clause
"""Where ranks meet: a name that nodes know, and a port that others cannot tell before."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.allocation import AllocatedNode, Allocation
from kedge.launch.contracts import choose_rendezvous, find_address
from tests.builders.rows import each_row


def allocate(*names: str, job: str = "4711", index: str = "") -> Allocation:
    nodes = tuple(map(AllocatedNode, names or ("n1", "n2")))
    return Allocation("slurm", nodes, job_id=job, array_index=index)


@each_row(("names", "suffix", "address"), [
    (("n1", "n2"), "", "n1"), (("n1", "n2"), "-ib", "n1-ib"), (("n1.site", "n2.site"), "-ib", "n1-ib.site"),
    (("n1", "n2"), ".fast.site", "n1.fast.site"), (("n1-ib", "n2-ib"), "-ib", "n1-ib"), (("n1",), "-ib", "127.0.0.1"),
])  # fmt: skip
def test_address(names: tuple[str, ...], suffix: str, address: str) -> None:
    assert find_address(allocate(*names), suffix) == address
    assert suffix or find_address(allocate(*names)) == address


@given(st.integers(0, 10**12), st.integers(0, 50))
def test_port_is_below_those_that_the_kernel_gives_away(launch: int, attempt: int) -> None:
    assert 20000 <= choose_rendezvous(allocate(), launch, attempt=attempt).port < 32000


def test_ports_differ() -> None:
    # From whatever number the launches of a job begin
    for first in (0, 11_999, 4_000_000_000):
        launches = [choose_rendezvous(allocate(), first + launch) for launch in range(100)]
        assert len({each.port for each in launches}) == 100
        assert len({choose_rendezvous(allocate(), first, attempt=attempt).port for attempt in range(100)}) == 100
    assert len({choose_rendezvous(allocate(), launch).port for launch in range(12_000)}) == 12_000


def test_name_and_endpoint() -> None:
    # It says the job and the task, and nothing that the port could be told from
    names = [choose_rendezvous(allocate(job="7", index="3"), 5).id for _ in range(20)]
    assert len(set(names)) == 20
    assert all(re.fullmatch(r"kedge-7\.3-[0-9a-f]{16}", name) for name in names)
    assert choose_rendezvous(allocate("laptop", job=""), 5).id.startswith("kedge-local-")
    assert choose_rendezvous(allocate("fd00::1", "fd00::2"), 0).endpoint == "[fd00::1]:20000"
