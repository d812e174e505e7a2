# SPDX-License-Identifier: BSD-3-Clause
"""MPI of an image and of a host: which it is, by the files of a tree, and which ways to start its ranks work."""
