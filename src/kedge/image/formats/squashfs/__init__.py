# SPDX-License-Identifier: BSD-3-Clause
"""SquashFS 4.0: layout, reader, writer."""
