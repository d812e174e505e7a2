# SPDX-License-Identifier: BSD-3-Clause
"""A program on all nodes of a job: planned, checked, started, followed and ended."""
