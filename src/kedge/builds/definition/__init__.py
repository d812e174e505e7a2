# SPDX-License-Identifier: BSD-3-Clause
"""Apptainer's definition files: read as Apptainer reads them, and planned in the order in which it builds."""
