# SPDX-License-Identifier: BSD-3-Clause
"""The command lines of other tools, for kedge: apptainer, docker, enroot, Pyxis, srun."""
