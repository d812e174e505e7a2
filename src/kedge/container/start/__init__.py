# SPDX-License-Identifier: BSD-3-Clause
"""Starts: from options to a program in a container, in this process, beside it, or in one that runs already."""
