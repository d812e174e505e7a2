# SPDX-License-Identifier: BSD-3-Clause
"""Where a container's files come from: what an image is, where it is unpacked, how its root is had."""
