# SPDX-License-Identifier: BSD-3-Clause
"""What a stage begins from: an image, an archive, a directory, or a program that makes one."""
