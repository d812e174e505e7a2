# SPDX-License-Identifier: BSD-3-Clause
"""What containers need of the kernel: tried, not asked."""
