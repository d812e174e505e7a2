# SPDX-License-Identifier: BSD-3-Clause
"""SIF, the Singularity Image Format: layout, reader, writer and changes to existing files."""
