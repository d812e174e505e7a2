# SPDX-License-Identifier: BSD-3-Clause
"""Processes and their rights: supervision, joining and sharing containers, instances, root that is none."""
