# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on a cluster or in this machine's queue: submitted, watched, ended."""
