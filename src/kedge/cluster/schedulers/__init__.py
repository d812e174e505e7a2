# SPDX-License-Identifier: BSD-3-Clause
"""Slurm, Grid Engine, PBS and the queue of this machine: one job's description into each one's script, and back."""
