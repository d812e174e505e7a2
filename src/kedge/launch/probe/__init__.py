# SPDX-License-Identifier: BSD-3-Clause
"""The tiny program that ranks run in the container: its files, its words and its answers."""
