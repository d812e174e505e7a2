# SPDX-License-Identifier: BSD-3-Clause
"""Batch scripts that users already have: read, checked against what goes wrong, turned into jobs. Text in, text out."""
