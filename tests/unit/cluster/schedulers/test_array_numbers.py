# SPDX-License-Identifier: BSD-3-Clause
"""A user's indices of an array and a scheduler's numbers for them are each other's inverse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.job import Job, JobArray
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.array_numbers import can_renumber, find_number, restore_indices
from kedge.cluster.schedulers.backend import ScriptContext
from kedge.cluster.schedulers.gridengine.backend import BACKEND as GRIDENGINE
from kedge.cluster.schedulers.pbs.backend import BACKEND as PBS
from kedge.cluster.schedulers.script_body import needs_lookup
from tests.builders.rows import with_rows

PLACE = ScriptContext("/r", "/bin/kedge", "", "", "/w", "/w/{name}-{id}_{index}.out", "")


def restore(scheduler: str, array: str, **fields: object) -> JobStatus:
    status = JobStatus("7", State.RUNNING, "r", **fields)  # type: ignore[arg-type]
    return restore_indices(scheduler, JobArray.parse(array), [status])[0]


@with_rows(
    ("gridengine", "1-9", 3, 3),
    ("gridengine", "2-20:3", 5, 5),  # of one range with a step Grid Engine uses the indices themselves
    *(("gridengine", "0-9", 3, 2), ("gridengine", "2,5-9:2", 4, 9), ("pbs", "0-9", 3, 3), ("pbs", "2,5-9:2", 1, 2)),
    ("slurm", "2,5-9:2", 5, 5),
)
def test_array_numbers_both_ways(scheduler: str, array: str, number: int, index: int) -> None:
    assert find_number(scheduler, JobArray.parse(array), index) == number
    assert restore(scheduler, array, index=number).index == index


def test_array_numbers_of_tasks_that_wait() -> None:
    assert restore("gridengine", "0-9", pending_indices="4-10").pending_indices == "3-9"
    assert restore("gridengine", "0-9", pending_indices="2-8:2,10").pending_indices == "1,3,5,7,9"
    assert restore("pbs", "3,4,5,9", pending_indices="2-4").pending_indices == "4-5,9"
    assert restore("pbs", "0-9", pending_indices="2-4").pending_indices == "2-4"
    array = JobArray.parse("5")
    assert find_number("pbs", array, 5) is None
    assert restore("pbs", "5").index == 5
    assert find_number("gridengine", array, 5) == 5
    assert [name for name in ("slurm", "gridengine", "pbs", "local") if can_renumber(name)] == ["gridengine", "pbs"]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20, unique=True), st.sampled_from(["gridengine", "pbs"]))
def test_array_numbers_agree_with_the_script(indices: list[int], scheduler: str) -> None:
    array = JobArray.parse(",".join(map(str, indices)))
    job = Job(command=("true",), array=array)
    backend = {"gridengine": GRIDENGINE, "pbs": PBS}[scheduler]
    is_looked_up = needs_lookup(job, backend.make_dialect(job, PLACE))
    for index in array.indices:
        number = find_number(scheduler, array, index)
        expected = array.indices.index(index) + 1 if is_looked_up else index
        assert number == (None if scheduler == "pbs" and len(indices) == 1 else expected)
        if number is not None:
            assert restore(scheduler, str(array), index=number).index == index


@given(st.text(max_size=60), st.integers(-5, 10**12))
def test_array_numbers_survive_nonsense(text: str, number: int) -> None:
    restore("gridengine", "0-9", pending_indices=text)
    restore("gridengine", "0-9", index=number)
