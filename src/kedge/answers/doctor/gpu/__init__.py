# SPDX-License-Identifier: BSD-3-Clause
"""Checks of GPUs: drivers and device nodes of all vendors, more of NVIDIA's, CDI files, fast networks."""
