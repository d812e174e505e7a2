# SPDX-License-Identifier: BSD-3-Clause
"""File systems: layers above an image, overlays, FUSE programs, loop devices, scratch directories."""
