# SPDX-License-Identifier: BSD-3-Clause
"""The image as it is between two steps: its base, its layers, and the directory a program sees."""
