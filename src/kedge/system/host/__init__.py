# SPDX-License-Identifier: BSD-3-Clause
"""Facts about this machine: limits, memory, free space and quota."""
