# SPDX-License-Identifier: BSD-3-Clause
"""What containers need from the kernel: checked by trying it."""
