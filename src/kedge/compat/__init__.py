# SPDX-License-Identifier: BSD-3-Clause
"""Whether an image runs on a machine: driver × CUDA × GPU generation × processor × MPI, over the tables of `data/`."""
