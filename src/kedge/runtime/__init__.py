# SPDX-License-Identifier: BSD-3-Clause
"""Containers on this machine: options and facts → plan (pure) → operations → enter.

Every rank of a job pays for what a start imports, so the modules on that path take os, sys and errno from the standard
library, and what else they need late. `tests/functional/test_start_cost.py` holds the list.
"""
