# SPDX-License-Identifier: BSD-3-Clause
"""The site, its scheduler, and MPI."""
