# SPDX-License-Identifier: BSD-3-Clause
"""Byte formats: SquashFS, SIF, OCI layouts, compression, ELF."""
