# SPDX-License-Identifier: BSD-3-Clause
"""Whether an image runs on a host: driver × CUDA × GPU generation × CPU × MPI, over the tables of `data/`."""
