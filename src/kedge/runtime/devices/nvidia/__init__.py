# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA GPUs: --nv."""
