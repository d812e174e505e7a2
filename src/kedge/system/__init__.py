# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls, processes, atomic files, locks, confined paths."""
