# SPDX-License-Identifier: BSD-3-Clause
"""Hardened tar reading, whiteouts, flattening, extraction."""
