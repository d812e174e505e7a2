# SPDX-License-Identifier: BSD-3-Clause
"""Checks of NVIDIA's driver beyond what all vendors share."""
