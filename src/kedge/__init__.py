# SPDX-License-Identifier: BSD-3-Clause
"""kedge: from the name of a GPU container image to a running job on a cluster."""

__version__ = "0.1.0"
