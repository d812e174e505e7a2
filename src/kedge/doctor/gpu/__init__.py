# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA GPUs, their driver and its libraries; the fabric."""
