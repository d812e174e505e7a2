# SPDX-License-Identifier: BSD-3-Clause
"""Variables of a launch: what leaks, what reaches the other nodes, and how many threads processes get."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kedge.launch.contracts import choose_omp_threads
from kedge.launch.variables import find_leaking, list_handed_on
from tests.builders.rows import each_row

HOST = {
    "OPAL_PREFIX": "/opt/host", "PMIX_INSTALL_PREFIX": "/opt/host", "LD_PRELOAD": "/opt/xalt/lib64/libxalt_init.so",
    "OMPI_MCA_mca_base_component_path": "/opt/host/lib/openmpi", "PMIX_RANK": "1", "PMIX_NAMESPACE": "job",
    "NCCL_DEBUG": "INFO", "KEDGE_JOB_ID": "7", "KEDGEENV_A": "b", "SLURM_JOB_ID": "7", "PE_HOSTFILE": "/x",
    "TMPDIR": "/tmp/7", "BASH_FUNC_module%%": "() { :; }", "TWO": "a\nb", "CUDA_VISIBLE_DEVICES": "0",
    "PATH": "/usr/bin",
}  # fmt: skip


def test_variables_that_leak_and_that_are_handed_on() -> None:
    names = ("LD_PRELOAD", "OMPI_MCA_mca_base_component_path", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX")
    assert find_leaking(HOST) == names
    assert list_handed_on(HOST) == ("KEDGEENV_A", "KEDGE_JOB_ID", "NCCL_DEBUG", "PATH")


@each_row(("cpus", "processes", "given", "count"), [
    (32, 4, "", 8), (2, 4, "", 1), (0, 4, "", 1), (0, 1, "", 0), (0, 4, "6", 0), (32, 4, "2", 0), (32, 4, "8", 0),
    (32, 4, "32", 8),  # as PBS sets it
    (32, 1, "32", 0),
    (32, 4, "4,2", 0),  # OpenMP's nested levels: the user's own affair
    (8, 0, "", 8),
])  # fmt: skip
def test_threads(cpus: int, processes: int, given: str, count: int) -> None:
    assert choose_omp_threads(cpus, processes, given).count == count


def test_threads_say_what_they_replace() -> None:
    assert "--env OMP_NUM_THREADS=32" in choose_omp_threads(32, 4, "32").reason
    assert not choose_omp_threads(32, 4, "8").reason


@given(st.integers(1, 512), st.integers(1, 512), st.one_of(st.just(""), st.integers(1, 999).map(str)))
def test_threads_never_more_than_cpus(cpus: int, processes: int, text: str) -> None:
    count = choose_omp_threads(cpus, processes, text).count or int(text)
    assert count == 1 or count * processes <= cpus
