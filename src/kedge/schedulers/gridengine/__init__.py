# SPDX-License-Identifier: BSD-3-Clause
"""Grid Engine: SGE 8.1.9 and its sons, Univa's and Altair's. Seen at work: 8.1.9.

A site's `options`: memory_resource (h_vmem), memory_per_slot (yes), gpu_per_slot (no), smp_environment (smp),
mpi_environment with {tasks} for the slots per node, and exclusive, a directive such as `-l exclusive=true`.
"""

from kedge.schedulers.gridengine.engine import GRIDENGINE

__all__ = ["GRIDENGINE"]
