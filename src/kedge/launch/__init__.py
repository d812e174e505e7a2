# SPDX-License-Identifier: BSD-3-Clause
"""A program on many nodes: host lists, ranks, where they meet, what programs expect, words of launchers. Pure."""
