# SPDX-License-Identifier: BSD-3-Clause
"""Use cases around MPI: what an image and this host have, and which ways to start ranks work."""
