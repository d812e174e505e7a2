# SPDX-License-Identifier: BSD-3-Clause
"""Records of runs: written beside the output, read again to repeat a run."""
