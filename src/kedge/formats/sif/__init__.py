# SPDX-License-Identifier: BSD-3-Clause
"""The Singularity image format: layout, reader, writer, edits."""
