# SPDX-License-Identifier: BSD-3-Clause
"""Containers beyond a plain start: instances, other runtimes, Pyxis, the names `apptainer` and `singularity`."""
