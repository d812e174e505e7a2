# SPDX-License-Identifier: BSD-3-Clause
"""Variables of a launch: what leaks, and what reaches the other nodes."""

from __future__ import annotations

from kedge.launch.variables import find_leaking, list_handed_on

HOST = {
    "OPAL_PREFIX": "/opt/host", "PMIX_INSTALL_PREFIX": "/opt/host", "LD_PRELOAD": "/opt/xalt/lib64/libxalt_init.so",
    "OMPI_MCA_mca_base_component_path": "/opt/host/lib/openmpi", "PMIX_RANK": "1", "PMIX_NAMESPACE": "job",
    "NCCL_DEBUG": "INFO", "KEDGE_JOB_ID": "7", "KEDGEENV_A": "b", "SLURM_JOB_ID": "7", "PE_HOSTFILE": "/x",
    "TMPDIR": "/tmp/7", "BASH_FUNC_module%%": "() { :; }", "TWO": "a\nb", "CUDA_VISIBLE_DEVICES": "0",
    "PATH": "/usr/bin",
}  # fmt: skip


def test_what_names_the_hosts_mpi_leaks_and_what_connects_ranks_does_not() -> None:
    names = ("LD_PRELOAD", "OMPI_MCA_mca_base_component_path", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX")
    assert find_leaking(HOST) == names


def test_the_users_variables_are_handed_on() -> None:
    assert list_handed_on(HOST) == ("KEDGEENV_A", "KEDGE_JOB_ID", "NCCL_DEBUG", "PATH")
