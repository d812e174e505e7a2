# SPDX-License-Identifier: BSD-3-Clause
"""The packages in an image, read from the databases of the programs that installed them. Nothing is run."""
